"""What an erased document looks like: users' data is gone, the structure stays.

Users' data has two shapes in stored documents, and nowhere else: payloads (`domain/payload.py`)
and failures (`domain/failure.py`), whose messages may quote a payload. Both are found by their
shape, so that a document that is added one day is erased like the others. Statuses, times, types
of errors, names, ids, tags and who acted stay.
"""

from __future__ import annotations

from typing import Any, Final, cast

ERASED_JSON: Final = '{"$erased":true}'
"""Stands in the place of a payload."""
ERASED_TEXT: Final = "(erased)"
"""Stands in the place of an error's message."""
_HASHES: Final = ("requestHash", "wish")
"""Hashes of payloads: a short one could be guessed. What compares them finds no match then."""


def scrub(value: Any) -> Any:
    """`value` without users' data; equal to it if there was none."""
    if isinstance(value, list):
        return [scrub(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    value = cast("dict[str, Any]", value)
    if _is_payload(value):
        return {"json": ERASED_JSON, "bytes": len(ERASED_JSON)}
    result = {name: scrub(one) for name, one in value.items()}
    if isinstance(value.get("type"), str) and isinstance(value.get("message"), str):
        result["message"] = ERASED_TEXT
    for name in _HASHES:
        if name in result:
            result[name] = ERASED_TEXT
    return result


def _is_payload(value: dict[str, Any]) -> bool:
    return "bytes" in value and value.keys() - {"bytes"} in ({"json"}, {"ref"})
