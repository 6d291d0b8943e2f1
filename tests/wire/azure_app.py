"""One worker process of the whole app in Azure mode, against the wire servers.

    python -m tests.wire.azure_app [--hang-after N]

Settings come from the environment. The triggers are fired as the host does, by the embedded host's
listeners: they need a receiver and a store, and get the real SDKs'. The sweeper's timer ticks every
second, so that a test need not wait for a quarter of a minute. Prints its address when ready; stops
cleanly on SIGTERM. With `--hang-after` every activity call after the first N never ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from azure.functions.timer import TimerRequest

from activities.runner import default_runner
from orchestrator import bootstrap
from orchestrator.engine.core import Engine
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host import HostOptions, LocalHost
from orchestrator.local.host.host import FEED, HTTP, QUEUE
from orchestrator.local.host.host_json import WEFT
from orchestrator.local.host.invoke import Invoker
from orchestrator.local.host.serve import run
from orchestrator.ports import ActivityCall, ActivityRunner
from orchestrator.settings import load_settings
from tests.wire.servicebus_receiver import ServiceBusReceiverAdapter

TICK_S: Final = 1.0


class Hanging:
    """Runs `calls` activities, then none to its end: a worker that will be found dead at work."""

    def __init__(self, runner: ActivityRunner, calls: int) -> None:
        self._runner = runner
        self._left = calls

    def names(self) -> frozenset[str]:
        return self._runner.names()

    def stuck(self) -> int:
        return self._runner.stuck()

    async def run(self, call: ActivityCall) -> Any:
        if self._left <= 0:
            await asyncio.Event().wait()
        self._left -= 1
        return await self._runner.run(call)


async def main(hang_after: int | None) -> int:
    """Serve until SIGTERM; the exit code."""
    environment = dict(os.environ)
    runner: ActivityRunner = default_runner()
    if hang_after is not None:
        runner = Hanging(runner, hang_after)
    engine = await bootstrap.build(load_settings(), activities=runner)

    async def built() -> Engine:
        return engine

    provider = EngineProvider(built)
    await provider.get()
    receiver = ServiceBusReceiverAdapter(environment["ServiceBus"])
    host = LocalHost(
        compose(provider),
        provider=provider,
        broker=receiver,
        store=engine.store,
        clock=engine.clock,
        host_json=WEFT,
        options=HostOptions(
            roles=frozenset({HTTP, QUEUE, FEED}), settings=environment, feed_poll_ms=200
        ),
    )
    [sweeper] = [function for function in host.functions if function.name == "sweeper"]
    ticking = asyncio.create_task(_tick(Invoker(sweeper, ThreadPoolExecutor(), 60_000)))
    try:
        return await run(host, on_ready=_say)
    finally:
        ticking.cancel()
        await receiver.close()


async def _tick(sweeper: Invoker) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        await sweeper(TimerRequest(past_due=False, schedule_status={}, schedule={}))


def _say(url: str) -> None:
    sys.stdout.write(url + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--hang-after", type=int)
    raise SystemExit(asyncio.run(main(parser.parse_args().hang_after)))
