"""Which parts of a value a schema calls sensitive (`x-sensitive: true`), and it without them.

A keyword that holds for some values only (`if`, `anyOf`, a pattern of names) counts as if it held:
a value that fits no branch must not be shown for it. So does a reference that leads nowhere. A mark
covers everything below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from orchestrator.domain.cel_patterns import BadPattern, found
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.redaction import MASK

KEYWORD: Final = "x-sensitive"

_SAME_VALUE: Final = ("allOf", "anyOf", "oneOf")
_SAME_VALUE_ONE: Final = ("if", "then", "else", "not")
_EVERY_ITEM: Final = ("contains", "unevaluatedItems")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class Marks:
    """What is sensitive in a value. This one: nothing."""

    sensitive: bool = False
    """The whole value is."""

    def at(self, step: str | int | None) -> Marks:
        """Of the field or item there; None: of any."""
        return NONE

    def __bool__(self) -> bool:
        """Whether anything is, here or below."""
        return False


class _All(Marks):
    sensitive = True

    def at(self, step: str | int | None) -> Marks:
        return ALL

    def __bool__(self) -> bool:
        return True


NONE: Final = Marks()
ALL: Final = _All()


def of_schema(schema: Json) -> Marks:
    """The marks of values that a JSON Schema describes."""
    return _of(schema, [schema]) if _mentions(schema) else NONE


class Fields(Marks):
    """Of an object with these fields, or a list with these items; others have none. `every`: of
    all of them."""

    def __init__(self, below: Mapping[str | int, Marks], every: Marks = NONE) -> None:
        self._below = {key: marks for key, marks in below.items() if marks}
        self._every = every

    def at(self, step: str | int | None) -> Marks:
        """As said."""
        if step is None:
            return ALL if self._below else self._every
        return self._below.get(step, self._every)

    def __bool__(self) -> bool:
        return bool(self._below) or bool(self._every)


def masked(marks: Marks, value: Json) -> Json:
    """`value` with `MASK` in place of each part that is sensitive. Null stays: it tells nothing.
    The same object if there are no marks."""
    if not marks or value is None:
        return value
    if marks.sensitive:
        return MASK
    if isinstance(value, dict):
        return {key: masked(marks.at(key), item) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(marks.at(index), item) for index, item in enumerate(value)]
    return value


def texts(marks: Marks, value: Json) -> Iterator[str]:
    """The texts within the sensitive parts of a value."""
    if isinstance(value, str) and marks.sensitive:
        yield value
    elif isinstance(value, dict) and marks:
        for key, item in value.items():
            yield from texts(marks.at(key), item)
    elif isinstance(value, list) and marks:
        for index, item in enumerate(value):
            yield from texts(marks.at(index), item)


# --- schemas --------------------------------------------------------------------------------------


class _Schema(Marks):
    """Of a value that all of `nodes` may describe; each is a subschema of `root`."""

    def __init__(self, root: Json, nodes: list[dict[str, Json]]) -> None:
        self._root = root
        self._nodes = nodes
        self._any: bool | None = None

    def at(self, step: str | int | None) -> Marks:
        return _of(self._root, [part for node in self._nodes for part in _below(node, step)])

    def __bool__(self) -> bool:
        if self._any is None:
            self._any = self._find()
        return self._any

    def _find(self) -> bool:
        seen: set[int] = set()
        waiting: list[Json] = list(self._nodes)
        while waiting:
            nodes = _closure(self._root, [waiting.pop()])
            if nodes is None:
                return True
            for node in nodes:
                if id(node) in seen:
                    continue
                seen.add(id(node))
                waiting.extend(_below(node, None))
        return False


def _of(root: Json, parts: list[Json]) -> Marks:
    nodes = _closure(root, parts)
    if nodes is None:
        return ALL
    return _Schema(root, nodes) if nodes else NONE


def _closure(root: Json, parts: Iterable[Json]) -> list[dict[str, Json]] | None:
    """`parts` and all schemas of the same value that they lead to; None: one is marked."""
    nodes: dict[int, dict[str, Json]] = {}
    waiting = list(parts)
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict) or id(node) in nodes:
            continue
        if node.get(KEYWORD) not in (None, False):
            return None
        nodes[id(node)] = node
        for word in _SAME_VALUE:
            waiting.extend(_list(node.get(word)))
        waiting.extend(node[word] for word in _SAME_VALUE_ONE if word in node)
        waiting.extend(_object(node.get("dependentSchemas")).values())
        for word in _REFERENCES:
            target = node.get(word)
            if isinstance(target, str):
                leads = _resolved(root, target)
                if not leads:
                    return None
                waiting.extend(leads)
    return list(nodes.values())


def _below(node: Mapping[str, Json], step: str | int | None) -> list[Json]:
    """The schemas in `node` of the field or item `step`; None: of any."""
    parts: list[Json] = []
    if not isinstance(step, int):
        named = _object(node.get("properties"))
        patterns = _object(node.get("patternProperties"))
        parts.extend(one for key, one in named.items() if step in (None, key))
        parts.extend(one for key, one in patterns.items() if _fits(key, step))
        if step is None or not parts:
            parts.append(node.get("additionalProperties"))
        parts.append(node.get("unevaluatedProperties"))
    if not isinstance(step, str):
        first = _list(node.get("prefixItems"))
        parts.extend(first if step is None else first[step : step + 1])
        if step is None or step >= len(first):
            parts.append(node.get("items"))
        parts.extend(node.get(word) for word in _EVERY_ITEM)
    return parts


def _fits(pattern: str, step: str | None) -> bool:
    if step is None:
        return True
    try:
        return found(pattern, step)
    except BadPattern:
        return True


def _resolved(root: Json, reference: str) -> list[Json]:
    """What a local reference leads to: by pointer, by anchor, or the whole."""
    fragment = unquote(reference.partition("#")[2])
    if not fragment:
        return [root]
    if not fragment.startswith("/"):
        return [
            one
            for one in _dicts(root)
            if fragment in (one.get("$anchor"), one.get("$dynamicAnchor"))
        ]
    node: Json = root
    for part in fragment[1:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return []
    return [node]


def _mentions(value: Json) -> bool:
    return any(one.get(KEYWORD) not in (None, False) for one in _dicts(value))


def _dicts(value: Json) -> Iterator[dict[str, Json]]:
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            yield one
            stack.extend(one.values())
        elif isinstance(one, list):
            stack.extend(one)


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}
