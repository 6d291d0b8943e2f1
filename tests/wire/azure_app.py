"""One worker process of the whole app in Azure mode, against the wire servers.

    python -m tests.wire.azure_app [--hang-after N]

Settings come from the environment. HTTP and change feed are served by the embedded host, which gets
the Cosmos store; the queues by `BusListener`. Timers tick every second, so that a test need not
wait for a quarter of a minute. Prints its address when ready; stops cleanly on SIGTERM. With
`--hang-after` every activity call after the first N never ends; each is printed as a line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from azure.functions.timer import TimerRequest
from azure.servicebus.aio import ServiceBusClient

from activities.runner import default_runner
from orchestrator import bootstrap
from orchestrator.engine.core import Engine
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host.host import FEED, HTTP, HostOptions, LocalHost
from orchestrator.local.host.host_json import WEFT
from orchestrator.local.host.indexing import QueueBinding, TimerBinding
from orchestrator.local.host.invoke import Invoker
from orchestrator.ports import ActivityCall, ActivityRunner
from orchestrator.settings import load_settings
from orchestrator.settings_egress import LOOPBACK
from tests.wire.bus_listener import BusListener

TICK_S: Final = 1.0
SINGLES: Final = 16  # tasks at once in a worker


class Hanging:
    """Runs `calls` activities, then none to its end: a worker that will be found dead at work."""

    def __init__(self, runner: ActivityRunner, calls: int) -> None:
        self._runner = runner
        self._left = calls

    def names(self) -> frozenset[str]:
        return self._runner.names()

    def dependency(self, activity: str) -> str | None:
        return self._runner.dependency(activity)

    def stuck(self) -> int:
        return self._runner.stuck()

    async def close(self) -> None:
        await self._runner.close()

    async def run(self, call: ActivityCall) -> Any:
        if self._left <= 0:
            _say(json.dumps([call.execution, call.task, call.item]))
            await asyncio.Event().wait()
        self._left -= 1
        return await self._runner.run(call)


async def main(hang_after: int | None) -> None:
    """Serve until SIGTERM."""
    environment = dict(os.environ)
    runner: ActivityRunner = default_runner(egress_allow=LOOPBACK)
    if hang_after is not None:
        runner = Hanging(runner, hang_after)
    engine = await bootstrap.build(load_settings(), activities=runner)

    async def built() -> Engine:
        return engine

    provider = EngineProvider(built)
    await provider.get()
    host = LocalHost(
        compose(provider),
        provider=provider,
        broker=Unused(),
        store=engine.store,
        clock=engine.clock,
        host_json=WEFT,
        options=HostOptions(roles=frozenset({HTTP, FEED}), settings=environment, feed_poll_ms=200),
    )
    pool, stopping = ThreadPoolExecutor(), asyncio.Event()
    client = ServiceBusClient.from_connection_string(environment["ServiceBus"], retry_total=0)
    loops: list[Coroutine[Any, Any, None]] = []
    for function in host.functions:
        invoker = Invoker(function, pool, WEFT.function_timeout_ms)
        if isinstance(function.binding, QueueBinding):
            limit = WEFT.max_message_batch_size if function.binding.many else SINGLES
            loops.append(BusListener(invoker, function.binding, client, limit).run(stopping))
        elif isinstance(function.binding, TimerBinding):
            loops.append(_tick(invoker, stopping))
    running = [asyncio.create_task(loop) for loop in loops]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    try:
        await host.start()
        _say(host.url)
        await stopping.wait()
        await asyncio.gather(*running)
    finally:
        await client.close()
        await host.stop()


async def _tick(timer: Invoker, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await asyncio.sleep(TICK_S)
        await timer(TimerRequest(past_due=False, schedule_status={}, schedule={}))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Unused:
    """The embedded host's broker: its queue listeners are not started."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nothing may use the broker: {name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--hang-after", type=int)
    asyncio.run(main(parser.parse_args().hang_after))
