"""Waits for a file that somebody else writes, for days if need be: a loop that goes on as new.

Each look is a few events of history, and every turn reads all of it. So after some looks the
workflow begins again with an empty history, and takes along what it must know.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from activities import CodeContext, PermanentError, activity, code_workflow


class Poll(BaseModel):
    """What to wait for. `looks`: those that generations before have taken."""

    path: str
    every: str = "30s"
    at_most: int = Field(default=2_000, ge=1)
    per_generation: int = Field(default=50, ge=1)
    looks: int = 0


class Ready(BaseModel):
    """The file as it was found."""

    path: str
    bytes: int
    looks: int


class Look(BaseModel):
    """`bytes`: None while the file is not there, or is empty."""

    bytes: int | None


@activity("exports.look")
def look(path: str) -> Look:
    """Whether the file is there. Reading the disk is an activity's work, never the workflow's."""
    file = Path(path)
    return Look(bytes=(file.stat().st_size or None) if file.is_file() else None)


@code_workflow("poll-until-ready", input=Poll, output=Ready)
def poll_until_ready(ctx: CodeContext, poll: Poll) -> Generator[Any, Any, Ready | None]:
    """Look, sleep, look again."""
    looks = poll.looks
    for _ in range(poll.per_generation):
        found = yield ctx.call_activity("exports.look", poll.path)
        looks += 1
        if found["bytes"] is not None:
            return Ready(path=poll.path, bytes=found["bytes"], looks=looks)
        if looks >= poll.at_most:
            raise PermanentError(f"not there after {looks} looks", type="NeverReady")
        ctx.set_status({"looks": looks})
        yield ctx.sleep(poll.every)
    ctx.continue_as_new(poll.model_copy(update={"looks": looks}))
    return None
