"""How soon schedules are started: many stored, hundreds of them due at once.

    python -m bench.schedules                 10,000 stored, 500 due in the same second
    python -m bench.schedules --stored 1000 --due 50 --json

The real app in the embedded host with its timers (the scheduler looks every 5 seconds), the real
store and broker. Measured from the nominal tick to the executions' stored `createdAt`; they run,
too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

if __package__ in (None, ""):  # run by its path
    sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import harness
from orchestrator.domain import schedule_spec
from orchestrator.domain.schedule_cron import from_ms, zone_of
from orchestrator.domain.topology import CATALOG, EXECUTIONS, MAX_BATCH_OPERATIONS
from orchestrator.engine import catalog, schedule_docs
from orchestrator.engine.core import Engine
from orchestrator.ports import Create, Operation, Query, Where

AHEAD_MS: Final = 15_000
"""Between storing the schedules and the tick: the scheduler leads and has nothing to do by then."""
PATIENCE_S: Final = 60.0


async def measure(folder: Path, stored: int, due: int) -> dict[str, Any]:
    """Store `stored` schedules of which `due` have a tick at the same time, and wait for them."""
    async with harness.running(folder) as platform:
        engine = platform.engine
        definition = {"name": "w", "tasks": {"a": {"type": "activity", "activity": harness.NOOP}}}
        await catalog.publish(engine, harness.TENANT, definition)
        begin = time.perf_counter()
        await _fill(engine, stored - due, {"cron": "0 0 1 1 *"}, "quiet")
        filled = time.perf_counter() - begin
        tick = (engine.clock.now() + AHEAD_MS) // 1000 * 1000
        at = from_ms(tick, zone_of("UTC")).isoformat()
        await _fill(engine, due, {"at": at}, "due")
        cpu = time.process_time()
        created = await _created(engine, due)
        cpu = time.process_time() - cpu
    if len(created) != due:
        raise RuntimeError(f"{len(created)} of {due} executions were started")
    waits = sorted(at - tick for at in created)
    return {
        "stored": stored,
        "due": due,
        "filledSeconds": round(filled, 1),
        "firstMs": waits[0],
        "medianMs": waits[len(waits) // 2],
        "lastMs": waits[-1],
        "spanMs": waits[-1] - waits[0],
        "cpuSeconds": round(cpu, 2),
    }


async def _fill(engine: Engine, count: int, timing: dict[str, Any], prefix: str) -> None:
    """Schedules as `schedules.create` stores them, many in a batch."""
    now = engine.clock.now()
    operations: list[Operation] = []
    for number in range(count):
        raw = {"name": f"{prefix}-{number}", "workflow": "w", "input": {"n": number}, **timing}
        plan = schedule_spec.parse(raw, created_at=now)
        body = schedule_docs.new_body(harness.TENANT, raw, plan, now)
        schedule_docs.set_due(body, plan)
        operations.append(Create(body))
        if len(operations) == MAX_BATCH_OPERATIONS or number == count - 1:
            await engine.store.batch(CATALOG, (harness.TENANT,), operations)
            operations = []


async def _created(engine: Engine, count: int) -> list[int]:
    """`createdAt` of the executions that ticks started, as soon as there are `count`."""
    query = Query(
        partition=(harness.TENANT,),
        where=(Where("type", "=", "execution"),),
        order_by="createdAt",
        limit=count + 1,
    )
    found: list[int] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < end:
        await asyncio.sleep(0.5)
        documents = await engine.store.query(EXECUTIONS, query)
        found = [doc.body["createdAt"] for doc in documents if "scheduledFor" in doc.body]
    return found


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.schedules", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--stored", type=int, default=10_000, help="schedules in the store")
    parser.add_argument("--due", type=int, default=500, help="of them due at the same time")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    parser.add_argument("--data", type=Path, help="folder on the disk to measure (default: temp)")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=given.data) as name:
        figures = asyncio.run(measure(Path(name), given.stored, given.due))
    if given.json:
        print(json.dumps(figures, indent=2))
    else:
        print(
            f"{figures['due']} of {figures['stored']:,} schedules due at once: first started after "
            f"{figures['firstMs']} ms, half after {figures['medianMs']} ms, all after "
            f"{figures['lastMs']} ms ({figures['spanMs']} ms from first to last, "
            f"{figures['cpuSeconds']} s of processor time with what ran of them)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
