"""What an instance is started with beyond Weft's envelope, when a code workflow starts it itself:
as a child, or as the next generation of itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.domain import jsonvalues
from orchestrator.domain.orchestration import BadEnvelope, Envelope

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """An envelope, and the place of the instance in its workflow. Without a frame around it, an
    envelope is that of a first generation which Weft has started."""

    envelope: Envelope
    generation: int = 0
    child: bool = False  # another workflow waits for it, not Weft
    signals: tuple[tuple[str, str], ...] = ()  # not taken by the generation before
    seen: tuple[str, ...] = ()  # ids of signals that it knew

    def encode(self) -> str:
        """JSON text."""
        doc = {
            "v": VERSION,
            "envelope": self.envelope.encode(),
            "generation": self.generation,
            "child": self.child,
            "signals": [list(pair) for pair in self.signals],
            "seen": list(self.seen),
        }
        return jsonvalues.dumps(doc).decode()

    @staticmethod
    def decode(text: str) -> Frame:
        """Inverse of `encode`, also of a bare envelope. Raises `BadEnvelope`."""
        try:
            doc: Any = jsonvalues.loads(text)
        except ValueError as error:
            raise BadEnvelope(f"not JSON: {error}") from None
        if not isinstance(doc, dict) or "envelope" not in doc:
            return Frame(envelope=Envelope.decode(text))
        if doc.get("v") != VERSION:
            raise BadEnvelope(f"not a frame of version {VERSION}")
        return Frame(
            envelope=Envelope.decode(doc["envelope"]),
            generation=doc["generation"],
            child=doc["child"],
            signals=tuple((name, signal) for name, signal in doc["signals"]),
            seen=tuple(doc["seen"]),
        )

    def next(self, text: str) -> Frame:
        """The generation after it, with the input `text` (JSON)."""
        envelope = replace(self.envelope, input=text, input_ref=None)
        return replace(self, envelope=envelope, generation=self.generation + 1)
