"""One worker process: an engine of its own, and the triggers that a Functions host would fire.

Triggers behave like the real host's: a batch is settled all or nothing and its locks are never
renewed; a single message's lock is; a raised exception abandons. A crash leaves everything as it
is (leases, locks, half a commit), and the supervisor starts the process anew with empty caches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from orchestrator.domain.topology import ORCHESTRATION_QUEUE, TASK_QUEUES
from orchestrator.engine import execute, orchestrate, relay, sweep
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.ports import Received, StoreError, TransportError, Unavailable
from tests.simulation.loop import Process, sleep
from tests.simulation.ports import (
    SimActivities,
    SimClock,
    SimIds,
    SimPayloads,
    SimSecrets,
    SimStore,
    SimTransport,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

ATTEMPTS_AT_ONCE = 8
RENEW_S = 20
RECEIVE_MS = 60_000


class Worker:
    """A process by name; `process` is its present incarnation."""

    def __init__(self, world: World, name: str, skew_ms: int = 0) -> None:
        self.world = world
        self.name = name
        self.clock = SimClock(world, skew_ms)
        self.incarnation = 0
        self.process: Process | None = None
        self.engine: Engine = self._engine()
        self._steps_to_death = 0
        self._steps_to_pause = 0

    def _engine(self) -> Engine:
        world = self.world
        engine = Engine(
            store=SimStore(world, self),
            transport=SimTransport(world, self),
            payloads=SimPayloads(world, self),
            secrets=SimSecrets(),
            activities=SimActivities(world, self),
            clock=self.clock,
            ids=SimIds(f"{self.name}-{self.incarnation}"),
            worker=f"{self.name}-{self.incarnation}",
            tunables=world.profile.tunables,
        )
        engine.definitions = world.definitions  # versions never change: compiled once per run
        for feature in getattr(world, "features", ()):  # the first engines are older than those
            feature.equip(engine, self)
        return engine

    # --- life -------------------------------------------------------------------------------------

    def start(self, *actors: Callable[[Worker], Awaitable[None]]) -> None:
        """Begin a new incarnation that runs `actors`."""
        self.incarnation += 1
        self.engine = self._engine()
        self.process = Process(f"{self.name}-{self.incarnation}")
        self.world.processes.append(self.process)
        self.process.step = self._step
        self._actors = actors
        fault = self.world.plan.at(f"{self.name}.life", self.world.chances.life)
        self._steps_to_death = fault.size if fault is not None else 0
        self._plan_pause()
        for actor in actors:
            self.spawn(actor, self)

    def spawn(self, work: Callable[..., Awaitable[None]], *args: Any) -> asyncio.Task[Any]:
        """A task of this incarnation."""
        return self.world.loop.spawn(self.process, self.world.guarded(work, *args), work.__name__)

    def _plan_pause(self) -> None:
        fault = self.world.plan.at(f"{self.name}.pause", self.world.chances.pauses)
        self._steps_to_pause = fault.size if fault is not None else 0
        if fault is not None:
            self._pause_s = 1 + 90 * self.world.plan.rolls(fault.place)[0] ** 2

    def _step(self) -> None:
        """Called before each callback of this process."""
        if self._steps_to_death:
            self._steps_to_death -= 1
            if not self._steps_to_death:
                self.kill()
                return
        if self._steps_to_pause:
            self._steps_to_pause -= 1
            if not self._steps_to_pause and self.process is not None:
                self.world.loop.freeze(self.process, self._pause_s)
                self.world.note(f"{self.name} freezes for {self._pause_s:.0f} s")
                self._plan_pause()

    def kill(self) -> None:
        """SIGKILL: nothing of this incarnation ever runs again."""
        if self.process is None or self.process.dead:
            return
        self.process.dead = True
        self.world.crashes += 1
        self.world.note(f"{self.name} crashes")
        delay = 0.5 + 20 * self.world.rng.random() ** 2
        self.world.loop.call_later(delay, self.start, *self._actors, context=self.world.context)

    async def crash(self) -> None:
        """Die here and now; never returns."""
        if self.process is None:
            raise Unavailable("the instance that served this client crashed")
        self.kill()
        await asyncio.get_running_loop().create_future()

    def heal(self) -> None:
        """No more faults: what is frozen goes on."""
        self._steps_to_death = self._steps_to_pause = 0
        if self.process is not None and self.process.frozen_until:
            self.process.frozen_until = 0.0
            self.world.loop.freeze(self.process, 0.0)


# --- actors ---------------------------------------------------------------------------------------


def _incoming(message: Received) -> Incoming:
    return Incoming(
        body=message.body,
        message_id=message.message_id,
        delivery_count=message.delivery_count,
        properties=message.properties,
    )


async def _receive(worker: Worker, queue: str, most: int) -> list[Received]:
    world = worker.world
    while True:
        if world.now() < world.broker_down_until:
            await sleep(1)
            continue
        found = await world.broker.receive(queue, most, RECEIVE_MS)
        if found:
            return found


async def _settle(worker: Worker, messages: list[Received], failed: bool) -> None:
    """As the host does: nothing is raised for a settlement that did not work."""
    world = worker.world
    fault = world.plan.at(f"{worker.name}.settle", world.chances.settles)
    if (fault is not None and fault.kind == "unavailable") or world.now() < world.broker_down_until:
        return
    try:
        if failed:
            for message in messages:
                await world.broker.abandon(message)
        else:
            await world.broker.complete_many(messages)
    except TransportError:
        world.metrics["settlement refused"] += 1


async def orchestrator(worker: Worker) -> None:
    """The batch trigger of the orchestration queue."""
    world = worker.world
    while True:
        most = world.rng.choice((1, 2, 8, 32))
        batch = await _receive(worker, ORCHESTRATION_QUEUE, most)
        failed = False
        try:
            await orchestrate.handle(worker.engine, [_incoming(message) for message in batch])
        except (StoreError, TransportError):
            failed = True
        await _settle(worker, batch, failed)


async def executor(worker: Worker) -> None:
    """The single-message triggers of the task queues, several messages of each at once."""
    await asyncio.gather(*(_execute(worker, queue) for queue in TASK_QUEUES))


async def _execute(worker: Worker, queue: str) -> None:
    room = asyncio.Semaphore(ATTEMPTS_AT_ONCE)
    while True:
        await room.acquire()
        (message,) = await _receive(worker, queue, 1)
        worker.spawn(_attempt, worker, message, room)


async def _attempt(worker: Worker, message: Received, room: asyncio.Semaphore) -> None:
    renewing = worker.spawn(_renew, worker, message)
    failed = False
    try:
        await execute.handle(worker.engine, _incoming(message), queue=message.queue)
    except (StoreError, TransportError):
        failed = True
    renewing.cancel()
    room.release()
    await _settle(worker, [message], failed)


async def _renew(worker: Worker, message: Received) -> None:
    while True:
        await sleep(RENEW_S)
        try:
            await worker.world.broker.renew(message)
        except TransportError:
            return


async def feed(worker: Worker) -> None:
    """The change-feed trigger. One process at a time has it, and the checkpoint moves on although
    the function failed or its process died."""
    world = worker.world
    while True:
        longest = 2 if world.plan.enabled else 20
        await sleep(0.05 + world.rng.random() * longest)
        if world.feed_owner not in (None, worker.process):
            if world.feed_owner.dead:
                world.feed_owner = worker.process
            continue
        world.feed_owner = worker.process
        try:
            page = await worker.engine.store.changes("executions", world.feed_cursor, 50)
        except StoreError:
            continue
        world.feed_cursor = page.cursor
        if world.plan.at(f"{worker.name}.relay", world.chances.relays) is not None:
            continue
        await relay.relay_documents(worker.engine, [doc.body for doc in page.documents])


async def sweeper(worker: Worker) -> None:
    """The timer trigger; several processes may sweep at once."""
    world = worker.world
    while True:
        period = 45 if world.ended() else 15
        await sleep(period * (0.5 + world.rng.random()))
        try:
            await sweep.sweep(worker.engine)
        except StoreError:
            world.metrics["sweep failed"] += 1


ACTORS = (orchestrator, orchestrator, executor, feed, sweeper)
