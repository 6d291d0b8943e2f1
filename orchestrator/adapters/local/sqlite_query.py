"""From a typed `Query` to one SQL statement that uses an index.

Values travel as parameters only; the text depends on the query's shape alone. Which index is used
is said here (`INDEXED BY`) and not left to the planner: without statistics it guesses, and a wrong
guess reads every document of the file.

Known limits: lists by tag or by the beginning of an id walk the tenant's index until the page is
full (measured: 1.3 and 0.25 µs for each execution passed over). SQLite's JSON functions end a text
at U+0000, so filters on properties without a column see only what is before it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from orchestrator.adapters.document_rules import MAX_INT, check_partition
from orchestrator.adapters.local.sqlite_schema import (
    ALIVE,
    COLUMN_OF,
    filter_index,
    order_index,
    property_sql,
)
from orchestrator.domain.topology import ContainerSpec
from orchestrator.ports import BadDocument, Partition, Query, Where

_FIELD: Final = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]{1,256}')
"""Names that fit between the quotes of a JSON path, which knows no escapes. The path is a parameter
too, so this is about finding the property, not about safety."""
_OPERATORS: Final = frozenset({"=", "<", "<=", ">", ">="})


def partition_text(partition: Partition) -> str:
    """The `pk` column: each value followed by U+0000, which no value contains."""
    return "".join([f"{value}\0" for value in partition])


def compile_query(spec: ContainerSpec, query: Query, now: int) -> tuple[str, list[Any]]:
    """SQL giving (id, lsn, body), and its parameters. Raises `BadDocument` for a partition, field
    or value that no document can have, `ValueError` for a limit below 1."""
    rows, values, order, order_values = _rows(spec, query, now)
    way = "DESC" if query.descending else "ASC"
    ordering = f"id {way}" if query.order_by == "id" else f"{order} {way}, id {way}"
    if query.order_by != "id":
        values += order_values
    values.append(query.limit)
    return f"SELECT id, lsn, body {rows} ORDER BY {ordering} LIMIT ?", values


def compile_count(spec: ContainerSpec, query: Query, now: int) -> tuple[str, list[Any]]:
    """SQL giving how many rows the query has, and its parameters. Raises as `compile_query`,
    and `ValueError` unless the partition is whole."""
    if len(query.partition or ()) != len(spec.partition):
        raise ValueError("documents are counted in one partition")
    rows, values, _, _ = _rows(spec, query, now)
    return f"SELECT COUNT(*) FROM (SELECT 1 {rows} LIMIT ?)", [*values, query.limit]


def _rows(spec: ContainerSpec, query: Query, now: int) -> tuple[str, list[Any], str, list[Any]]:
    """From where and which, with its parameters; what it is ordered by, with its."""
    if query.limit < 1:
        raise ValueError(f"limit {query.limit}: at least 1")
    terms: list[str] = []
    values: list[Any] = []
    partition = query.partition or ()
    check_partition(spec, partition, prefix=True)
    whole = len(partition) == len(spec.partition)
    tenant = any(where.field == "tenantId" and where.op == "=" for where in query.where)
    by_time = query.order_by == "createdAt"
    tenant_only = len(partition) == 1 and spec.partition[0] == "tenantId"
    if whole and not (tenant_only and by_time):
        terms.append("pk = ?")
        values.append(partition_text(partition))
    elif tenant_only:
        # The column and not pk, so that the indexes by creation time apply.
        terms.append("tenant_id = ?")
        values += partition
        tenant, whole = True, False
    elif partition:
        prefix = partition_text(partition)
        terms.append("pk >= ? AND pk < ?")
        values += [prefix, prefix[:-1] + "\x01"]
    for where in query.where:
        _add_filter(spec, terms, values, where)
    order, order_values = _expression(spec, query.order_by)
    if query.order_by != "id":
        terms.append(f"{order} IS NOT NULL")
        values += order_values
        if query.order_by not in COLUMN_OF:
            terms.append("json_type(body, ?) IN ('text', 'integer', 'real')")
            values.append(_path(query.order_by))
    if query.after is not None:
        for part in query.after:
            _check_value(part)
        sign = "<" if query.descending else ">"
        if query.order_by == "id":
            terms.append(f"id {sign} ?")
            values.append(query.after[1])
        else:
            terms.append(f"({order}, id) {sign} (?, ?)")
            values += [*order_values, *query.after]
    terms.append(ALIVE)
    values.append(now)
    index = _index(spec, query, whole=whole, tenant=tenant)
    rows = f"FROM docs_{spec.name} {index} WHERE {' AND '.join(terms)}"
    return rows, values, order, order_values


def _index(spec: ContainerSpec, query: Query, *, whole: bool, tenant: bool) -> str:
    table = f"docs_{spec.name}"
    if whole:
        return f"INDEXED BY {table}_key"
    if query.order_by == "sweepAt":
        return f"INDEXED BY {table}_sweep"
    if query.order_by in spec.orders and not tenant:
        return f"INDEXED BY {order_index(spec.name, query.order_by)}"
    if query.order_by == "createdAt" and tenant:
        equal = {where.field for where in query.where if where.op == "="}
        filters = [field for field in spec.filters if field in equal]
        if filters and "type" in equal:
            return f"INDEXED BY {filter_index(spec.name, filters[0])}"
        return f"INDEXED BY {table}_created"
    return ""


def _expression(spec: ContainerSpec, field: str) -> tuple[str, list[Any]]:
    """The SQL for a body property, and its parameters."""
    column = COLUMN_OF.get(field)
    if column is not None:
        return column, []
    if field in spec.filters or field in spec.orders:
        return property_sql(field), []
    return "json_extract(body, ?)", [_path(field)]


def _path(field: str) -> str:
    if not _FIELD.fullmatch(field):
        raise BadDocument(f"not a property that can be queried: {field!r:.80}")
    return f'$."{field}"'


def _check_value(value: object) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadDocument(f"not valid Unicode: {value!r:.80}") from None
    elif not isinstance(value, int) or not -MAX_INT - 1 <= value <= MAX_INT:
        raise BadDocument(f"queries compare with text, 64-bit integers and booleans: {value!r:.80}")


def _add_filter(spec: ContainerSpec, terms: list[str], values: list[Any], where: Where) -> None:
    """As in Cosmos, values of another type never match: SQLite would call every number smaller
    than every text, and true equal to 1."""
    _check_value(where.value)
    if where.op not in _OPERATORS:
        raise BadDocument(f"no such comparison: {where.op!r:.80}")
    if isinstance(where.value, bool):
        path = _path(where.field)
        terms.append(
            f"json_type(body, ?) IN ('true', 'false') AND json_extract(body, ?) {where.op} ?"
        )
        values += [path, path, where.value]
        return
    expression, parameters = _expression(spec, where.field)
    terms.append(f"{expression} {where.op} ?")
    values += [*parameters, where.value]
    text = isinstance(where.value, str)
    if where.field in COLUMN_OF:
        if where.op != "=":  # equality compares types too
            kinds = "= 'text'" if text else "IN ('integer', 'real')"
            terms.append(f"typeof({expression}) {kinds}")
    else:
        kinds = "= 'text'" if text else "IN ('integer', 'real')"
        terms.append(f"json_type(body, ?) {kinds}")
        values.append(_path(where.field))
