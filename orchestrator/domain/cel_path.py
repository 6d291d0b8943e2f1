"""Plain paths (`input.a.b`, `tasks.x.output[0]`), evaluated without CEL.

Nearly every expression of a real workflow is a path, and CEL would first convert the whole input
to its own values. A path walks the Python values as they are. Results and errors are those that
CEL gives; a property test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.domain.cel_roots import ROOTS
from orchestrator.domain.cel_scan import KEYWORDS, Token
from orchestrator.domain.cel_tokens import string_value
from orchestrator.domain.jsonvalues import INT_MAX, child_path

Path = tuple[str, tuple[str | int, ...]]


class PathError(Exception):
    """There is nothing at the path; the text says where it ends."""


def as_path(tokens: list[Token]) -> Path | None:
    """Root and keys if the tokens are a plain path from one of `ROOTS`, else None."""
    if not tokens or tokens[0].text not in ROOTS:
        return None
    keys: list[str | int] = []
    i, size = 1, len(tokens)
    while i < size:
        rest = size - i
        if tokens[i].text == "." and rest >= 2 and tokens[i + 1].kind == "name":
            if tokens[i + 1].text in KEYWORDS:
                return None
            keys.append(tokens[i + 1].text)
            i += 2
        elif tokens[i].text == "[" and rest >= 3 and tokens[i + 2].text == "]":
            key = _literal(tokens[i + 1])
            if key is None:
                return None
            keys.append(key)
            i += 3
        else:
            return None
    if not keys and tokens[0].text in ("tasks", "execution"):
        return None  # these may be any mapping: CEL's copy is a plain object
    return tokens[0].text, tuple(keys)


def _literal(token: Token) -> str | int | None:
    if token.kind == "string":
        return string_value(token.text)
    if token.kind == "number" and token.text.isdigit() and int(token.text) <= INT_MAX:
        return int(token.text)
    return None


def walk(root: str, keys: tuple[str | int, ...], value: Any) -> Any:
    """The value at the path below `value`, itself and not a copy. Raises `PathError`."""
    for depth, key in enumerate(keys):
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is list and isinstance(key, str):
            raise PathError(f"{_shown(root, keys, depth)} is a list: it has no key '{key}'")
        if kind is not dict and kind is not list and not issubclass(kind, Mapping):
            what = "null" if value is None else "no object and no list"
            raise PathError(f"{_shown(root, keys, depth)} is {what}: it has no '{key}'")
        try:
            value = value[key]
        except KeyError:
            raise PathError(f"no such key '{key}' in {_shown(root, keys, depth)}") from None
        except IndexError:
            where = _shown(root, keys, depth)
            raise PathError(f"index {key} is outside of the list {where}") from None
    return value


def _shown(root: str, keys: tuple[str | int, ...], depth: int) -> str:
    path = root
    for key in keys[:depth]:
        path = child_path(path, key)
    return path
