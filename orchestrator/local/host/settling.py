"""Settles messages in bulk, beside the functions: one broker call for all that ended meanwhile.

A function's slot is free as soon as it returned; its message is completed a moment later. If the
process dies in between, the message comes again, which consumers expect anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from orchestrator.ports import MessageLockLost, Received, Receiver, TransportError

logger = logging.getLogger("orchestrator.local.host")


class Settler:
    """Collects outcomes of one queue's deliveries. All methods belong to one event loop."""

    def __init__(self, broker: Receiver, queue: str) -> None:
        self._broker = broker
        self._queue = queue
        self._completed: list[Received] = []
        self._abandoned: list[Received] = []
        self._flushing: asyncio.Task[None] | None = None

    def complete(self, deliveries: Sequence[Received]) -> None:
        """These are done."""
        self._completed += deliveries
        self._wake()

    def abandon(self, deliveries: Sequence[Received]) -> None:
        """These failed: they come again at once, counted, or go to the dead-letter queue."""
        self._abandoned += deliveries
        self._wake()

    @property
    def idle(self) -> bool:
        """Nothing waits to be settled."""
        return self._flushing is None

    async def flush(self) -> None:
        """Wait until everything handed over so far is settled, or was refused."""
        while self._flushing is not None:
            await asyncio.shield(self._flushing)

    def _wake(self) -> None:
        # The task begins in the next turn of the loop: whatever ends in this one goes along.
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name=f"settle-{self._queue}")

    async def _flush(self) -> None:
        try:
            while self._completed or self._abandoned:
                completed, self._completed = self._completed, []
                abandoned, self._abandoned = self._abandoned, []
                if completed:
                    await self._settle(self._broker.complete_many(completed))
                await asyncio.gather(*(self._settle(self._broker.abandon(d)) for d in abandoned))
        finally:
            self._flushing = None

    async def _settle(self, settlement: Awaitable[None]) -> None:
        try:
            await settlement
        except MessageLockLost as error:
            logger.warning(
                "locks were lost before settling; these messages come again",
                extra={"action": "lock_lost", "queue": self._queue, "messages": len(error.lost)},
            )
        except TransportError as error:
            logger.warning(
                "messages not settled; they come again when their locks end",
                extra={
                    "action": "settle_failed",
                    "queue": self._queue,
                    "error": type(error).__name__,
                },
            )
