"""The platform as `weft up` runs it, in this process, and what is measured of it.

Everything is real: function app, embedded host with all triggers, SQLite store (synced to disk) and
broker. Only the activities are the benchmark's own, so that the platform is measured and not work.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from activities.registry import Registry
from activities.runner import Runner
from orchestrator import bootstrap
from orchestrator.engine import catalog, submit, verify
from orchestrator.engine.core import Engine
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host import host_json
from orchestrator.local.host.host import HostOptions, LocalHost
from orchestrator.local.host.serve import DEFAULT_SETTINGS, HOST_JSON, spare_the_collector
from orchestrator.ports import Query, Where
from orchestrator.settings import load_settings

TENANT: Final = "default"
NOOP: Final = "bench.noop"
NOOP_PLAIN: Final = "bench.noop_plain"
GATED: Final = "bench.gated"
SLEEP: Final = "bench.sleep"
"""Sleeps for as many ms as its input says."""
LOOK_S: Final = 0.002
"""Between two looks at the counter of ended executions; a look is one dictionary access."""


@dataclass(slots=True)
class Platform:
    """A running platform. `gate`: what the activity `GATED` waits for."""

    engine: Engine
    host: LocalHost
    gate: asyncio.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run. `wall_s`: from the first execution's `createdAt` to the last `endedAt`, as
    stored. `cpu_s`: processor time of this process, all threads, submission included."""

    tasks: int
    wall_s: float
    cpu_s: float

    @property
    def per_second(self) -> float:
        """Tasks a second."""
        return self.tasks / self.wall_s

    @property
    def cpu_ms(self) -> float:
        """Processor milliseconds per task."""
        return self.cpu_s * 1000 / self.tasks


@contextlib.asynccontextmanager
async def running(data: Path) -> AsyncIterator[Platform]:
    """A platform over `data`, with HTTP, timers and change feed, until the end of the block."""
    gate = asyncio.Event()
    engine = await bootstrap.build(
        load_settings({"WEFT_DATA_DIR": str(data)}), activities=Runner(_registry(gate))
    )

    async def built() -> Engine:
        return engine

    provider = EngineProvider(built)
    await provider.get()
    host = LocalHost(
        compose(provider),
        provider=provider,
        broker=engine.transport,  # type: ignore[arg-type]
        store=engine.store,
        clock=engine.clock,
        host_json=host_json.load(HOST_JSON),
        options=HostOptions(settings=DEFAULT_SETTINGS),
    )
    spare_the_collector()
    await host.start()
    try:
        yield Platform(engine, host, gate)
    finally:
        await host.stop()


def _registry(gate: asyncio.Event) -> Registry:
    registry = Registry()

    async def noop() -> None:
        return None

    def noop_plain() -> None:
        return None

    async def gated() -> None:
        await gate.wait()

    async def sleep(ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    for name, function in (
        (NOOP, noop),
        (NOOP_PLAIN, noop_plain),
        (GATED, gated),
        (SLEEP, sleep),
    ):
        registry.register(name, function)
    return registry


async def run(platform: Platform, definition: dict[str, Any], executions: int, tasks: int) -> Run:
    """Start `executions` of `definition` at once and wait for all. `tasks`: attempts that each
    must make; any other number, or an execution that did not complete, is a `RuntimeError`."""
    engine, name = platform.engine, definition["name"]
    await catalog.publish(engine, TENANT, definition)
    done = engine.metrics.value("weft_executions_total", "COMPLETED") + executions
    failed = engine.metrics.value("weft_executions_total", "FAILED")
    attempts = engine.metrics.value("weft_attempts_total", "COMPLETED")
    cpu = time.process_time()
    started = await asyncio.gather(
        *(submit.start(engine, TENANT, name, None) for _ in range(executions))
    )
    while engine.metrics.value("weft_executions_total", "COMPLETED") < done:
        if engine.metrics.value("weft_executions_total", "FAILED") != failed:
            raise RuntimeError(f"an execution of {name} failed")
        await asyncio.sleep(LOOK_S)
    await platform.host.run_until_idle()  # its settling and its outbox deletes are costs too
    cpu = time.process_time() - cpu
    made = engine.metrics.value("weft_attempts_total", "COMPLETED") - attempts
    if made != executions * tasks:
        raise RuntimeError(f"{made} attempts were made for {executions * tasks} tasks")
    wall = await _span(engine, [one.id for one in started])
    report = await verify.verify(engine, TENANT, started[0].id)
    if not report.ok:
        raise RuntimeError(f"history and state differ: {report.problems}")
    return Run(tasks=executions * tasks, wall_s=wall, cpu_s=cpu)


async def _span(engine: Engine, ids: list[str]) -> float:
    """Seconds from the first start to the last end."""
    times = [await times_of(engine, id) for id in ids]
    return (max(ended for _, ended in times) - min(created for created, _ in times)) / 1000


async def times_of(engine: Engine, execution: str) -> tuple[int, int]:
    """`createdAt` and `endedAt` of an execution that has ended, epoch ms."""
    doc = await engine.store.read("executions", (TENANT, execution), execution)
    return doc.body["createdAt"], doc.body["state"]["endedAt"]


async def documents(engine: Engine, execution: str) -> list[dict[str, Any]]:
    """All documents of one execution."""
    found: list[dict[str, Any]] = []
    for kind in ("execution", "events", "task"):
        query = Query(
            partition=(TENANT, execution), where=(Where("type", "=", kind),), limit=10_000
        )
        found += [doc.body for doc in await engine.store.query("executions", query)]
    return found


def chain(length: int, *, activity: str = NOOP) -> dict[str, Any]:
    """`t0 -> t1 -> …`."""
    tasks: dict[str, Any] = {}
    for number in range(length):
        tasks[f"t{number}"] = {"type": "activity", "activity": activity}
        if number:
            tasks[f"t{number}"]["needs"] = [f"t{number - 1}"]
    return {"name": f"chain-{length}", "tasks": tasks}


def fan(width: int) -> dict[str, Any]:
    """`start -> width tasks -> end`."""
    task = {"type": "activity", "activity": NOOP}
    middle = {f"t{number}": {**task, "needs": ["start"]} for number in range(width)}
    return {
        "name": f"fan-{width}",
        "tasks": {"start": task, **middle, "end": {**task, "needs": list(middle)}},
    }


def mapping(items: int, *, activity: str = NOOP) -> dict[str, Any]:
    """A map over `items` numbers. Its attempts: one per item, and one that gathers the results."""
    return {
        "name": f"map-{items}",
        "tasks": {
            "each": {
                "type": "map",
                "items": list(range(items)),
                "do": {"type": "activity", "activity": activity},
            }
        },
    }


def resident_mb() -> float:
    """Memory of this process now, in MB; where the system does not tell, the most it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return peak_mb()
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_mb() -> float:
    """The most memory that this process ever had, in MB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6


def children_cpu_s() -> float:
    """Processor seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def sync_ms(folder: Path, syncs: int = 200) -> list[float]:
    """What one append of 4 KiB and its fsync takes on the disk of `folder`, sorted, in ms."""
    times: list[float] = []
    with (folder / "sync-probe").open("wb", buffering=0) as file:
        for _ in range(syncs):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    (folder / "sync-probe").unlink()
    return sorted(times)
