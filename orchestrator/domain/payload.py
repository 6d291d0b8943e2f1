"""A user's JSON as it is kept: JSON text inline, or a reference into the payload store.

Text, because Cosmos numbers are IEEE doubles and its nesting stops at 128: stored as text, a value
comes back exactly, and keys such as `ttl`, `_etag` or `id` have no effect on the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Payload:
    """Exactly one of `text` (JSON text) and `ref` (payload store reference) is set."""

    text: str | None = None
    ref: str | None = None
    size: int = 0  # bytes of the JSON text in UTF-8

    def to_doc(self) -> dict[str, Any]:
        """The stored form: `{"json", "bytes"}` or `{"ref", "bytes"}`."""
        if self.ref is not None:
            return {"ref": self.ref, "bytes": self.size}
        return {"json": self.text, "bytes": self.size}

    @staticmethod
    def from_doc(doc: dict[str, Any]) -> Payload:
        """Inverse of `to_doc`."""
        return Payload(text=doc.get("json"), ref=doc.get("ref"), size=int(doc["bytes"]))
