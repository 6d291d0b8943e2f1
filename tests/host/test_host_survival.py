"""What the embedded platform must survive: processes that die at any moment, an activity that ends
its process, a broker whose file is deleted under load. Afterwards everything is complete, and every
history folds to its state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from host_fakes import until

from orchestrator import bootstrap
from orchestrator.domain.status import TERMINAL_EXECUTION
from orchestrator.domain.topology import CONTAINERS, LEASES, VISIBILITY
from orchestrator.engine import catalog, inspect, reconcile, submit, sweep, verify
from orchestrator.engine.core import Engine
from orchestrator.engine.views import ExecutionView
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host.host import HostOptions, LocalHost
from orchestrator.local.host.host_json import WEFT
from orchestrator.local.host.listening import listening_socket
from orchestrator.local.host.supervisor import Supervisor
from orchestrator.ports import Query
from orchestrator.settings import load_settings
from tests.support.definitions import flow, retry, task

TENANT = "default"
QUICK = {
    "WEFT_LEASE_MS": "1000",
    "WEFT_SILENCE_MS": "300",
    "WEFT_OUTBOX_GRACE_MS": "300",
    "WEFT_RETRY_GRACE_MS": "300",
}
SWEEP_PAUSE_S = 0.2
POLL_S = 0.02

SQUARES = flow(
    "squares",
    numbers={"type": "transform", "output": "${input}"},
    square={
        "type": "map",
        "needs": ["numbers"],
        "items": "${tasks.numbers.output}",
        "maxConcurrency": 8,
        "do": {"type": "transform", "output": "${item * item}", "retry": retry(20, "50ms")},
    },
    rest={"type": "wait", "needs": ["square"], "duration": "100ms"},
    total={"type": "transform", "needs": ["rest"], "output": "${tasks.square.output}"},
    defaults={"retry": retry(20, "50ms")},
    output="${tasks.total.output}",
)
NUMBERS = list(range(40))


async def _engine(data: Path) -> Engine:
    return await bootstrap.build(load_settings({**QUICK, "WEFT_DATA_DIR": str(data)}))


@contextlib.asynccontextmanager
async def _sweeping(engine: Engine) -> AsyncIterator[None]:
    """Sweep more often than the timer does; any number of sweepers does no harm."""

    async def loop() -> None:
        while True:
            await sweep.sweep(engine)
            await asyncio.sleep(SWEEP_PAUSE_S)

    sweeper = asyncio.create_task(loop())
    try:
        yield
    finally:
        sweeper.cancel()
        await asyncio.gather(sweeper, return_exceptions=True)


@contextlib.asynccontextmanager
async def _watching(data: Path) -> AsyncIterator[Engine]:
    """An engine of the test's own on `data`, which sweeps."""
    engine = await _engine(data)
    try:
        async with _sweeping(engine):
            yield engine
    finally:
        await engine.close()


class _Load:
    """Executions that were started, looked at through an engine of the test's own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ids: list[str] = []

    async def start(self, workflow: str, count: int, value: Any = None) -> None:
        """Start `count` executions."""
        for _ in range(count):
            started = await submit.start(self.engine, TENANT, workflow, value)
            self.ids.append(started.id)

    async def views(self) -> list[ExecutionView]:
        """All of them, as stored now."""
        return [await inspect.execution(self.engine, TENANT, id) for id in self.ids]

    async def progress(self) -> int:
        """Commits so far, of all executions."""
        return sum(view.seq for view in await self.views())

    async def reach(self, commits: int) -> None:
        """Wait until that many commits were made, or everything has ended."""
        while await self.progress() < commits and not await self.ended():  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    async def ended(self) -> bool:
        """Whether nothing more will happen."""
        return all(view.status in TERMINAL_EXECUTION for view in await self.views())

    async def verified(self) -> list[ExecutionView]:
        """Wait for the end, check every history; all executions."""
        while not await self.ended():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(POLL_S)
        for id in self.ids:
            report = await verify.verify(self.engine, TENANT, id)
            assert report.ok, report.problems
        return await self.views()


@contextlib.asynccontextmanager
async def _one_process(data: Path) -> AsyncIterator[Engine]:
    """The host in this process."""

    async def build() -> Engine:
        return engine

    engine = await _engine(data)
    provider = EngineProvider(build)
    await provider.get()
    host = LocalHost(
        compose(provider),
        provider=provider,
        broker=engine.transport,  # type: ignore[arg-type]
        store=engine.store,
        clock=engine.clock,
        host_json=WEFT,
        options=HostOptions(settings={"COSMOS_DATABASE": "weft"}),
    )
    await host.start()
    try:
        yield engine
    finally:
        await host.stop()


def _delete_broker(data: Path) -> int:
    """Number of messages that were lost."""
    file = f"file:{data / bootstrap.BROKER_FILE}?mode=ro"  # or connecting would make an empty one
    try:
        with contextlib.closing(sqlite3.connect(file, uri=True)) as broker:
            [(count,)] = broker.execute("SELECT count(*) FROM messages").fetchall()
    except sqlite3.OperationalError:
        return 0  # not yet made anew since the last time
    for path in data.glob(f"{bootstrap.BROKER_FILE}*"):
        path.unlink()
    return count


async def test_deleting_the_brokers_file_under_load_loses_nothing(tmp_path: Path) -> None:
    """DESIGN 1: the database is the source of truth; losing every message loses nothing."""
    async with _one_process(tmp_path) as engine, _sweeping(engine):
        await catalog.publish(engine, TENANT, SQUARES)
        load = _Load(engine)
        await load.start("squares", 12, NUMBERS)
        lost = 0
        for commits in (10, 20, 30, 40, 50, 60):
            await load.reach(commits)
            assert not await load.ended()
            lost += _delete_broker(tmp_path)
        for view in await load.verified():
            assert view.output == [number * number for number in NUMBERS]
        assert lost  # or nothing was tested
        await _without_gaps(engine)


async def _without_gaps(engine: Engine) -> None:
    report = await reconcile.reconcile(engine, every=True, settle_ms=1_500)
    assert report.gaps == 0, report


async def test_lost_lists_and_lost_places_of_the_change_feed_are_made_again(tmp_path: Path) -> None:
    """Everything comes once more from the beginning: the lists are whole, nothing else changes."""
    async with _one_process(tmp_path) as engine:
        await catalog.publish(engine, TENANT, SQUARES)
        load = _Load(engine)
        await load.start("squares", 3, NUMBERS[:5])
        before = await load.verified()
    async with _watching(tmp_path) as engine:
        for container in (VISIBILITY, LEASES):
            names = CONTAINERS[container].partition
            for doc in await engine.store.query(container, Query(limit=100)):
                partition = tuple(str(doc.body[name]) for name in names)
                await engine.store.delete(container, partition, doc.id)
        report = await reconcile.reconcile(engine, mend=False, settle_ms=1)
        assert report.kinds == {"row": 3}
    async with _one_process(tmp_path) as engine:
        await _without_gaps(engine)
        load.engine = engine
        assert await load.views() == before


# --- processes ------------------------------------------------------------------------------------

WORKER = """
import os, sys
from activities import Context, activity

@activity("survival.leave")
def leave(survive: int, context: Context) -> int:
    if context.attempt < survive:
        os._exit(9)
    return context.attempt

from orchestrator.local.host.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@contextlib.asynccontextmanager
async def _processes(data: Path, workers: int, monkeypatch: Any) -> AsyncIterator[Supervisor]:
    """`workers` real processes on `data`, which have the activity `survival.leave`, too."""

    def command(worker: int, sock: int, control: int) -> Sequence[str]:
        return (
            *(sys.executable, "-c", WORKER, "--data", str(data), "--worker", str(worker)),
            *("--socket", str(sock), "--control", str(control)),
        )

    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    ready = asyncio.Event()
    with listening_socket("127.0.0.1", 0) as sock:
        supervisor = Supervisor(command, workers, sock)
        running = asyncio.create_task(supervisor.run(ready.set))
        await ready.wait()
        try:
            yield supervisor
        finally:
            supervisor.stop()
            assert await running == 0


async def test_processes_that_are_killed_at_any_moment_lose_nothing(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """kill -9, of one process after another, while the others go on."""
    rng = random.Random(11)
    async with _processes(tmp_path, 3, monkeypatch) as supervisor, _watching(tmp_path) as engine:
        await catalog.publish(engine, TENANT, SQUARES)
        load = _Load(engine)
        await load.start("squares", 12, NUMBERS)
        killed: set[int] = set()
        for _ in range(5):
            await load.reach(await load.progress() + rng.randint(3, 15))
            await until(lambda: supervisor.pids, POLL_S)
            victim = rng.choice(list(supervisor.pids.values()))
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
        assert len(killed) > 1
        for view in await load.verified():
            assert view.output == [number * number for number in NUMBERS]


async def test_an_activity_that_ends_its_process_costs_an_attempt_and_nothing_else(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """os._exit cannot be caught: the lease runs out, the attempt is counted, others go on."""
    monkeypatch.setattr("activities.runner.Runner.names", lambda self: {"survival.leave"})
    async with _processes(tmp_path, 2, monkeypatch), _watching(tmp_path) as engine:
        leave = flow(
            "leave",
            a=task("survival.leave", input="${input}", retry=retry(2, "50ms")),
            output="${tasks.a.output}",
        )
        await catalog.publish(engine, TENANT, leave)
        await catalog.publish(engine, TENANT, SQUARES)
        others = _Load(engine)
        await others.start("squares", 3, NUMBERS)
        outcomes: dict[int, Any] = {}
        for survive in (2, 99):  # one after the other: they would kill each other's attempts
            load = _Load(engine)
            await load.start("leave", 1, survive)
            [view] = await load.verified()
            detail = await inspect.task(engine, TENANT, view.id, "a")
            errors = [one.error.type for one in detail.attempts if one.error]
            outcomes[survive] = (view.status.value, view.output, errors)
        assert outcomes == {
            2: ("COMPLETED", 2, ["LEASE_EXPIRED"]),
            99: ("FAILED", None, ["LEASE_EXPIRED", "LEASE_EXPIRED"]),
        }
        assert {view.status.value for view in await others.verified()} == {"COMPLETED"}
