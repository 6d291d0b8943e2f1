"""Calls a function of the app: on the event loop or in the thread pool, under `functionTimeout`."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from concurrent.futures import Executor
from functools import partial
from types import SimpleNamespace
from typing import Any

from orchestrator.local.host.indexing import IndexedFunction


class InvocationError(Exception):
    """The host, not the function, calls the invocation failed."""


class Invoker:
    """One function, ready to be called with the trigger's value."""

    __slots__ = ("_idle", "_pool", "_running", "_timeout_s", "calls", "function", "inputs")

    def __init__(self, function: IndexedFunction, pool: Executor, timeout_ms: int) -> None:
        self.function = function
        self.calls = 0  # begun so far
        self.inputs: dict[str, Any] = {}  # values of its input bindings, by parameter
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._pool = pool
        self._timeout_s = timeout_ms / 1000

    @property
    def idle(self) -> bool:
        """No call is running."""
        return not self._running

    async def wait_idle(self, timeout_ms: int) -> None:
        """Wait until no call is running, but not longer than `timeout_ms`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_ms / 1000)

    async def __call__(self, value: Any) -> Any:
        """Run it once; what it returned.

        Raises whatever the function raised, and `InvocationError` when it ran longer than
        `functionTimeout` (a plain function's thread goes on: the real host would end the whole
        worker process) or returned a value that no binding takes."""
        function = self.function
        arguments = {function.parameter: value, **self.inputs}
        if function.wants_context:
            arguments["context"] = _context(function.name)
        limit = asyncio.timeout(self._timeout_s)
        self.calls += 1
        self._running += 1
        self._idle.clear()
        try:
            async with limit:
                if function.is_async:
                    result = await function.call(**arguments)
                else:
                    result = await asyncio.get_running_loop().run_in_executor(
                        self._pool, partial(function.call, **arguments)
                    )
        except TimeoutError as error:
            if limit.expired():
                raise InvocationError(
                    f"{function.name} ran longer than functionTimeout ({self._timeout_s:g} s)"
                ) from error
            raise
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
        if result is not None and not function.returns:
            raise InvocationError(f"{function.name} without a $return binding returned a value")
        return result


def _context(name: str) -> Any:
    """What `func.Context` shows; the class itself is abstract."""
    return SimpleNamespace(
        invocation_id=str(uuid.uuid4()),
        function_name=name,
        function_directory="",
        retry_context=SimpleNamespace(retry_count=0, max_retry_count=0, exception=None),
        trace_context=SimpleNamespace(trace_parent="", trace_state="", attributes={}),
    )
