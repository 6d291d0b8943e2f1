"""Prove that the history of an execution folds to its stored state."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.domain import codec
from orchestrator.domain.events import Event
from orchestrator.domain.evolve import fold
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.transitions import IllegalTransition
from orchestrator.engine import inspect
from orchestrator.engine.core import Engine
from orchestrator.engine.history import commits
from orchestrator.engine.views import VerifyReport


async def verify(engine: Engine, tenant: str, execution: str) -> VerifyReport:
    """Read the whole history, fold it, compare. Finds gaps, illegal events and any difference.
    Raises `NotFoundError`."""
    aggregate = await inspect.aggregate(engine, tenant, execution)
    found = await commits(engine, aggregate.partition, last=aggregate.state.seq)
    records = {doc["seq"]: doc for doc in found}
    problems = [
        f"commit {number} is missing from the history"
        for number in range(aggregate.state.seq + 1)
        if number not in records
    ]
    events: list[Event] = []
    for number in sorted(records):
        for doc in records[number]["events"]:
            try:
                events.append(codec.event_from_doc(doc))
            except (KeyError, ValueError, TypeError) as error:
                problems.append(f"commit {number} holds an event that cannot be read: {error}")
    if not problems:
        problems += _compare(events, aggregate.state)
    return VerifyReport(
        execution=execution,
        ok=not problems,
        events=len(events),
        commits=len(records),
        problems=problems,
    )


def _compare(events: list[Event], state: ExecutionState) -> list[str]:
    try:
        folded = fold(None, events)
    except IllegalTransition as error:
        return [f"the history holds an impossible event: {error}"]
    folded = replace(folded, seq=state.seq)
    if folded == state:
        return []
    one, other = codec.state_to_doc(folded), codec.state_to_doc(state)
    names = [name for name in {*one, *other} if one.get(name) != other.get(name)]
    return [
        f"history and state differ in {name}: {one.get(name)!r} and {other.get(name)!r}"
        for name in sorted(names) or ["maps"]
    ]
