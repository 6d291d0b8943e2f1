"""Opaque cursors: where a list goes on, bound to the list that gave it.

Without the binding, a cursor of one filter used with another would silently skip rows. The checksum
is against accidents, not against forgery: it is not keyed, and it need not be, because the engine
puts the tenant into every query whatever the cursor says, and what is inside is checked by type.

Form: URL-safe base64, without padding, of 12 bytes of SHA-256 (over scope and payload) followed by
the payload as compact JSON.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from types import UnionType
from typing import Any, Final

import orjson

from orchestrator.domain.errors import ErrorDetail, MalformedError

CHECKSUM_BYTES: Final = 12
MAX_CURSOR_CHARS: Final = 2048
KEYSET: Final = (str | int, str)
"""Most lists: the value that they are ordered by, and an id."""


def encode(scope: tuple[str, ...], after: tuple[Any, ...] | None) -> str | None:
    """The cursor for `after` (small, JSON-able) within `scope` (tenant, route, filters); None for
    None: there is no next page."""
    if after is None:
        return None
    payload = orjson.dumps(after)
    return base64.urlsafe_b64encode(_checksum(scope, payload) + payload).rstrip(b"=").decode()


def decode(
    scope: tuple[str, ...], text: str, shape: Sequence[type | UnionType] = KEYSET
) -> tuple[Any, ...]:
    """Inverse of `encode`: a tuple of numbers and texts, of the types of `shape`.

    Raises `MalformedError` (INVALID_CURSOR) for a cursor of another scope, for one with any byte
    altered, and for one that somebody made up.
    """
    if len(text) > MAX_CURSOR_CHARS:
        raise _invalid()
    try:
        data = base64.b64decode(
            text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True
        )
    except (UnicodeEncodeError, binascii.Error):
        raise _invalid() from None
    # Base64 has spare bits at the end: several texts decode to the same bytes, only one is ours.
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        raise _invalid()
    checksum, payload = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
    if checksum != _checksum(scope, payload):
        raise _invalid()
    try:
        after = orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise _invalid() from None
    if not isinstance(after, list) or len(after) != len(shape):
        raise _invalid()
    if not all(_fits(value, kind) for value, kind in zip(after, shape, strict=True)):
        raise _invalid()
    return tuple(after)


def _checksum(scope: tuple[str, ...], payload: bytes) -> bytes:
    # The scope as JSON, so that ("a", "b") and ("ab",) differ.
    return hashlib.sha256(orjson.dumps(scope) + b"\n" + payload).digest()[:CHECKSUM_BYTES]


def _fits(value: Any, kind: type | UnionType) -> bool:
    if isinstance(value, int):
        return isinstance(value, kind) and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, kind)


def _invalid() -> MalformedError:
    return MalformedError(
        "the cursor is not one that this list gave out; use `nextCursor` of the previous page "
        "unchanged and with the same filters, or leave it out to begin again",
        code="INVALID_CURSOR",
        details=(ErrorDetail("cursor", "not a cursor of this list", code="INVALID_CURSOR"),),
    )
