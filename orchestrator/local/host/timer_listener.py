"""Fires a timer function once per due time, never two at a time.

A call that lasts longer than the interval swallows the due times in between, as on the real host.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

from azure.functions.timer import TimerRequest

from orchestrator.functions.http_errors import stack
from orchestrator.local.host.indexing import TimerBinding
from orchestrator.local.host.invoke import Invoker
from orchestrator.ports import Clock

logger = logging.getLogger("orchestrator.local.host")

PAST_DUE_MS: Final = 1_000
"""A call this much later than due is called past due."""
SET_BACK_MS: Final = 60_000
"""A clock that was set back further begins anew: waiting for what was due next would stop the
sweeper for as long."""
_LONGEST_SLEEP_MS: Final = 60_000
"""The wall clock may be set while we sleep, so it is looked at again this often."""


class TimerListener:
    """One timer function. `run` goes on until it is cancelled."""

    def __init__(self, invoker: Invoker, binding: TimerBinding, clock: Clock) -> None:
        self.invoker = invoker
        self._binding = binding
        self._clock = clock
        self._last: int | None = None

    async def run(self) -> None:
        """Wait for each due time and fire."""
        if self._binding.run_on_startup:
            await self.fire(self._clock.now())
        due = self._binding.schedule.next_after(self._clock.now())
        while True:
            while (left := due - (now := self._clock.now())) > 0:
                if (sooner := self._binding.schedule.next_after(now)) < due - SET_BACK_MS:
                    due = sooner
                    continue
                await self._clock.sleep(min(left, _LONGEST_SLEEP_MS))
            await self.fire(due)
            # From the later of both: a clock that was set back must not fire this due time again.
            due = self._binding.schedule.next_after(max(due, self._clock.now()))

    async def fire(self, due: int) -> None:
        """Call the function for the due time `due`. What it raises is logged."""
        following = self._binding.schedule.next_after(due)
        request = TimerRequest(
            past_due=self._clock.now() - due > PAST_DUE_MS,
            schedule_status={
                "Last": _iso(self._last if self._last is not None else due),
                "Next": _iso(following),
                "LastUpdated": _iso(self._last if self._last is not None else due),
            },
            schedule={"AdjustForDST": True},
        )
        self._last = due
        name = self.invoker.function.name
        try:
            await self.invoker(request)
        except Exception as error:
            logger.error(
                "timer function failed: %s\n%s",
                type(error).__name__,
                stack(error),
                extra={"action": "timer_failed", "function": name},
            )


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()
