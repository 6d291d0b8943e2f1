"""Tasks past their deadline: as many of them as one commit can fail, and what their documents say.

The commit takes each task document over from its worker, in its own batch and together with the
dead letter (`takeover`). So a decision may fail only as many as fit; `domain/effects` sends a timer
for the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.failure import Failure
from orchestrator.domain.inputs import Overdue
from orchestrator.domain.workflow import TaskType, Workflow

READ_AT_ONCE = 100
"""Overdue tasks whose documents are read for one decision."""
AT_ONCE = 30
"""Overdue tasks that one commit fails: two operations of its batch each, beside state, history and
at most 30 outbox documents."""
AT_ONCE_WITH_MAPS = 4
"""The same, where a commit may also hold 60 documents of item statuses."""
DOCUMENT_BYTES = 512 * 1024
"""What the documents of these tasks may weigh together; each is written once, and its attempts
once more with its dead letter. At least one goes."""


def inputs(workflow: Workflow, found: Sequence[tuple[int, dict[str, Any] | None]]) -> list[Overdue]:
    """`Overdue` for the first of `found` (task, its document without a result) that fit."""
    maps = any(task.type is TaskType.MAP for task in workflow.tasks)
    result: list[Overdue] = []
    weight = 0
    for task, doc in found[: AT_ONCE_WITH_MAPS if maps else AT_ONCE]:
        weight += 0 if doc is None else len(jsonvalues.dumps(doc))
        if result and weight > DOCUMENT_BYTES:
            break
        attempt = 0 if doc is None else doc["attempt"]
        result.append(Overdue(task=task, attempt=attempt, cause=last_error(doc)))
    return result


def last_error(doc: dict[str, Any] | None) -> Failure | None:
    """How the last attempt that ended failed, by its task document."""
    for entry in reversed((doc or {}).get("attempts", ())):
        if "error" in entry:
            return Failure.from_doc(entry["error"])
    return None
