"""Weft's own code workflow: one action on all that a filter finds, part by part.

A part is two steps, so that the history says what belongs to it before anything is done: done
again after a crash, it is the same part, and what is done already counts once. What is to be done,
and in whose name, the steps read from the execution itself, not from here.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from activities.code.context import CodeContext, platform_step
from activities.code.registry import CodeRegistry
from activities.code.tasks import TaskFailed
from orchestrator.domain import jsonvalues
from orchestrator.domain.built_in import BULK
from orchestrator.ports_durable import BULK_FUNCTION

PART: Final = 200
PARTS: Final = 5
"""Of one generation: each turn reads its whole history, and a part's ids are in it."""
SHOWN: Final = 1_000
SHOWN_BYTES: Final = 256 * 1024
"""Of refusals in the result; the others are counted."""
ATTEMPTS: Final = 12
LONGEST_S: Final = 60


class Run(BaseModel):
    """How far it is. The first generation is given what was submitted, of which this is a part."""

    model_config = ConfigDict(extra="ignore")

    action: str
    limit: int | None = None
    cursor: list[int | str] | None = None
    seen: int = 0
    done: int = 0
    refused: int = 0
    refusals: list[dict[str, str]] = Field(default_factory=list)
    room: int = SHOWN_BYTES

    def size(self) -> int:
        """Of the next part."""
        return PART if self.limit is None else min(PART, self.limit - self.seen)

    def add(self, told: dict[str, Any]) -> None:
        """What a part has done."""
        self.done += told["done"]
        self.refused += len(told["refused"])
        for one in told["refused"]:
            self.room -= len(jsonvalues.dumps(one))
            if len(self.refusals) < SHOWN and self.room >= 0:
                self.refusals.append(one)

    def status(self, *, more: bool) -> dict[str, Any]:
        """For people who follow it."""
        return {
            "action": self.action,
            "done": self.done,
            "refused": self.refused,
            "more": more,
        }


def bulk(ctx: CodeContext, run: Run) -> Generator[Any, Any, Any]:
    """One action on all that a filter finds."""
    ctx.set_status(run.status(more=True))
    for _ in range(PARTS):
        find = {"op": "find", "after": run.cursor, "limit": run.size()}
        found = yield from _patiently(ctx, find)
        if found["items"]:
            told = yield from _patiently(ctx, {"op": "act", "items": found["items"]})
            run.add(told)
        run.seen += len(found["items"])
        run.cursor = found["after"]
        more = run.cursor is not None
        ctx.set_status(run.status(more=more))
        if not more or run.size() == 0:
            return {**run.status(more=more), "refusals": run.refusals}
    ctx.continue_as_new(run.model_dump(mode="json"))
    return None


def _patiently(ctx: CodeContext, request: dict[str, Any]) -> Generator[Any, Any, Any]:
    """A step; while the store is away, again and again, for about eight minutes."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return (yield platform_step(ctx, BULK_FUNCTION, request))
        except TaskFailed as error:
            if not error.failure.retryable or attempt == ATTEMPTS:
                raise
        yield ctx.sleep(timedelta(seconds=min(2**attempt, LONGEST_S)))
    raise AssertionError("unreachable")


def register(registry: CodeRegistry) -> None:
    """Add it, once."""
    if BULK not in registry.names():
        registry.register(BULK, 1, bulk, input=Run, built_in=True)
