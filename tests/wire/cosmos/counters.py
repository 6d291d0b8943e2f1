"""What was asked of a server, for cost figures: requests, statuses, bytes and charges by kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Counters:
    """Counted since the start or the last `clear`. Kinds as in `faults`; for the operations inside
    batches `operations` has `batch.create` and so on, one each, beside the single ones."""

    requests: Counter[str] = field(default_factory=Counter[str])
    statuses: Counter[str] = field(default_factory=Counter[str])  # "read 404"
    operations: Counter[str] = field(default_factory=Counter[str])
    bytes_in: Counter[str] = field(default_factory=Counter[str])  # request bodies
    bytes_out: Counter[str] = field(default_factory=Counter[str])  # answer bodies
    charges: dict[str, float] = field(default_factory=dict[str, float])  # request units

    def note(self, kind: str, status: int, received: int, sent: int, charge: float) -> None:
        """One answered request."""
        self.requests[kind] += 1
        self.statuses[f"{kind} {status}"] += 1
        self.bytes_in[kind] += received
        self.bytes_out[kind] += sent
        self.charges[kind] = self.charges.get(kind, 0.0) + charge

    def clear(self) -> None:
        """Begin again."""
        for one in (self.requests, self.statuses, self.operations, self.bytes_in, self.bytes_out):
            one.clear()
        self.charges.clear()

    def to_json(self) -> dict[str, Any]:
        """Everything, for another process."""
        return {name: dict(getattr(self, name)) for name in self.__slots__}
