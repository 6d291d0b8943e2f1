"""What an activity knows about the attempt it is: ids, time left, cancellation, a logger.

Without the idempotency key an activity cannot be made safe against at-least-once delivery; without
`cancelled` a plain function in a thread cannot learn that nobody waits for it any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final

from activities.errors import Cancelled
from orchestrator.domain import redaction
from orchestrator.domain.egress import Egress
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import dumps, loads
from orchestrator.ports import ActivityCall

MAX_HEARTBEAT_BYTES: Final = 16 * 1024  # details are kept in the task's document, beside the lease


def wall_ms() -> int:
    """Wall clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000


class ActivityLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the ids of the attempt to every record as structured extras; never a payload."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Merge the extras of the call with the ids; the ids win."""
        given = {
            name: redaction.current().value(value)
            if isinstance(value, str | dict | list)
            else value
            for name, value in (kwargs.get("extra") or {}).items()
        }
        kwargs["extra"] = {**given, **(self.extra or {})}
        return msg, kwargs


class Context:
    """Handed to an activity as its second argument. Usable from any thread."""

    def __init__(
        self,
        call: ActivityCall,
        *,
        now: Callable[[], int] = wall_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call = call
        self._now = now
        self._monotonic = monotonic
        self._ends_at = monotonic() + call.timeout_ms / 1000
        self._logger: ActivityLogger | None = None

    @classmethod
    def for_test(cls, activity: str = "test.activity", **fields: Any) -> Context:
        """A context to call an activity with in a test; `fields` are those of `ActivityCall`."""
        defaults: dict[str, Any] = {
            "input": None,
            "tenant": "test",
            "execution": "execution-1",
            "task": "task",
            "item": None,
            "attempt": 1,
            "idempotency_key": "test-key",
            "timeout_ms": 30_000,
        }
        return cls(ActivityCall(activity=activity, **(defaults | fields)))

    @property
    def activity(self) -> str:
        """Registered name of the activity."""
        return self._call.activity

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of the same task; pass it downstream."""
        return self._call.idempotency_key

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self._call.attempt

    @property
    def tenant(self) -> str:
        """Tenant that the execution belongs to."""
        return self._call.tenant

    @property
    def execution_id(self) -> str:
        """Id of the execution."""
        return self._call.execution

    @property
    def task_id(self) -> str:
        """Id of the task in its workflow."""
        return self._call.task

    @property
    def item_index(self) -> int | None:
        """Position of the map item, from 0; None outside a map."""
        return self._call.item

    @property
    def traceparent(self) -> str:
        """W3C trace context to pass downstream; empty if there is none."""
        return self._call.traceparent

    @property
    def egress(self) -> Egress:
        """Where requests of this tenant may go. The `http` activity keeps to it; an activity with
        a client of its own should, too."""
        return self._call.egress

    @property
    def remaining(self) -> float:
        """Seconds until this attempt times out, never negative."""
        return max(0.0, self._ends_at - self._monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more (timed out, lease lost, execution
        stopped). A plain function has to look: its thread cannot be stopped from outside."""
        return self._call.cancelled

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` if `cancelled`."""
        if self._call.cancelled:
            raise Cancelled("the attempt was cancelled")

    def heartbeat(self, details: Any = None) -> None:
        """Report progress. `details`: small JSON (at most 16 KiB) that says how far it got.

        A cancelled attempt reports nothing. Raises `ValueError` if `details` is no JSON
        (`NotJson`, with the path) or too large.
        """
        kept: Json = None
        if details is not None:
            text = dumps(details)
            if len(text) > MAX_HEARTBEAT_BYTES:
                raise ValueError(f"heartbeat details exceed {MAX_HEARTBEAT_BYTES} bytes")
            kept = loads(text)  # a copy: the caller may go on changing its own
        if not self._call.cancelled:
            self._call.beat(self._now(), kept)

    @property
    def logger(self) -> ActivityLogger:
        """Logger `weft.activity.NAME` whose records carry the ids of this attempt."""
        if self._logger is None:
            self._logger = ActivityLogger(
                logging.getLogger(f"weft.activity.{self._call.activity}"), self.log_extra()
            )
        return self._logger

    def log_extra(self) -> dict[str, Any]:
        """The ids of this attempt, as extras of a log record."""
        return {
            "activity": self._call.activity,
            "tenant": self._call.tenant,
            "execution": self._call.execution,
            "task": self._call.task,
            "item": self._call.item,
            "attempt": self._call.attempt,
        }
