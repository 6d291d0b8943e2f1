"""What the API shows of signals."""

from __future__ import annotations

from enum import StrEnum

from orchestrator.engine.views import Instant, View


class SignalStatus(StrEnum):
    """Where a signal is."""

    RECEIVED = "RECEIVED"  # stored, the orchestrator has not looked yet
    BUFFERED = "BUFFERED"  # no task has taken it so far
    CONSUMED = "CONSUMED"  # its payload is the output of `task`
    RAISED = "RAISED"  # handed to the orchestration of `task`
    UNMATCHED = "UNMATCHED"  # the execution has ended, and no task took it


class SignalResult(View):
    """`created` is false if the same signal had been sent before."""

    id: str
    name: str
    execution: str
    received_at: Instant
    created: bool


class SignalView(View):
    """A signal in a list. `bytes`: of its payload, which the output of `task` shows."""

    id: str
    name: str
    received_at: Instant
    sent_by: str = ""
    bytes: int
    status: SignalStatus
    task: str | None = None
    item: int | None = None
    """The item of that task, if it is a map."""
