"""The query shapes that our adapter sends, parsed and evaluated; anything else is a syntax error.

    SELECT * FROM c [WHERE condition] ORDER BY path ASC|DESC {, path ASC|DESC}
    SELECT VALUE COUNT(1) FROM c [WHERE condition]
    condition  AND, OR, parentheses, IS_NUMBER(path), IS_STRING(path), path op @parameter
    path       c["name"]

Literals are refused on purpose: values must be parameters. As documented for the query language,
comparing values of different types gives undefined, which is not true; so does a missing property.
Only the number and string order that our queries rely on is implemented.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_TOKEN = re.compile(
    r"\s*(?:(?P<path>c\[\"[^\"\\]+\"\])|(?P<parameter>@[a-z][a-z0-9]*)"
    r"|(?P<op><=|>=|=|<|>)|(?P<word>[A-Za-z_]+|\*|1\b)|(?P<mark>[(),]))"
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_COUNT = (("word", "COUNT"), ("mark", "("), ("word", "1"), ("mark", ")"))

Row = dict[str, Any]
Condition = Callable[[Row], bool]


class BadQuery(Exception):
    """400: not a query of ours."""


@dataclass(frozen=True, slots=True)
class Select:
    """A parsed query."""

    matches: Condition
    order: list[tuple[str, bool]]  # property, descending
    fields: frozenset[str]  # properties that the condition names
    counts: bool = False  # the number of rows is asked for

    def sort(self, rows: list[Row]) -> list[Row]:
        """Ordered rows; those without an order property are left out, as an index would."""
        rows = [row for row in rows if all(name in row for name, _ in self.order)]
        for name, descending in reversed(self.order):
            rows.sort(key=lambda row: _rank(row[name]), reverse=descending)
        return rows


def parse(text: str, parameters: list[dict[str, Any]]) -> Select:
    """Raises `BadQuery`."""
    return _Parser(text, {one["name"]: one["value"] for one in parameters}).select()


class _Parser:
    def __init__(self, text: str, values: dict[str, Any]) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._values = values
        self._unused = set(values)
        self._fields: set[str] = set()

    def select(self) -> Select:
        self._expect("word", "SELECT")
        counts = self._skip("word", "VALUE")
        for kind, part in _COUNT if counts else (("word", "*"),):
            self._expect(kind, part)
        for word in ("FROM", "c"):
            self._expect("word", word)
        matches: Condition = lambda row: True  # noqa: E731
        if self._skip("word", "WHERE"):
            matches = self._any()
        order: list[tuple[str, bool]] = []
        if not counts:
            self._expect("word", "ORDER")
            self._expect("word", "BY")
            order.append(self._order())
            while self._skip("mark", ","):
                order.append(self._order())
        if self._at != len(self._tokens):
            raise BadQuery(f"unexpected {self._tokens[self._at][1]!r}")
        if self._unused:
            raise BadQuery(f"parameters never used: {sorted(self._unused)}")
        return Select(matches, order, frozenset(self._fields), counts)

    def _order(self) -> tuple[str, bool]:
        name = self._path()
        word = self._take("word")
        if word not in ("ASC", "DESC"):
            raise BadQuery(f"unexpected {word!r}")
        return name, word == "DESC"

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._skip("word", "OR"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)

    def _all(self) -> Condition:
        parts = [self._atom()]
        while self._skip("word", "AND"):
            parts.append(self._atom())
        return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)

    def _atom(self) -> Condition:
        if self._skip("mark", "("):
            inner = self._any()
            self._expect("mark", ")")
            return inner
        for function, kind in (("IS_NUMBER", "number"), ("IS_STRING", "string")):
            if self._skip("word", function):
                self._expect("mark", "(")
                name = self._path()
                self._expect("mark", ")")
                return lambda row: name in row and type_of(row[name]) == kind
        name = self._path()
        self._fields.add(name)
        compare = _COMPARE[self._take("op")]
        parameter = self._take("parameter")
        if parameter not in self._values:
            raise BadQuery(f"no value for {parameter}")
        self._unused.discard(parameter)
        value = self._values[parameter]
        kind = type_of(value)
        return lambda row: name in row and type_of(row[name]) == kind and compare(row[name], value)

    def _path(self) -> str:
        return self._take("path")[3:-2]

    def _take(self, kind: str) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at][0] != kind:
            found = self._tokens[self._at][1] if self._at < len(self._tokens) else "the end"
            raise BadQuery(f"expected a {kind}, found {found!r}")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _expect(self, kind: str, text: str) -> None:
        if self._take(kind) != text:
            raise BadQuery(f"expected {text!r}")

    def _skip(self, kind: str, text: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == (kind, text):
            self._at += 1
            return True
        return False


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadQuery(f"syntax error near {text[at : at + 20]!r}")
        at = match.end()
        yield str(match.lastgroup), match[str(match.lastgroup)]


def type_of(value: Any) -> str:
    """The JSON type, booleans apart from numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


_TYPES = ("null", "boolean", "number", "string", "array", "object")


def _rank(value: Any) -> tuple[int, Any]:
    kind = type_of(value)
    return _TYPES.index(kind), value if kind in ("boolean", "number", "string") else 0
