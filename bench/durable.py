"""How fast durable orchestrations run in the embedded mode.

    python -m bench.durable                 100 chains of 10 activities, 10 fans of 200
    python -m bench.durable --chains 20 --fans 2 --json

The real hub, file (synced to disk) and library; the activities do nothing. One orchestration after
the other gives the time of a step, many at once what a process can do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

if __package__ in (None, ""):  # run by its path
    sys.path.insert(0, str(Path(__file__).parents[1]))

import azure.durable_functions as df

from orchestrator.adapters.local.system import SystemClock
from orchestrator.local.durable import clients
from orchestrator.local.durable.hub import Hub
from orchestrator.local.durable.service import DurableService
from orchestrator.local.host.indexing import OrchestrationBinding, index
from orchestrator.local.host.invoke import Invoker

LENGTH: Final = 10
WIDTH: Final = 200
TIMEOUT_MS: Final = 60_000
LOOK_S: Final = 0.005

app = df.DFApp()


@app.activity_trigger(input_name="n")
async def nothing(n: int) -> int:
    return n


@app.orchestration_trigger(context_name="context")
def chain(context: df.DurableOrchestrationContext) -> Any:
    for n in range(LENGTH):
        yield context.call_activity("nothing", n)


@app.orchestration_trigger(context_name="context")
def fan(context: df.DurableOrchestrationContext) -> Any:
    yield context.task_all([context.call_activity("nothing", n) for n in range(WIDTH)])


async def measure(folder: Path, chains: int, fans: int) -> dict[str, Any]:
    """Run them all; the figures."""
    functions = index(app, {})
    service = DurableService(functions, TIMEOUT_MS)
    with ThreadPoolExecutor() as pool:
        for function in functions:
            if not isinstance(function.binding, OrchestrationBinding):
                service.bind(Invoker(function, pool, TIMEOUT_MS))
        hub = await service.start(folder, "", SystemClock())
        running = asyncio.create_task(hub.run())
        one, _ = await _run(hub, "chain", 1)
        many, cpu = await _run(hub, "chain", chains)
        wide, wide_cpu = await _run(hub, "fan", fans)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await service.stop(1_000)
    return {
        "stepMs": round(one * 1000 / LENGTH, 1),
        "chains": chains,
        "chainActivitiesPerSecond": round(chains * LENGTH / many),
        "chainTurnsPerSecond": round(chains * (LENGTH + 1) / many),
        "chainCpuMsPerActivity": round(cpu * 1000 / (chains * LENGTH), 2),
        "fans": fans,
        "fanActivitiesPerSecond": round(fans * WIDTH / wide),
        "fanCpuMsPerActivity": round(wide_cpu * 1000 / (fans * WIDTH), 2),
    }


async def _run(hub: Hub, name: str, count: int) -> tuple[float, float]:
    """Seconds on the clock, and of the processor."""
    began, cpu = time.perf_counter(), time.process_time()
    left = {f"{name}-{count}-{n}" for n in range(count)}
    start = (
        hub.call(clients.start, hub.store, one, name, None, hub.clock.now(), hub.new_id())
        for one in left
    )
    await asyncio.gather(*start)
    hub.wake()
    while True:
        open_ = "status NOT IN ('Completed', 'Failed')"
        if not await hub.call(clients.select, hub.store, open_, [], 1):
            break
        await asyncio.sleep(LOOK_S)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if await hub.call(clients.select, hub.store, "status = 'Failed'", []):
        raise RuntimeError("an orchestration failed")
    return seconds, cpu


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.durable", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--chains", type=int, default=100)
    parser.add_argument("--fans", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Path(folder), arguments.chains, arguments.fans))
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
