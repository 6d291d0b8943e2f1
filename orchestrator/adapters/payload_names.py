"""Names of stored payloads, alike for files and blobs: tenant, execution, hash of the content.

Tenant and execution come from outside, so no text may leave the folder that it names, and two texts
that differ by case alone must stay apart on file systems that ignore case.
"""

from __future__ import annotations

import hashlib
from typing import Final

MAX_NAME_CHARS: Final = 120
"""Longer encoded names are replaced by their hash: file systems stop at 255 bytes."""

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")

ENCODED: Final = "[a-z0-9_~-]+"
"""Regular expression that every encoded name matches."""
DIGEST: Final = "[0-9a-f]{64}"
"""Regular expression of a SHA-256 in hexadecimal."""


def encode_name(text: str) -> str:
    """A name for any text: `[a-z0-9-]` as they are, other bytes as `_xx`, never empty."""
    raw = text.encode("utf-8", "surrogatepass")
    name = "".join([chr(byte) if byte in _PLAIN else f"_{byte:02x}" for byte in raw])
    if len(name) > MAX_NAME_CHARS:
        return "~" + hashlib.sha256(raw).hexdigest()
    return name or "~"
