"""The engine of this process, built when the first trigger needs it.

The Functions worker imports the app before its event loop serves anything, and SDK clients belong
to the loop that they were made on; so nothing may be built at import time. Building per invocation
instead would leak connections (one client per process is the rule of every Azure SDK).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from orchestrator.domain.errors import UnavailableError
from orchestrator.engine.core import Engine

logger = logging.getLogger("orchestrator.functions")


class EngineProvider:
    """Builds the engine once and hands it out; see the module's docstring."""

    def __init__(
        self,
        build: Callable[[], Awaitable[Engine]],
        *,
        learn: Callable[[str], None] | None = None,
    ) -> None:
        """`build` is called on the running event loop, at most once at a time. `learn` takes what
        a `durableClient` binding gave; without it no function has one."""
        self._build = build
        self.learn = learn
        self._engine: Engine | None = None
        self._building: asyncio.Task[Engine] | None = None
        self._closed = False

    @property
    def ready(self) -> bool:
        """Whether the engine has been built."""
        return self._engine is not None

    async def get(self) -> Engine:
        """The engine. Callers that come while it is being built share that one build, its failure
        too; the next call after a failure tries again.

        Raises `UnavailableError` if it cannot be built (the log has the reason: it may name hosts
        and accounts, which are not for callers) or if it has been closed.
        """
        if self._engine is not None:
            return self._engine
        if self._closed:
            raise UnavailableError("this process is shutting down; try again", code="STOPPING")
        if self._building is None:
            self._building = asyncio.create_task(self._build_once(), name="build-engine")
        # Shielded, so that a caller who gives up does not take the others' engine with it.
        return await asyncio.shield(self._building)

    async def close(self) -> None:
        """Close the engine, if there is one, and refuse to build another. Idempotent."""
        self._closed = True
        if self._building is not None:
            await asyncio.gather(self._building, return_exceptions=True)
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    async def _build_once(self) -> Engine:
        try:
            self._engine = await self._build()
        except Exception as error:
            logger.exception("engine not built", extra={"action": "build_engine"})
            raise UnavailableError(
                f"the engine could not be started ({type(error).__name__}); "
                "the log of this process says why, and the next request tries again",
                code="ENGINE_UNAVAILABLE",
            ) from error
        finally:
            self._building = None
        return self._engine
