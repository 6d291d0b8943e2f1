"""What a process of the embedded host needs for the durable functions of its app: the file, the hub
and the RPC. Without such functions nothing of this is made.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.local.durable.grouping import Grouped
from orchestrator.local.durable.hub import Hub
from orchestrator.local.durable.rpc import Rpc
from orchestrator.local.durable.store import DurableStore
from orchestrator.local.host.indexing import (
    ActivityBinding,
    IndexedFunction,
    OrchestrationBinding,
)
from orchestrator.local.host.invoke import Invoker
from orchestrator.ports import Clock

FILE: Final = "durable.db"
ORCHESTRATOR_THREADS: Final = 4
"""Orchestrators have threads of their own: plain activities that sleep must not hold them up."""


class DurableService:
    """Of one process. `start`, then `stop`."""

    def __init__(self, functions: Sequence[IndexedFunction], timeout_ms: int) -> None:
        self._pool = ThreadPoolExecutor(ORCHESTRATOR_THREADS, thread_name_prefix="orchestrator")
        self._orchestrators = {
            function.binding.name: Invoker(function, self._pool, timeout_ms)
            for function in functions
            if isinstance(function.binding, OrchestrationBinding)
        }
        self._activities: dict[str, Invoker] = {}
        self._clients: list[Invoker] = []
        self.hub: Hub | None = None
        self._rpc: Rpc | None = None
        self._store: Grouped | None = None

    def bind(self, invoker: Invoker) -> None:
        """Take notice of a function of the app that is no orchestrator."""
        if isinstance(invoker.function.binding, ActivityBinding):
            self._activities[invoker.function.binding.name] = invoker
        if invoker.function.clients:
            self._clients.append(invoker)

    async def start(self, data: Path, url: str, clock: Clock) -> Hub:
        """Open the file in `data` and serve clients. `url`: the host's own. The hub's loop is the
        caller's to run."""
        store = await asyncio.to_thread(DurableStore, data / FILE)
        self._store = Grouped(store)
        self.hub = Hub(
            store,
            orchestrators=self._orchestrators,
            activities=self._activities,
            plain={
                name: partial(_call, invoker.function)
                for name, invoker in self._orchestrators.items()
            },
            clock=clock,
            new_id=lambda: uuid.uuid4().hex,
            call=self._store,
        )
        self._rpc = Rpc(self.hub)
        await self._rpc.start()
        binding = self._rpc.binding(url)
        for invoker in self._clients:
            invoker.inputs.update(dict.fromkeys(invoker.function.clients, binding))
        return self.hub

    async def stop(self, grace_ms: int) -> None:
        """Let what runs end within the grace, then close. The hub's loop has ended before.
        Idempotent."""
        hub, self.hub = self.hub, None
        if hub is not None:
            await hub.drain(grace_ms)
            if self._rpc is not None:
                await self._rpc.stop()
            if self._store is not None:
                await self._store.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _call(function: IndexedFunction, context: str) -> str:
    return function.call(**{function.parameter: context})
