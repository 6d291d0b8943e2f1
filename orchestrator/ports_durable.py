"""What the engine needs of Durable Functions: instances of orchestrations, by their id.

The Durable extension and the embedded host speak the same protocol, so there is one adapter; tests
have a fake. All payloads are JSON *text*. Errors are those of `ports`: `Unavailable` (not reached,
or no answer), `Throttled`; `NotFound` where an instance does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol


class InstanceStatus(StrEnum):
    """Durable's own names (`runtimeStatus`)."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    CONTINUED = "ContinuedAsNew"  # for the moment between two generations
    COMPLETED = "Completed"
    FAILED = "Failed"
    TERMINATED = "Terminated"
    CANCELED = "Canceled"


ENDED: Final = frozenset(
    {
        InstanceStatus.COMPLETED,
        InstanceStatus.FAILED,
        InstanceStatus.TERMINATED,
        InstanceStatus.CANCELED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """What Durable tells of one instance."""

    id: str
    name: str  # the orchestrator function
    status: InstanceStatus
    output: str | None = None  # JSON text; of a failed one, its message as JSON text
    custom_status: str | None = None  # JSON text
    created_at: int  # epoch ms
    updated_at: int  # epoch ms
    history: tuple[dict[str, Any], ...] | None = None
    """As the HTTP API answers with `showHistory=true`; None if it was not asked for."""


class Orchestrations(Protocol):
    """The instances of one task hub."""

    async def start(self, name: str, instance: str, payload: str) -> None:
        """Start `name` under that id. An instance that has not ended is left alone; one that has
        ended is *started anew* by Durable, so ask `status` first. Raises `NotFound`: there is no
        such orchestrator."""
        ...

    async def status(self, instance: str, *, history: bool = False) -> Instance | None:
        """What is known of it; None if it does not exist."""
        ...

    async def open_of(self, names: Collection[str]) -> dict[str, list[str]]:
        """Ids of all instances of these orchestrator functions that have not ended; a function that
        has none is left out. Reads all open instances of the hub."""
        ...

    async def raise_event(self, instance: str, name: str, payload: str) -> None:
        """Hand it an external event, kept until it asks for one. Raises `NotFound`, also of one
        that has ended."""
        ...

    async def terminate(self, instance: str, reason: str) -> None:
        """End it, and those below it (`orchestration_result.child_id`). Not an error if it has
        ended. Raises `NotFound`."""
        ...

    async def suspend(self, instance: str, reason: str) -> None:
        """Let it rest, and those below it; events are kept. Raises `NotFound`, also of one that has
        ended."""
        ...

    async def resume(self, instance: str, reason: str) -> None:
        """Go on, and those below it. Raises `NotFound`, also of one that has ended."""
        ...

    async def rewind(self, instance: str, reason: str) -> None:
        """Take a failed one up again: what failed is done again, what was done is not. Raises
        `NotFound`, also of one that has not failed."""
        ...

    async def purge(self, instance: str) -> None:
        """Delete the history of one that has ended, and of those below it; what goes on below is
        ended. Not an error if there is none. Raises `Unavailable` while one of them is ending."""
        ...

    async def close(self) -> None:
        """Release connections. Idempotent."""
        ...


class CodeWorkflows(Protocol):
    """The code workflows that are deployed with this app: orchestrator functions of Durable
    Functions, registered under a workflow's name and a version."""

    def names(self) -> frozenset[str]:
        """All that are registered."""
        ...

    def versions(self, name: str) -> tuple[int, ...]:
        """The registered versions, ascending; none of a name that is not registered."""
        ...

    def function(self, name: str, version: int) -> str:
        """The Azure function of a version. Raises `KeyError`."""
        ...

    def description(self, name: str, version: int) -> str:
        """What its author says about it; may be empty. Raises `KeyError`."""
        ...

    def input_schema(self, name: str, version: int) -> dict[str, Any] | None:
        """JSON Schema of its input; None: anything. Raises `KeyError`."""
        ...

    def output_schema(self, name: str, version: int) -> dict[str, Any] | None:
        """JSON Schema of its output; None: anything. Raises `KeyError`."""
        ...


class Empty:
    """No code workflow at all."""

    def names(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def versions(self, name: str) -> tuple[int, ...]:
        """None."""
        return ()

    def function(self, name: str, version: int) -> str:
        """Raises `KeyError`."""
        raise KeyError(name, version)

    def description(self, name: str, version: int) -> str:
        """Raises `KeyError`."""
        raise KeyError(name, version)

    def input_schema(self, name: str, version: int) -> dict[str, Any] | None:
        """Raises `KeyError`."""
        raise KeyError(name, version)

    def output_schema(self, name: str, version: int) -> dict[str, Any] | None:
        """Raises `KeyError`."""
        raise KeyError(name, version)


class Pending(Protocol):
    """A task of Durable. It is scheduled when it is first waited for."""

    result: Any
    """Once it has completed: its value, or the `Exception` that it failed with."""

    @property
    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        ...


class Replay(Protocol):
    """One turn of an orchestrator function: its history so far, and what it asks for next. Inputs
    and results are JSON text. Whoever drives it yields tasks and is resumed when they end."""

    @property
    def input(self) -> str:
        """What it was started with."""
        ...

    @property
    def instance(self) -> str:
        """Its id."""
        ...

    @property
    def now(self) -> datetime:
        """The time of this step, the same in every replay; UTC."""
        ...

    @property
    def replaying(self) -> bool:
        """Whether this step was taken before."""
        ...

    def new_id(self) -> str:
        """A UUID, the same in every replay."""
        ...

    def activity(self, name: str, payload: str) -> Pending:
        """Run an activity function."""
        ...

    def orchestrator(self, name: str, payload: str, instance: str) -> Pending:
        """Run another orchestrator function as an instance of its own, under that id."""
        ...

    def timer(self, at: datetime) -> Pending:
        """Wait until then."""
        ...

    def cancel(self, timer: Pending) -> None:
        """Let go of a timer. Not an error if it has fired."""
        ...

    def signal(self, name: str) -> Pending:
        """The next signal of that name: JSON text of a `SignalEnvelope`. Of several that wait, the
        newest gets it; none gets the same signal (by its id) twice."""
        ...

    def withdraw(self, signal: Pending) -> None:
        """Nobody waits for it any more."""
        ...

    def all(self, tasks: Sequence[Pending]) -> Pending:
        """When all have ended well, or one has not."""
        ...

    def any(self, tasks: Sequence[Pending]) -> Pending:
        """When the first has ended; the result is that task."""
        ...

    def set_status(self, value: Any) -> None:
        """Show `value` (JSON) as the instance's custom status."""
        ...

    def restore(self, signals: Sequence[tuple[str, str]], seen: Sequence[str]) -> None:
        """Before anything else: what the generation before had not taken in, and ids it knew."""
        ...

    def unread(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Signals (name, JSON text) that nobody has taken, and ids to know again."""
        ...

    def continue_as_new(self, payload: str) -> None:
        """End this generation; the next begins with `payload` and no history."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorFunction:
    """An orchestrator function of Azure: its name, and what drives one turn of it."""

    name: str
    drive: Callable[[Replay], Generator[Pending, Any, str]]


# What code workflows and the functions behind them call each other by.
ACTIVITY_FUNCTION: Final = "weft_activity"
BULK_FUNCTION: Final = "weft_bulk"
CALL_FUNCTION: Final = "weft_call"
"""The orchestrator function that retries an activity, or finds the latest version of a child."""
ENDED_FUNCTION: Final = "weft_ended"
SUPPORT_FUNCTION: Final = "weft_support"
