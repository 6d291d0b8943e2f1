"""Places in the change feed: one per physical range, in a cursor of our own.

The SDK can read the whole container and keep the places of all ranges in one continuation, but it
refuses to go on from its own continuation while a range in it has not been read yet (`"token":
null`, azure-cosmos 4.17.1). So ranges are read one by one here; a range that is split on the way
comes back as its parts and becomes several entries. A place moves only with a page that was handed
out, so a cursor is never ahead of a document that nobody saw.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from orchestrator.ports import BadCursor

_CURSOR: Final = re.compile(r"cf1\.([a-z]+)\.([A-Za-z0-9_-]+)\.([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class RangePlace:
    """How far one range was read. `token`: the service's, None if not at all."""

    low: str
    high: str
    token: str | None

    def feed_range(self) -> dict[str, Any]:
        """As the SDK takes it."""
        return {"Range": _range(self.low, self.high)}


@dataclass(frozen=True, slots=True)
class Places:
    """A cursor's content. `next`: the range to ask first, so that a busy one starves no other."""

    container_id: str  # the service's own, "" before the first answer
    next: int
    ranges: tuple[RangePlace, ...]

    def after(self, position: int, page: Places, *, moved: bool) -> Places:
        """With the range at `position` replaced by what the SDK says about it after a page;
        `moved`: the page had documents, so the next range is asked first."""
        ranges = (*self.ranges[:position], *page.ranges, *self.ranges[position + 1 :])
        following = (position + len(page.ranges)) % len(ranges) if moved else self.next
        return Places(page.container_id, following, ranges)


def whole_container(feed_ranges: list[dict[str, Any]]) -> Places:
    """The beginning of the feed, of the SDK's feed ranges."""
    ranges = (one["Range"] for one in feed_ranges)
    return Places("", 0, tuple(RangePlace(one["min"], one["max"], None) for one in ranges))


def to_continuation(places: Places, place: RangePlace) -> str:
    """The SDK's stored continuation (version 2) for one range that was read before."""
    inner = {
        "v": "v2",
        "rid": places.container_id,
        "continuation": [{"token": place.token, "range": _range(place.low, place.high)}],
        **place.feed_range(),
    }
    content = {
        "v": "v2",
        "containerRid": places.container_id,
        "mode": "LatestVersion",
        "startFrom": {"Type": "Beginning"},
        "continuation": inner,
    }
    return base64.b64encode(orjson.dumps(content)).decode()


def from_continuation(text: str) -> Places:
    """What the SDK says after a page, of one range or the parts it was split into. Raises
    `BadCursor` if that is not its structured continuation: a bare ETag of one part would silently
    skip the others."""
    try:
        content = orjson.loads(base64.b64decode(text, validate=True))
        parts = content["continuation"]["continuation"]
        ranges = tuple(
            RangePlace(part["range"]["min"], part["range"]["max"], part["token"]) for part in parts
        )
        return Places(content["containerRid"], 0, ranges)
    except (ValueError, KeyError, TypeError) as error:
        raise BadCursor("the change feed gave no place to continue from") from error


def _range(low: str, high: str) -> Mapping[str, Any]:
    return {"min": low, "max": high, "isMinInclusive": True, "isMaxInclusive": False}


def encode_cursor(container: str, places: Places) -> str:
    """An opaque cursor, bound to the container, with a check of every byte."""
    content = [
        places.container_id,
        places.next,
        [[one.low, one.high, one.token] for one in places.ranges],
    ]
    text = base64.urlsafe_b64encode(orjson.dumps(content)).decode().rstrip("=")
    head = f"cf1.{container}.{text}"
    return f"{head}.{zlib.crc32(head.encode()):08x}"


def decode_cursor(container: str, cursor: str) -> Places:
    """Where to go on. Raises `BadCursor`."""
    match = _CURSOR.fullmatch(cursor)
    head, _, check = cursor.rpartition(".")
    if match is None or match[1] != container or f"{zlib.crc32(head.encode()):08x}" != check:
        raise BadCursor(f"not a cursor of {container} in this store")
    try:
        content = orjson.loads(base64.urlsafe_b64decode(match[2] + "=" * (-len(match[2]) % 4)))
        container_id, following, ranges = content
        return Places(container_id, following, tuple(RangePlace(*one) for one in ranges))
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadCursor(f"not a cursor of {container} in this store") from error
