"""Bytes to plain JSON values, strictly. Every HTTP body and every definition enters here.

What the standard reader lets through silently is refused here, because it breaks later and far
away: duplicate keys (the last one wins), NaN (not JSON, no store keeps it), integers beyond 64 bits
(CEL and databases change them), deep nesting (Cosmos stops at 128). Lone surrogates become U+FFFD:
they cannot be stored as UTF-8.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal, TypeAlias, cast

from orchestrator.domain.errors import WeftError
from orchestrator.domain.failure import scrub
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import child_path
from orchestrator.domain.textrules import (
    MAX_FAULTS,
    Fault,
    decode,
    duplicate_key,
    malformed,
    not_finite,
    raise_faults,
    read_float,
    read_int,
    too_deep,
)
from orchestrator.domain.topology import MAX_BODY_BYTES, MAX_NESTING
from orchestrator.domain.yamltext import parse_yaml

_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")

__all__ = ["Kind", "parse", "parse_json", "parse_json_items", "parse_yaml"]

Kind: TypeAlias = Literal["json", "yaml"]


def parse(data: bytes, kind: Kind, *, max_bytes: int = MAX_BODY_BYTES) -> Json:
    """The value of a JSON or YAML text. Raises as `parse_json` does."""
    if kind == "yaml":
        return parse_yaml(data, max_bytes=max_bytes)
    return parse_json(data, max_bytes=max_bytes)


def parse_json(
    data: bytes, *, max_bytes: int = MAX_BODY_BYTES, max_depth: int = MAX_NESTING
) -> Json:
    """The value of a JSON text in UTF-8 (a byte order mark is skipped).

    Raises `TooLargeError` over `max_bytes`; `MalformedError` if it is not JSON, has a duplicate
    key, NaN or Infinity; `InvalidError` for an integer beyond 64 bits, a number beyond double, or
    nesting deeper than `max_depth`, with the path of each.
    """
    value = _loaded(data, max_bytes, max_depth)
    return _checked(value, data, max_depth, "$")


def parse_json_items(
    data: bytes, *, max_bytes: int = MAX_BODY_BYTES, max_depth: int = MAX_NESTING
) -> Json | list[Json | WeftError]:
    """As `parse_json`; but in a list, what is wrong within one element is that element's error
    (`MalformedError` or `InvalidError`, with its path) in its place, and the others are as they
    are."""
    value = _loaded(data, max_bytes, max_depth)
    if not isinstance(value, list):
        return _checked(value, data, max_depth, "$")
    found: list[Json | WeftError] = []
    for index, item in enumerate(cast("list[Any]", value)):
        try:
            found.append(_checked(item, data, max_depth, child_path("$", index)))
        except WeftError as error:
            found.append(error)
    return found


def _loaded(data: bytes, max_bytes: int, max_depth: int) -> Any:
    """The value of a text; what the reader alone can see in it is a `Fault` in its place."""
    text = decode(data, max_bytes, "JSON")
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=read_int,
            parse_float=read_float,
            parse_constant=not_finite,
        )
    except json.JSONDecodeError as error:
        raise malformed(
            f"the text is not JSON: {error.msg} (line {error.lineno}, column {error.colno})",
            "NOT_JSON",
        ) from None
    except RecursionError:
        raise too_deep(max_depth, "$") from None


def _checked(value: Any, data: bytes, max_depth: int, path: str) -> Json:
    """`value`, which stands at `path`, without faults and lone surrogates. Raises `parse_json`'s
    errors."""
    raise_faults(_find_faults(value, max_depth, path), "JSON")
    if _SURROGATE_ESCAPE.search(data):
        value = _scrubbed(value, path)
    return cast("Json", value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict; a key that occurs twice gets a fault as its value, found by the walk later (the hook
    does not know its path)."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                result[key] = duplicate_key(key)
            seen.add(key)
    return result


def _find_faults(root: Any, max_depth: int, top: str) -> list[tuple[str, Fault]]:
    """All faults with their paths (`top`: that of `root`), in document order. Iterative: depth is
    what is being checked."""
    if isinstance(root, Fault):
        return [(top, root)]
    found: list[tuple[str, Fault]] = []
    # A place is (parent place, key): paths are spelt out only for faults.
    stack: list[tuple[Any, _Place, int]] = [(root, None, 1)]
    while stack and len(found) < MAX_FAULTS:
        value, place, depth = stack.pop()
        if not isinstance(value, (dict, list)):
            if isinstance(value, Fault):
                found.append((_path(place, top), value))
            continue
        if depth > max_depth:
            raise too_deep(max_depth, _path(place, top))
        pairs: list[tuple[Any, Any]]
        if isinstance(value, dict):
            pairs = list(cast("dict[str, Any]", value).items())
        else:
            pairs = list(enumerate(cast("list[Any]", value)))
        for key, item in reversed(pairs):
            if isinstance(item, (dict, list, Fault)):
                stack.append((cast("object", item), (place, key), depth + 1))
    return found


_Place: TypeAlias = "tuple[_Place, str | int] | None"


def _path(place: Any, path: str) -> str:
    keys: list[str | int] = []
    while place is not None:
        place, key = place
        keys.append(key)
    for key in reversed(keys):
        path = child_path(path, key)
    return path


def _scrubbed(value: Any, path: str) -> Any:
    """`value` without lone surrogates, at any depth (depth is bounded by now)."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_scrubbed(item, child_path(path, index)) for index, item in enumerate(items)]
    if isinstance(value, dict):
        result: dict[str, Any] = {}
        for key, item in cast("dict[str, Any]", value).items():
            clean = scrub(key)
            if clean in result:
                raise_faults([(child_path(path, clean), duplicate_key(clean))], "JSON")
            result[clean] = _scrubbed(item, child_path(path, clean))
        return result
    return value
