"""From CEL values to JSON and to text.

CEL knows more types than JSON. What has one usual JSON form gets it; the rest is refused, with the
way out. Without this, a `datetime` or NaN would reach the store.

- timestamp -> RFC 3339 text in UTC, `2027-03-28T01:30:00Z`, up to microseconds
- duration -> seconds as text, `90s`, `1.5s` (the JSON form of protobuf)
- optional -> its value, or null if it has none
- type -> its name as text
- map -> object with sorted keys: the library keeps no order, and gives another one every time
- bytes, NaN and infinity, integers beyond 64 bits, map keys that are no text -> refused
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import orjson

from orchestrator.domain.cel_library import OptionalValue
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import INT_MAX, INT_MIN, MAX_DEPTH


class ValueRefused(Exception):
    """The result has no JSON form; the text says why and holds no value."""


def to_json(value: object, depth: int = 0) -> Json:
    """The JSON form of a CEL result. Raises `ValueRefused`."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise ValueRefused("the result is an integer beyond 64 bits")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueRefused("the result is not a finite number")
        return value
    if depth > MAX_DEPTH:
        raise ValueRefused(f"the result is nested more than {MAX_DEPTH} deep")
    if isinstance(value, list | tuple):
        return [to_json(item, depth + 1) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[Any, Any]", value)
        if not all(isinstance(key, str) for key in fields):
            raise ValueRefused("the keys of a map must be text: write string(key)")
        return {key: to_json(fields[key], depth + 1) for key in sorted(fields)}
    if isinstance(value, OptionalValue):
        return to_json(value.value(), depth) if value.has_value() else None
    if isinstance(value, datetime):
        return _timestamp(value)
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, bytes):
        raise ValueRefused("the result is bytes: write base64.encode(…) or string(…)")
    raise ValueRefused("the result has no JSON form")


def to_text(value: Json) -> str:
    """The text that stands for `value` inside a longer text: text as it is, anything else as
    compact JSON (`3`, `3.0`, `true`, `null`, `[1,2]`)."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _timestamp(value: datetime) -> str:
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def _duration(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    sign = "-" if micros < 0 else ""
    seconds, rest = divmod(abs(micros), 1_000_000)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"{sign}{seconds}{fraction}s"
