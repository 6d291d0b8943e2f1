"""What one tenant's flood costs another: chains of B while A has thousands of tasks waiting.

    python -m bench.fairness            alone, then under the flood without and with fair shares
    python -m bench.fairness --quick    a smoke test: shows only that all works
    python -m bench.fairness --json     for programs

Tenant A starts maps with 5,000 items in all and keeps so many waiting (`--items 1`: as many
executions of one task); tenant B starts one chain of 10 tasks a second. B's figure is
`endedAt - createdAt` as stored. `README.md` explains the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

if __package__ in (None, ""):  # run by its path
    sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import harness
from bench.harness import Platform
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import catalog, submit

A, B = "tenant-a", "tenant-b"
CHAIN_TASKS: Final = 10
LOOK_S: Final = 0.05
LOOKS_AT_ONCE: Final = 200
STARTS_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """`tasks`: what A has waiting, in maps of `items`; `chains`: what B starts, one every
    `every_s`. Of a task of A and of B: ms that it sleeps."""

    tasks: int = 5_000
    items: int = 500
    chains: int = 60
    every_s: float = 1.0
    a_ms: int = 50
    b_ms: int = 50


FULL: Final = Size()
QUICK: Final = Size(tasks=200, items=100, chains=3, every_s=0.1, a_ms=5, b_ms=5)


async def measure(folder: Path, size: Size, *, flood: bool, fair: bool) -> dict[str, Any]:
    """Figures of B's chains, and how many tasks A got done per second meanwhile."""
    async with harness.running(folder) as platform:
        engine = platform.engine
        if not fair:
            engine.tunables = replace(engine.tunables, active_ms=0)
        each = {"type": "activity", "activity": harness.SLEEP, "input": size.a_ms}
        items = list(range(size.items))
        wide = {"name": "wide", "tasks": {"each": {"type": "map", "items": items, "do": each}}}
        await catalog.publish(engine, A, wide)
        chain = harness.chain(CHAIN_TASKS, activity=harness.SLEEP)
        for task in chain["tasks"].values():
            task["input"] = size.b_ms
        await catalog.publish(engine, B, chain)
        await _chains(platform, chain["name"], 2, 0.0)  # warms up
        flooding = asyncio.create_task(_flood(platform, size)) if flood else None
        if flood:
            await asyncio.sleep(min(2.0, size.every_s))
        began = time.perf_counter()
        before = _done(platform)
        times = await _chains(platform, chain["name"], size.chains, size.every_s)
        seconds = time.perf_counter() - began
        done = _done(platform) - before
        if flooding is not None:
            flooding.cancel()  # what still waits then is not of interest
        moved = _moved(platform)
    ordered = sorted(times)
    return {
        "p50_ms": _at(ordered, 0.5),
        "p95_ms": _at(ordered, 0.95),
        "max_ms": ordered[-1],
        "tasks_per_second": round(done / seconds, 1),
        "moved": moved,
    }


async def _flood(platform: Platform, size: Size) -> None:
    """Keep `size.tasks` of A waiting, until cancelled."""
    running: dict[str, None] = {}  # in the order of their starts
    places = asyncio.Semaphore(STARTS_AT_ONCE)

    async def start() -> None:
        async with places:
            started = await submit.start(platform.engine, A, "wide", None)
        running[started.id] = None

    while True:
        missing = -(-size.tasks // size.items) - len(running)
        await asyncio.gather(*(start() for _ in range(missing)))
        await asyncio.sleep(LOOK_S)
        for id in list(running)[:LOOKS_AT_ONCE]:
            if await _ended(platform, A, id):
                del running[id]


async def _chains(platform: Platform, name: str, count: int, every_s: float) -> list[int]:
    """Start `count` chains of B, and wait for all: what each took, in ms."""
    ids: list[str] = []
    for _ in range(count):
        ids.append((await submit.start(platform.engine, B, name, None)).id)
        await asyncio.sleep(every_s)
    waiting = set(ids)
    while waiting:
        await asyncio.sleep(LOOK_S)
        waiting = {id for id in waiting if not await _ended(platform, B, id)}
    found: list[int] = []
    for id in ids:
        doc = await platform.engine.store.read(EXECUTIONS, (B, id), id)
        found.append(doc.body["state"]["endedAt"] - doc.body["createdAt"])
    return found


async def _ended(platform: Platform, tenant: str, id: str) -> bool:
    doc = await platform.engine.store.read(EXECUTIONS, (tenant, id), id)
    if doc.body["status"] == "FAILED":
        raise RuntimeError(f"execution {id} failed")
    return "endedAt" in doc.body["state"]


def _done(platform: Platform) -> int:
    return int(platform.engine.metrics.value("weft_attempts_total", "COMPLETED"))


def _moved(platform: Platform) -> int:
    value = platform.engine.metrics.value
    return int(sum(value("weft_messages_moved_total", what) for what in ("task", "decision")))


def _at(ordered: Sequence[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


CASES: Final = (
    ("alone", {"flood": False, "fair": True}),
    ("flood, without fair shares", {"flood": True, "fair": False}),
    ("flood, with fair shares", {"flood": True, "fair": True}),
)


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="tiny: shows only that all works")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    parser.add_argument("--data", type=Path, help="folder on the disk to measure (default: temp)")
    parser.add_argument("--chains", type=int, help="how many chains B starts")
    parser.add_argument("--a-ms", type=int, help="how long a task of A takes")
    parser.add_argument("--items", type=int, help="of each map of A: 1 is a flood of executions")
    parser.add_argument("--only", choices=[name for name, _ in CASES], action="append")
    arguments = parser.parse_args(argv)
    size = QUICK if arguments.quick else FULL
    if arguments.chains:
        size = replace(size, chains=arguments.chains)
    if arguments.items:
        size = replace(size, items=arguments.items)
    if arguments.a_ms:
        size = replace(size, a_ms=arguments.a_ms)
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=arguments.data) as name:
        for case, options in CASES:
            if not arguments.only or case in arguments.only:
                folder = Path(name) / str(len(figures))
                figures[case] = asyncio.run(measure(folder, size, **options))
    alone = figures.get("alone")
    for one in figures.values() if alone else ():
        one["p95_times_alone"] = round(one["p95_ms"] / alone["p95_ms"], 2) if alone else None
    print(json.dumps(figures, indent=2) if arguments.json else _table(figures))
    return 0


def _table(figures: dict[str, dict[str, Any]]) -> str:
    columns = list(next(iter(figures.values())))
    lines = [f"{'':28}" + "".join(f"{name:>18}" for name in columns)]
    for name, found in figures.items():
        lines.append(f"{name:28}" + "".join(f"{found[column]!s:>18}" for column in columns))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
