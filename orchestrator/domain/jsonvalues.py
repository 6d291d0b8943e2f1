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
import re
from typing import Any, Final, cast

import orjson

from orchestrator.domain.failure import scrub
from orchestrator.domain.jsontypes import Json

MAX_DEPTH: Final = 128  # containers inside containers; a bare scalar has depth 0
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BIG_NUMBER: Final = re.compile(rb"[0-9]{19}")
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
    if _PLAIN_KEY.match(key):
        return f"{path}.{key}"
    shown = scrub(key if len(key) <= 64 else key[:64] + "…")
    escaped = shown.replace("\\", "\\\\").replace("'", "\\'")
    return f"{path}['{escaped}']"


def check_json(value: object) -> Json:
    """`value` as JSON: a new value, tuples as lists, lone surrogates replaced.

    Raises `NotJson` with the path of the first fault.
    """
    return _check(value, "$", [])


def _check(value: object, path: str, above: list[int]) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return scrub(str(value))
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise NotJson(path, "the integer does not fit in 64 bits; send it as text")
        return int(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NotJson(path, "NaN and Infinity are not JSON; use null or text")
        return float(value)
    if not isinstance(value, dict | list | tuple):
        raise NotJson(path, f"a value of type {type(value).__name__} is not JSON")
    container = cast("dict[Any, Any] | list[Any] | tuple[Any, ...]", value)
    if id(container) in above:
        raise NotJson(path, "the value contains itself")
    if len(above) >= MAX_DEPTH:
        raise NotJson(path, f"values are nested more than {MAX_DEPTH} deep")
    above.append(id(container))
    result: Json
    if isinstance(container, dict):
        checked: dict[str, Json] = {}
        for key, inner in container.items():
            if not isinstance(key, str):
                raise NotJson(path, f"a key of type {type(key).__name__} is not text")
            name = scrub(str(key))
            if name in checked:
                raise NotJson(path, "two keys are the same once lone surrogates are replaced")
            checked[name] = _check(inner, child_path(path, key), above)
        result = checked
    else:
        result = [_check(inner, child_path(path, i), above) for i, inner in enumerate(container)]
    above.pop()
    return result


def dumps(value: object) -> bytes:
    """JSON text of `value`, compact, UTF-8. The same rules as `check_json`.

    Raises `NotJson`. The happy path is one pass of orjson; the slow check runs only if orjson
    refuses, or if the text shows what orjson hides: `null` (NaN is written so) or 19 digits in a
    row (orjson goes on to 2^64).
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except (TypeError, RecursionError, ValueError):
        return orjson.dumps(check_json(value), option=_OPTIONS)
    if b"null" in text or _BIG_NUMBER.search(text) or _deep(text):
        return orjson.dumps(check_json(value), option=_OPTIONS)
    return text


def _deep(text: bytes) -> bool:
    """Whether the text may be nested over the limit: a cheap upper bound."""
    return text.count(b"[") + text.count(b"{") > MAX_DEPTH


def loads(data: bytes | str) -> Json:
    """The value of JSON text. Raises `ValueError` for text that is no JSON."""
    return cast(Json, orjson.loads(data))


def canonical(value: Json) -> bytes:
    """JSON text with sorted keys, for hashing: equal values give equal bytes."""
    return orjson.dumps(value, option=_OPTIONS | orjson.OPT_SORT_KEYS)


def body_hash(value: Json) -> str:
    """SHA-256 of the canonical text, hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()
