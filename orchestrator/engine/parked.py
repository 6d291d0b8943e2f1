"""Tasks that a worker has taken and that occupy none: they wait.

`workflow` and `durable` tasks wait for a child or an orchestration; `wait`s and `signal`s inside
maps for a time or a signal. Their document is WAITING, without a lease. A message about one only
means that somebody should look at it (`waiting`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.domain import kin
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import TaskSpec, TaskType
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import NotFound, PreconditionFailed

NO_ATTEMPT: Final = frozenset({TaskType.WAIT, TaskType.SIGNAL})
"""Types of map items that are parked without an attempt, and given back while they wait."""
MISSING_LOOKS: Final = 3
"""Looks of the sweeper, a silence apart, after which a child (or an orchestration) that is not
there is believed not to exist: longer than any replica lags and any process stands still before it
starts one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """What was found of such a task. `doc` is a fresh read, or, with `etag` None, not stored yet.
    `over`: the execution does not wait for it any more."""

    aggregate: Aggregate
    spec: TaskSpec  # for a map item, the map's `do`
    position: int
    item: int | None
    doc: dict[str, Any]
    etag: str | None
    over: bool = False
    gives_back: bool = False  # the execution fails fast


def is_parked(doc: dict[str, Any]) -> bool:
    """Whether a task document waits, or has ended with something that is still to be stopped."""
    ended = "endedAt" in doc
    return doc["status"] == TaskStatus.WAITING.value or (ended and kin.has_open_child(doc))


def is_overdue(doc: dict[str, Any] | None, now: int) -> bool:
    """Whether a task document waits for a signal whose time is over."""
    if doc is None or doc["status"] != TaskStatus.WAITING.value or "awaits" not in doc:
        return False
    return bool(doc.get("dueAt", now + 1) <= now)


async def rewrite(engine: Engine, found: Parked, body: dict[str, Any]) -> Parked | None:
    """Store the document `body`; what is found then. None: somebody was faster and may have it, the
    sweeper looks again at what it left."""
    assert found.etag is not None
    partition = found.aggregate.partition
    try:
        etag = await patiently(
            engine, engine.store.replace, EXECUTIONS, partition, body, if_match=found.etag
        )
    except (PreconditionFailed, NotFound, Unclear):
        engine.metrics.count("weft_claims_refused_total", "lostRace")
        return None
    return replace(found, doc=body, etag=etag)
