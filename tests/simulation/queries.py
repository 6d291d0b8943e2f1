"""How values compare in queries: as SQLite and Cosmos do, whatever Python thinks."""

from __future__ import annotations

from typing import Any

from orchestrator.ports import Where


def rank(value: Any) -> tuple[int, Any]:
    """Numbers before texts, as SQLite and Cosmos sort them."""
    return (1, value) if isinstance(value, str) else (0, value)


def matches(fields: dict[str, Any], where: Where) -> bool:
    """Values of another type never match."""
    have, want = fields.get(where.field), where.value
    if isinstance(have, bool) != isinstance(want, bool):
        return False
    if isinstance(have, str) != isinstance(want, str) or not isinstance(have, str | int | float):
        return False
    match where.op:
        case "=":
            return have == want
        case "<":
            return have < want  # type: ignore[operator]
        case "<=":
            return have <= want  # type: ignore[operator]
        case ">":
            return have > want  # type: ignore[operator]
        case _:
            return have >= want  # type: ignore[operator]
