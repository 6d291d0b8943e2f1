"""The task hub: claims what is due in `durable.db` and runs it, until it is told to stop.

A turn of an orchestrator, or a call of an activity, is claimed under a lease, run through the
host's invoker (so under `functionTimeout`, with the worker's own decoder and encoder) and recorded
in one transaction. What dies in between is claimed again when its lease has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeVar

import azure.functions as func
from azure.functions import meta

from orchestrator.functions.http_errors import stack
from orchestrator.local.durable import events as ev
from orchestrator.local.durable.driver import Machine
from orchestrator.local.durable.protocol import Turn
from orchestrator.local.durable.store import Call, Claim, DurableStore
from orchestrator.ports import Clock

logger = logging.getLogger("orchestrator.local.durable")

TURNS: Final = 16
CALLS: Final = 32
"""At once, per process."""
LEASE_MS: Final = 30_000
"""How long what a dead process had claimed lies idle."""
POLL_MS: Final = 100
"""How often an idle hub asks whether another process has written: a read of some microseconds."""
FAULT_MS: Final = 1_000
"""Wait after the file could not be read or written."""

T = TypeVar("T")


class Invocable(Protocol):
    """A function of the app: `invoke.Invoker`."""

    async def __call__(self, value: Any) -> Any:
        """Run it with this input. Raises what it raises."""
        ...


Inline = Callable[..., Awaitable[Any]]
"""Runs a blocking call of the store."""


async def inline(call: Callable[..., T], *arguments: Any) -> T:
    """On the spot: for tests that must be repeatable."""
    return call(*arguments)


class Hub:
    """One process's part in the task hub. Names of functions differ in more than case."""

    def __init__(
        self,
        store: DurableStore,
        *,
        orchestrators: Mapping[str, Invocable],
        activities: Mapping[str, Invocable],
        plain: Mapping[str, Callable[[str], str]],
        clock: Clock,
        new_id: Callable[[], str],
        call: Inline,
    ) -> None:
        """`plain`: the orchestrators as functions, to be told a history again. `new_id`: fresh,
        unique among all processes. `call`: `inline`, or a `grouping.Grouped`."""
        self.store = store
        self.call = call
        self.clock = clock
        self.new_id = new_id
        self.orchestrators = {name.casefold(): f for name, f in orchestrators.items()}
        self.activities = {name.casefold(): f for name, f in activities.items()}
        self._plain = {name.casefold(): f for name, f in plain.items()}
        self._turns: dict[asyncio.Task[None], Claim] = {}
        self._calls: dict[asyncio.Task[None], Call] = {}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There may be something to do."""
        self._woken.set()

    def plain(self, name: str) -> Callable[[str], str] | None:
        """The orchestrator function of that name, if there is one."""
        return self._plain.get(name.casefold())

    async def idle(self) -> bool:
        """Nothing is running and nothing is due."""
        due = await self.call(self.store.next_due, self.clock.now())
        return not (self._turns or self._calls) and (due is None or due > self.clock.now())

    async def run(self) -> None:
        """Until cancelled; what runs then goes on, see `drain`."""
        renewing = asyncio.create_task(self._renew(), name="durable-leases")
        try:
            while True:
                self._woken.clear()
                try:
                    await self.look()
                    await self._rest()
                except sqlite3.Error as error:
                    logger.error(
                        "durable.db could not be used, trying again",
                        extra={"action": "durable_store", "error": type(error).__name__},
                    )
                    await asyncio.sleep(FAULT_MS / 1000)
        finally:
            renewing.cancel()

    async def drain(self, grace_ms: int) -> None:
        """Let what runs end, cancel what outlasts `grace_ms` and give it back."""
        running = {*self._turns, *self._calls}
        if running:
            _, late = await asyncio.wait(running, timeout=grace_ms / 1000)
            calls = [call for task, call in self._calls.items() if task in late]
            claims = [claim for task, claim in self._turns.items() if task in late]
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            if late:
                with contextlib.suppress(sqlite3.Error):  # then the leases run out
                    await self.call(self.store.release, calls, claims)

    async def step(self) -> bool:
        """Do what is due now, to its end. False if there was nothing. For tests."""
        if not await self.look():
            return False
        await asyncio.gather(*self._turns, *self._calls)
        return True

    async def look(self) -> int:
        """Begin what is due, as far as there is room. How much."""
        now, owner = self.clock.now(), self.new_id()
        fired = await self.call(self.store.fire_timers, now)
        claims: list[Claim] = await self._claim(
            self.store.claim_turns, owner, now, TURNS - len(self._turns)
        )
        for claim in claims:
            self._begin(self._turns, self._turn(claim), claim)
        calls: list[Call] = await self._claim(
            self.store.claim_calls, owner, now, CALLS - len(self._calls)
        )
        for call in calls:
            self._begin(self._calls, self._activity(call), call)
        return fired + len(claims) + len(calls)

    async def _claim(self, claim: Callable[..., Any], owner: str, now: int, room: int) -> Any:
        return await self.call(claim, owner, now, now + LEASE_MS, room) if room > 0 else []

    def _begin(
        self, running: dict[asyncio.Task[None], T], work: Coroutine[Any, Any, None], what: T
    ) -> None:
        task = asyncio.create_task(work)
        running[task] = what

        def ended(task: asyncio.Task[None]) -> None:
            del running[task]
            self.wake()
            if not task.cancelled() and (error := task.exception()) is not None:
                # The lease runs out, and it is done again.
                logger.error(
                    "durable work was not recorded: %s\n%s",
                    type(error).__name__,
                    stack(error),
                    extra={"action": "durable_unrecorded"},
                )

        task.add_done_callback(ended)

    async def _turn(self, claim: Claim) -> None:
        turn = await self._decide(claim)
        args = (claim, turn, self.clock.now(), self.new_id())
        if not await self.call(self.store.commit_turn, *args):
            logger.info(
                "a turn came too late",
                extra={"action": "turn_late", "instance": claim.identity.instance},
            )

    async def _decide(self, claim: Claim) -> Turn:
        machine = Machine(claim.identity, claim.history)
        asking = machine.turn(claim.news, claim.held, self.clock.now())
        name = claim.identity.name
        function = self.orchestrators.get(name.casefold())
        try:
            context = next(asking)
            while True:
                try:
                    if function is None:
                        raise LookupError(missing(name, "an orchestrator"))
                    answer = await function(context)
                except Exception as error:
                    context = asking.throw(error)
                else:
                    context = asking.send(answer)
        except StopIteration as end:
            return end.value

    async def _activity(self, call: Call) -> None:
        event = await self._perform(call)
        await self.call(self.store.finish_call, call, event)

    async def _perform(self, call: Call) -> ev.Event:
        function = self.activities.get(call.name.casefold())
        try:
            if function is None:
                raise LookupError(missing(call.name, "an activity"))
            result = encode(await function(decode(call.payload)))
        except Exception as error:
            reason = (
                f"Activity function '{call.name}' failed: Result: Failure\n"
                f"Exception: {type(error).__name__}: {error}"
            )
            now, details = self.clock.now(), stack(error)
            return ev.failed(ev.TASK_FAILED, now, call.task, reason, details)
        return ev.completed(ev.TASK_COMPLETED, self.clock.now(), call.task, result)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_MS / 3000)
            if self._turns or self._calls:
                with contextlib.suppress(sqlite3.Error):  # there are two more chances
                    until = self.clock.now() + LEASE_MS
                    calls, claims = [*self._calls.values()], [*self._turns.values()]
                    await self.call(self.store.renew, calls, claims, until)

    async def _rest(self) -> None:
        """Until something may be due: our own doing (`wake`), a time, another process."""
        seen = await self.call(self.store.foreign_commits)
        full = len(self._turns) >= TURNS or len(self._calls) >= CALLS
        due = None if full else await self.call(self.store.next_due, self.clock.now())
        while not self._woken.is_set():
            left = POLL_MS if due is None else min(POLL_MS, max(1, due - self.clock.now()))
            # Not `wait_for`: that of Python 3.11 takes a cancellation that comes with the wake for
            # itself, and the host would wait for this loop for ever.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left / 1000):
                    await self._woken.wait()
            if due is not None and due <= self.clock.now():
                return
            if await self.call(self.store.foreign_commits) != seen:
                return


def missing(name: str, kind: str) -> str:
    """What the extension says of a function that is not there."""
    return f"The function '{name}' doesn't exist, is disabled, or is not {kind} function."


def decode(text: str | None) -> Any:
    """An activity's input, as the worker decodes it."""
    converter: Any = func.get_binding_registry().get("activityTrigger")
    datum = meta.Datum(type="json", value="null" if text is None else text)
    return converter.decode(datum, trigger_metadata=None)


def encode(value: Any) -> str:
    """An activity's result as JSON text, as the worker encodes it. Raises `ValueError`."""
    converter: Any = func.get_binding_registry().get("activityTrigger")
    return converter.encode(value, expected_type=None).value
