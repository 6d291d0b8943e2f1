"""JSON at the edges: what an activity returned becomes text that every store keeps unchanged.

Python is looser than JSON: NaN, sets, integer keys, lone surrogates and cycles all pass for a
`dict`. orjson alone would let some of them through silently (NaN becomes null, a datetime becomes
text), so that a value would be stored that nobody returned. Everything that leaves an activity and
enters a store goes through here; faults are named by JSON path.

Rules: integers must fit in 64 bits, signed (CEL's int); NaN and infinity are refused; lone
surrogates become U+FFFD (UTF-8 cannot hold them); NUL is kept; nesting is at most 128.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from enum import Enum
from math import isfinite
from typing import Any, Final, cast
from uuid import UUID

import orjson

from orchestrator.domain.failure import scrub
from orchestrator.domain.jsontypes import Json

MAX_DEPTH: Final = 128  # containers inside containers; a bare scalar has depth 0
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DIGITS_TO_ZERO: Final = bytes(48 if 48 <= code <= 57 else code for code in range(256))
_NINETEEN: Final = b"0" * 19
_OPTIONS: Final = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


class NotJson(ValueError):
    """A value is no JSON. `path` says where (`$.items[3].x`), `reason` what is wrong there."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def child_path(path: str, key: str | int) -> str:
    """`path` extended by an object key or a list index: `$.a`, `$['a b']`, `$[0]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if len(key) <= 64 and _PLAIN_KEY.match(key):
        return f"{path}.{key}"
    shown = scrub(key if len(key) <= 64 else key[:64] + "…")
    escaped = shown.replace("\\", "\\\\").replace("'", "\\'")
    return f"{path}['{escaped}']"


def check_json(value: object) -> Json:
    """`value` as JSON: a new value, tuples as lists, enum members as their values, UUIDs as text
    (orjson takes these two as well), lone surrogates replaced.

    Raises `NotJson` with the path of the first fault.
    """
    try:
        return _check(value, [])
    except _Fault as fault:
        path = "$"
        for key in reversed(fault.keys):
            path = child_path(path, key)
        raise NotJson(path, fault.reason) from None


class _Fault(Exception):
    """A fault on its way up; each level adds its key, so that the usual path builds no texts."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.keys: list[str | int] = []


def _check(value: object, above: list[int]) -> Json:
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise _Fault("the integer does not fit in 64 bits; send it as text")
        return int(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise _Fault("NaN and Infinity are not JSON; use null or text")
        return float(value)
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(value, dict | list | tuple):
        raise _Fault(f"a value of type {type(value).__name__} is not JSON")
    container = cast("dict[Any, Any] | list[Any] | tuple[Any, ...]", value)
    if id(container) in above:
        raise _Fault("the value contains itself")
    if len(above) >= MAX_DEPTH:
        raise _Fault(f"values are nested more than {MAX_DEPTH} deep")
    above.append(id(container))
    at: str | int | None = None  # None: the fault is a key, and the container's own
    try:
        if isinstance(container, dict):
            fields: dict[str, Json] = {}
            for key, inner in container.items():
                at = None
                at = _key(key, fields)
                fields[at] = _check(inner, above)
            return fields
        items: list[Json] = []
        for position, inner in enumerate(container):
            at = position
            items.append(_check(inner, above))
        return items
    except _Fault as fault:
        if at is not None:
            fault.keys.append(at)
        raise
    finally:
        above.pop()


def _key(key: object, taken: dict[str, Json]) -> str:
    if not isinstance(key, str):
        raise _Fault(f"a key of type {type(key).__name__} is not text")
    name = _text(key)
    if name in taken:
        raise _Fault("two keys are the same once lone surrogates are replaced")
    return name


def _text(value: str) -> str:
    # A subclass may print itself otherwise (str enums do): take the characters.
    plain = value if type(value) is str else str.__str__(value)
    return plain if plain.isascii() else scrub(plain)


def dumps(value: object) -> bytes:
    """JSON text of `value`, compact, UTF-8. The same rules as `check_json`.

    Raises `NotJson`. The usual path is one pass of orjson and three searches of its text; the
    value itself is only looked at where the text cannot tell: it has `null` (orjson writes NaN so),
    19 digits in a row (orjson goes on to 2^64), or more than 128 brackets (they might be nested).
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        return orjson.dumps(check_json(value), option=_OPTIONS)
    doubtful = b"null" in text or _maybe_deep(text) or _long_number(text)
    if doubtful and _suspect(value):
        return orjson.dumps(check_json(value), option=_OPTIONS)
    return text


def _maybe_deep(text: bytes) -> bool:
    return text.count(b"[") + text.count(b"{") > MAX_DEPTH


def _long_number(text: bytes) -> bool:
    return _NINETEEN in text.translate(_DIGITS_TO_ZERO)


def _suspect(value: object) -> bool:
    """Whether `check_json` must look: level by level, as fast as Python can."""
    level: list[Iterable[Any]] = [(value,)]
    for _ in range(MAX_DEPTH + 1):
        below: list[Iterable[Any]] = []
        for container in level:
            for item in container:
                kind = type(item)  # pyright: ignore[reportUnknownVariableType]
                if kind is str or item is None or kind is bool:
                    continue
                if kind is int:
                    if not INT_MIN <= item <= INT_MAX:
                        return True
                elif kind is float:
                    if not isfinite(item):
                        return True
                elif kind is dict:
                    below.append(item.values())
                elif kind is list or kind is tuple:
                    below.append(item)
                else:
                    return True
        if not below:
            return False
        level = below
    return True


def loads(data: bytes | str) -> Json:
    """The value of JSON text that we wrote. Raises `ValueError` for text that is no JSON.

    For text from outside use `parse`: this goes beyond 64 bits and 128 levels.
    """
    return cast(Json, orjson.loads(data))


def parse(data: bytes | str) -> Json:
    """The value of JSON text from outside.

    Raises `NotJson` (with the path) for integers beyond 64 bits and nesting over 128, which are
    valid JSON that we do not take, and otherwise `ValueError`: bare NaN, a lone surrogate, bytes
    that are no UTF-8, no JSON at all, or nested beyond what any parser here reads.
    """
    value = orjson.loads(data)
    text = data if isinstance(data, bytes) else data.encode()
    if _long_number(text):
        # orjson turns integers beyond 2^64 into doubles: ask a parser that keeps them.
        try:
            check_json(json.loads(data))
        except RecursionError:
            raise NotJson("$", f"values are nested more than {MAX_DEPTH} deep") from None
    elif _maybe_deep(text) and _suspect(value):
        check_json(value)
    return cast(Json, value)


def canonical(value: Json) -> bytes:
    """JSON text with sorted keys, for hashing: equal values give equal bytes."""
    return orjson.dumps(value, option=_OPTIONS | orjson.OPT_SORT_KEYS)


def body_hash(value: Json) -> str:
    """SHA-256 of the canonical text, hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()
