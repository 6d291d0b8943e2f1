"""The measurements, one function each: they return figures and print nothing.

Wall time on a machine that others use says little, so a case is run several times and the best run
counts; processor time per task, the steadier figure, is the least of all runs.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench import harness
from bench.filling import fill
from bench.harness import Platform, Run
from orchestrator.domain.topology import TASKS_STANDARD_QUEUE
from orchestrator.engine import catalog, submit

CHAIN_TASKS: Final = 10
ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured. `repeat`: runs per case, the best counts."""

    repeat: int = 5
    executions: int = 50
    fans: tuple[int, ...] = (200, 2_000)
    items: int = 2_000
    starts: int = 300
    queued: int = 10_000
    finished: tuple[int, ...] = (100, 20_000)


FULL: Final = Size()
QUICK: Final = Size(
    repeat=1, executions=3, fans=(20,), items=20, starts=10, queued=100, finished=(5, 20)
)


def resized(size: Size, *, repeat: int) -> Size:
    """The same with another number of runs."""
    return replace(size, repeat=repeat)


async def _best(platform: Platform, size: Size, *args: Any) -> dict[str, float]:
    """Figures of the best of `repeat` runs; one before them warms up the caches."""
    await harness.run(platform, *args)
    runs: list[Run] = []
    for _ in range(size.repeat):
        gc.collect()  # the garbage of the run before is not this run's cost
        runs.append(await harness.run(platform, *args))
    return {
        "tasks": runs[0].tasks,
        "tasks_per_second": round(max(run.per_second for run in runs), 1),
        "cpu_ms_per_task": round(min(run.cpu_ms for run in runs), 4),
        "slowest_tasks_per_second": round(min(run.per_second for run in runs), 1),
    }


async def throughput(folder: Path, size: Size) -> dict[str, dict[str, float]]:
    """Chains, fans and a map, by name."""
    found: dict[str, dict[str, float]] = {}
    async with harness.running(folder) as platform:
        for activity, label in ((harness.NOOP, ""), (harness.NOOP_PLAIN, ", plain function")):
            definition = harness.chain(CHAIN_TASKS, activity=activity)
            name = f"chain {size.executions} x {CHAIN_TASKS}{label}"
            found[name] = await _best(platform, size, definition, size.executions, CHAIN_TASKS)
        for width in size.fans:
            name = f"fan 1 -> {width:,} -> 1"
            found[name] = await _best(platform, size, harness.fan(width), 1, width + 2)
        definition = harness.mapping(size.items)
        found[f"map of {size.items:,}"] = await _best(platform, size, definition, 1, size.items + 1)
    return found


async def latency(folder: Path, size: Size) -> dict[str, float]:
    """Single tasks, one after the other, started over HTTP. Milliseconds."""
    definition = harness.chain(1)
    async with harness.running(folder) as platform:
        await catalog.publish(platform.engine, harness.TENANT, definition)
        await _client(platform, definition["name"], 20)  # warms up
        results = await _client(platform, definition["name"], size.starts)
        stored: list[float] = []
        for id, _, _ in results:
            created, ended = await harness.times_of(platform.engine, id)
            stored.append(ended - created)
    return {
        "starts": size.starts,
        **_percentiles("start_to_done", stored),
        **_percentiles("http_start", [accepted for _, accepted, _ in results]),
        **_percentiles("http_start_and_wait", [ended for _, _, ended in results]),
    }


async def _client(platform: Platform, workflow: str, count: int) -> list[tuple[str, float, float]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.client", platform.host.url, workflow, str(count)),
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError("the client failed; see above")
    return json.loads(out)


def _percentiles(name: str, values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return {f"{name}_p50_ms": at(0.5), f"{name}_p99_ms": at(0.99), f"{name}_max_ms": at(1)}


async def memory(folder: Path, size: Size) -> dict[str, float]:
    """MB of this process with `queued` map items queued behind activities that do not end, and the
    most it had until all of them were done. Meant for a process that did nothing before."""
    definition = harness.mapping(size.queued, activity=harness.GATED)
    async with harness.running(folder) as platform:
        before = harness.resident_mb()
        engine = platform.engine
        await catalog.publish(engine, harness.TENANT, definition)
        await submit.start(engine, harness.TENANT, definition["name"], None)
        broker: Any = engine.transport
        while True:
            counts = await broker.counts(TASKS_STANDARD_QUEUE)
            if counts.active + counts.locked == size.queued and counts.locked:
                break
            await asyncio.sleep(0.02)
        queued = harness.resident_mb()
        platform.gate.set()
        await platform.host.run_until_idle()
        done = harness.resident_mb()
    return {
        "queued": size.queued,
        "started_mb": round(before, 1),
        "queued_mb": round(queued, 1),
        "done_mb": round(done, 1),
        "peak_mb": round(harness.peak_mb(), 1),
    }


async def startup(folder: Path, size: Size) -> dict[str, float]:
    """Seconds from the command to the platform that serves, in a folder that has been used; and the
    processor time that start and stop took together."""
    times: list[float] = []
    cpu: list[float] = []
    for _ in range(size.repeat + 1):
        began, before = time.perf_counter(), harness.children_cpu_s()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orchestrator", "up", "--port", "0", "--json"),
            *("--data", str(folder)),
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        line = await process.stdout.readline()
        times.append(time.perf_counter() - began)
        process.terminate()
        if await process.wait() or not line:
            raise RuntimeError("the platform did not start or did not stop; see above")
        cpu.append(harness.children_cpu_s() - before)
    warm = sorted(times[1:])
    return {
        "best_s": round(warm[0], 2),
        "median_s": round(warm[len(warm) // 2], 2),
        "cpu_s": round(min(cpu), 2),
    }


async def growth(folder: Path, size: Size) -> dict[str, dict[str, float]]:
    """The chain again, with so many finished executions in the file."""
    found: dict[str, dict[str, float]] = {}
    definition = harness.chain(CHAIN_TASKS)
    for finished in size.finished:
        own = folder / str(finished)
        async with harness.running(own) as platform:
            began = time.perf_counter()
            await fill(platform, definition, finished)
            filled = time.perf_counter() - began
        async with harness.running(own) as platform:  # opened afresh, with cold caches
            figures = await _best(platform, size, definition, size.executions, CHAIN_TASKS)
        file = (own / "weft.db").stat().st_size / 1e6
        found[f"{finished:,} finished"] = {
            **figures,
            "file_mb": round(file, 1),
            "filled_s": round(filled, 1),
        }
    return found
