"""From a typed `Query` to Cosmos SQL, and from the rows of several ranges to one ordered list.

Values travel as parameters only; the text depends on the query's shape alone. Paging is by keyset,
never by the service's continuation: those of ordered queries over several ranges lose rows. Nor is
the SDK's way over several ranges used: for a key prefix it joins the ranges' rows without sorting
them, and elsewhere it asks for a query plan each time and repeats rows when a range is split.
Instead each range is asked for its first rows, and they are merged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.adapters.document_rules import MAX_INT, check_partition
from orchestrator.domain.topology import ContainerSpec
from orchestrator.ports import BadDocument, Document, Query, Where

_FIELD: Final = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]{1,256}')
"""Property names may hold anything (`tag:cost-centre`) but what ends or escapes a quoted name."""
_OPERATORS: Final = frozenset({"=", "<", "<=", ">", ">="})
_SYSTEM: Final = frozenset({"_rid", "_self", "_etag", "_ts", "_attachments", "_lsn", "_metadata"})


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with its parameters, as the SDK takes them."""

    text: str
    parameters: list[dict[str, Any]]


class _Builder:
    def __init__(self) -> None:
        self.terms: list[str] = []
        self.parameters: list[dict[str, Any]] = []

    def value(self, value: str | int | bool) -> str:
        _check_value(value)
        name = f"@p{len(self.parameters)}"
        self.parameters.append({"name": name, "value": value})
        return name

    def add(self, field: str, op: str, value: str | int | bool) -> None:
        self.terms.append(f"{_path(field)} {op} {self.value(value)}")

    def where(self) -> str:
        return f" WHERE {' AND '.join(self.terms)}" if self.terms else ""


def compile_count(spec: ContainerSpec, query: Query) -> Statement:
    """SQL giving how many documents there are, `limit` aside. Raises as `compile_query`, and
    `ValueError` unless the partition is whole."""
    if len(query.partition or ()) != len(spec.partition):
        raise ValueError("documents are counted in one partition")
    sql, _ = _conditions(spec, query)
    return Statement(f"SELECT VALUE COUNT(1) FROM c{sql.where()}", sql.parameters)


def compile_query(spec: ContainerSpec, query: Query) -> Statement:
    """SQL giving whole documents in order. Raises `BadDocument` for a partition, field or value
    that no document can have, `ValueError` for a limit below 1."""
    sql, order = _conditions(spec, query)
    return Statement(f"SELECT * FROM c{sql.where()} ORDER BY {order}", sql.parameters)


def _conditions(spec: ContainerSpec, query: Query) -> tuple[_Builder, str]:
    """What documents must meet, and their order."""
    if query.limit < 1:
        raise ValueError(f"limit {query.limit}: at least 1")
    partition = query.partition or ()
    check_partition(spec, partition, prefix=True)
    sql = _Builder()
    # The key is in the text too: routing by a prefix has returned other partitions' rows.
    for name, value in zip(spec.partition, partition, strict=False):
        sql.add(name, "=", value)
    for where in query.where:
        if where.op not in _OPERATORS:
            raise BadDocument(f"no such comparison: {where.op!r:.80}")
        sql.add(where.field, where.op, where.value)
    way = "DESC" if query.descending else "ASC"
    if query.order_by == "id":
        order = f"{_path('id')} {way}"
        if query.after is not None:
            _check_value(query.after[0])
            sql.add("id", "<" if query.descending else ">", query.after[1])
    else:
        order = f"{_path(query.order_by)} {way}, {_path('id')} {way}"
        _order_terms(sql, query)
    return sql, order


def _order_terms(sql: _Builder, query: Query) -> None:
    """Numbers before texts, documents with anything else left out; then what is behind `after`."""
    path = _path(query.order_by)
    kind = _known_kind(query)
    if kind is None:
        sql.terms.append(f"(IS_NUMBER({path}) OR IS_STRING({path}))")
    if query.after is None:
        return
    value, id = query.after
    sign = "<" if query.descending else ">"
    at, last = sql.value(value), sql.value(id)
    beyond = f"{path} {sign} {at} OR ({path} = {at} AND {_path('id')} {sign} {last})"
    # A comparison only sees values of its own type, so the other type's rows are asked for too.
    if kind is None and isinstance(value, str) == query.descending:
        beyond += f" OR {'IS_NUMBER' if query.descending else 'IS_STRING'}({path})"
    sql.terms.append(f"({beyond})")


def _known_kind(query: Query) -> type | None:
    """The type of the order property if a filter on it says so: then the text stays lean."""
    for where in query.where:
        if where.field == query.order_by and not isinstance(where.value, bool):
            return str if isinstance(where.value, str) else int
    return None


def _path(field: str) -> str:
    if not _FIELD.fullmatch(field):
        raise BadDocument(f"not a property that can be queried: {field!r:.80}")
    return f'c["{field}"]'


def _check_value(value: object) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadDocument(f"not valid Unicode: {value!r:.80}") from None
    elif not isinstance(value, int) or not -MAX_INT - 1 <= value <= MAX_INT:
        raise BadDocument(f"queries compare with text, 64-bit integers and booleans: {value!r:.80}")


def belongs(spec: ContainerSpec, query: Query, row: Mapping[str, Any]) -> bool:
    """Whether a row is of the partition and tenant that were asked for."""
    for name, value in zip(spec.partition, query.partition or (), strict=False):
        if row.get(name) != value:
            return False
    return all(row.get("tenantId") == value for value in _tenants(query.where))


def _tenants(where: Iterable[Where]) -> list[object]:
    return [one.value for one in where if one.field == "tenantId" and one.op == "="]


def merge(query: Query, lists: Sequence[Sequence[Document]]) -> list[Document]:
    """The first `limit` documents of several ordered lists, in the order of the query."""
    documents = [document for part in lists for document in part]
    if len(lists) > 1:
        documents.sort(key=lambda found: _rank(query.order_by, found), reverse=query.descending)
    return documents[: query.limit]


def _rank(field: str, document: Document) -> tuple[bool, Any, str]:
    value = document.body[field]
    return isinstance(value, str), value, document.id


def to_document(row: Mapping[str, Any]) -> Document:
    """A stored item without the service's own properties."""
    body = {name: value for name, value in row.items() if name not in _SYSTEM}
    return Document(body["id"], body, row["_etag"])


def intersection(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where two feed ranges of the SDK overlap; None if they do not.

    Ranges are of effective partition keys (upper-case hexadecimal text, compared as text), from
    `min` up to but without `max`. Raises `KeyError` if the SDK writes them differently one day.
    """
    first, second = one["Range"], other["Range"]
    low, high = max(first["min"], second["min"]), min(first["max"], second["max"])
    if low >= high:
        return None
    return {
        "Range": {"min": low, "max": high, "isMinInclusive": True, "isMaxInclusive": False},
    }
