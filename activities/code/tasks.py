"""What a code workflow waits for, and what became of it.

The generator yields these; the driver yields the Durable task inside and hands back the value. They
can be asked again later, so that a loser of `any` may be waited for once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from orchestrator.domain import jsonvalues
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.orchestration import BadEnvelope, SignalEnvelope
from orchestrator.domain.orchestration_result import failure_from
from orchestrator.domain.payload import Payload
from orchestrator.ports_durable import Pending, Replay

T = TypeVar("T")

STEP_FAILED = "STEP_FAILED"
"""Type of a failure that Durable reports and no code of Weft has put into words: its function is
not deployed, or the process died too often."""


class TaskFailed(Exception):
    """Something that was waited for failed. `failure` has type, message and causes; not caught, it
    ends the workflow with them."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.type}: {failure.message}")
        self.failure = failure

    @property
    def type(self) -> str:
        """Name of the failure: an exception's class, or one of Weft's (`TIMEOUT`, …)."""
        return self.failure.type


class ContinueAsNew(Exception):
    """A workflow went on after `continue_as_new`."""


def failure_in(error: Exception) -> Failure:
    """What Durable's exception stands for."""
    found = failure_from(str(error))
    return found or Failure(type=STEP_FAILED, message=str(error)).bounded()


class Task(Generic[T]):
    """Something that ends later. Yield it to wait; compare it with what `any` gives."""

    def __init__(self, raw: Pending, read: Callable[[Any], T]) -> None:
        self.raw = raw
        self._read = read

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.raw.is_completed

    @property
    def result(self) -> T:
        """Its value. Raises `TaskFailed`; `RuntimeError` if it has not ended."""
        if not self.done:
            raise RuntimeError("this task has not ended; yield it first")
        if isinstance(self.raw.result, Exception):
            raise self._failed(self.raw.result)
        return self._read(self.raw.result)

    def parts(self) -> Iterator[Task[Any]]:
        """It and what it is made of."""
        yield self

    def settle(self, replay: Replay) -> None:
        """It has ended: let go of what is no longer waited for."""

    def _failed(self, error: Exception) -> TaskFailed:
        return TaskFailed(failure_in(error))


class Together(Task[T]):
    """All or any of several tasks."""

    def __init__(self, raw: Pending, tasks: Sequence[Task[Any]], read: Callable[[Any], T]) -> None:
        super().__init__(raw, read)
        self.tasks = tuple(tasks)

    def parts(self) -> Iterator[Task[Any]]:
        """It, and all below."""
        yield self
        for task in self.tasks:
            yield from task.parts()

    def _failed(self, error: Exception) -> TaskFailed:
        for task in self.tasks:
            if task.raw.result is error:
                return task._failed(error)
        return super()._failed(error)


class SignalTask(Task[Any]):
    """The next signal of a name, or the end of its time."""

    def __init__(self, name: str, event: Pending, timer: Pending | None, raw: Pending) -> None:
        super().__init__(raw, lambda _: self._payload())
        self.name = name
        self.event = event
        self.timer = timer
        self.loaded: str | None = None  # JSON text of a payload that was stored elsewhere
        self.lost: Failure | None = None  # it could not be loaded

    @property
    def stored(self) -> Payload | None:
        """Where the payload is, if it came without and has not been loaded."""
        if not self.event.is_completed or self.loaded is not None or self.lost is not None:
            return None
        return _signal(self.event.result).payload_ref

    def settle(self, replay: Replay) -> None:
        """One of the two has come: the other is not waited for."""
        if self.event.is_completed:
            if self.timer is not None:
                replay.cancel(self.timer)
        elif self.timer is not None and self.timer.is_completed:
            replay.withdraw(self.event)

    def _payload(self) -> Any:
        if not self.event.is_completed:
            message = f"no signal {self.name!r} came in time"
            raise TaskFailed(Failure(type=FailureType.SIGNAL_TIMEOUT, message=message))
        if self.lost is not None:
            raise TaskFailed(self.lost)
        text = self.loaded if self.loaded is not None else _signal(self.event.result).payload
        return jsonvalues.loads(text or "null")


def _signal(text: str) -> SignalEnvelope:
    try:
        return SignalEnvelope.decode(text)
    except BadEnvelope:
        # Raised by somebody else, over Durable's own API: then it is the payload itself.
        return SignalEnvelope(id="", at=0, payload=text)
