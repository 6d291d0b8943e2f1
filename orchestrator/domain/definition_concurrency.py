"""`concurrency`: how many executions of a workflow may run at the same time."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from orchestrator.domain.definition_types import Model

MAX_CONCURRENCY: Final = 500
"""What a group's document and a look at all of its holders can bear."""


class Concurrency(Model):
    """Of one workflow, or, with `key`, of those executions whose keys are equal."""

    limit: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] = 1
    key: Any = None
    """Template over `input` and `execution.tags`, evaluated when an execution is submitted."""
    policy: Literal["queue", "skip", "cancelPrevious"] = "queue"
    """What becomes of one that finds no place: it waits, it ends as CANCELLED, or it cancels those
    that were there before and takes the place of the first that has ended."""
