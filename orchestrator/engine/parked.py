"""Tasks that occupy no worker although a worker has taken them: `workflow` tasks, which wait for
a child, and `wait`s inside maps. Their document is WAITING, without a lease; a message about it
only means that somebody should look (`waiting`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.domain import kin
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.workflow import TaskSpec
from orchestrator.engine.aggregate import Aggregate


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
    """Whether a task document waits, or has ended with a child that is still to be stopped."""
    ended = "endedAt" in doc
    return doc["status"] == TaskStatus.WAITING.value or (ended and kin.has_open_child(doc))
