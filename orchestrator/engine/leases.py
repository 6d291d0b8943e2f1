"""Keeps the leases of running attempts alive, and tells them when to stop.

One loop per process looks at all claims every third of a lease: most attempts end before it comes
to them and cost nothing. Renewal goes by the claim's ETag: if it fails, somebody took over, and
the attempt is told so; its late result cannot be written any more.
"""

from __future__ import annotations

import asyncio
import logging

from orchestrator.domain.status import SETTLED_CODES, TERMINAL_EXECUTION
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import leasing
from orchestrator.engine.claims import Claim
from orchestrator.engine.core import Engine
from orchestrator.ports import NotFound, PreconditionFailed, StoreError

log = logging.getLogger(__name__)

RENEW_AGAIN_MS = 500
"""Before an activity begins, after a renewal that the store did not take."""


class LeaseKeeper:
    """The claims of one process. The loop runs only while there are any."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._claims: dict[str, Claim] = {}
        self._loop: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._claims)

    def add(self, claim: Claim) -> None:
        """Keep this claim alive until `remove`."""
        self._claims[claim.token] = claim
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._keep(), name="weft-leases")

    def remove(self, claim: Claim) -> None:
        """The attempt has ended."""
        self._claims.pop(claim.token, None)

    async def may_begin(self, claim: Claim) -> bool:
        """Whether the activity of `claim` may begin now. A lease that was not written just now
        (the claim's answer or an input took long) is renewed first, by its ETag: somebody may have
        ended the task meanwhile, by its deadline also while the lease is valid. Tries until the
        lease ends if the store does not answer."""
        engine = self._engine
        while not claim.lost and engine.clock.now() < claim.doc["lease"]["until"]:
            age = abs(engine.clock.now() - claim.doc["lease"]["beatAt"])
            if age < engine.tunables.lease_ms // 3:
                return True
            beat = claim.doc["lease"]["beatAt"]
            await self._renew(claim)
            if claim.doc["lease"]["beatAt"] == beat and not claim.lost:
                await engine.clock.sleep(RENEW_AGAIN_MS)
        return False

    async def close(self) -> None:
        """Stop renewing."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            self._loop = None

    async def _keep(self) -> None:
        engine = self._engine
        period = max(1, engine.tunables.lease_ms // 3)
        while self._claims:
            await engine.clock.sleep(period)
            now = engine.clock.now()
            due = [
                claim
                for claim in self._claims.values()
                if not claim.lost
                # Both ways: after the clock was set back, cancels are still to be heard of.
                and abs(now - claim.doc["lease"]["beatAt"]) >= period
                # Its result is being written, patiently if the store throttles: the others must
                # not lose their leases over waiting for that.
                and not claim.lock.locked()
            ]
            await asyncio.gather(*(self._renew(claim) for claim in due))

    async def _renew(self, claim: Claim) -> None:
        engine = self._engine
        async with claim.lock:
            if claim.ended or claim.token not in self._claims:
                return  # while this waited for the lock
            now = engine.clock.now()
            body = {**claim.doc, **leasing.lease(engine, claim.token, now)}
            partition = claim.aggregate.partition
            try:
                claim.etag = await engine.store.replace(
                    EXECUTIONS, partition, body, if_match=claim.etag
                )
                claim.doc = body
            except (PreconditionFailed, NotFound):
                if await self._applied(claim):
                    return
                _stop(claim, lost=True)
                engine.metrics.count("weft_leases_lost_total")
                log.warning(
                    "lease lost, the attempt is told to stop",
                    extra={
                        "action": "lease.lost",
                        "execution": partition[1],
                        "task": claim.doc["task"],
                        "attempt": claim.attempt,
                    },
                )
                return
            except StoreError as error:
                log.warning(
                    "lease not renewed, will be tried again",
                    extra={"action": "lease.not_renewed", "error": type(error).__name__},
                )
                return
        await self._look_at_execution(claim)

    async def _applied(self, claim: Claim) -> bool:
        """Whether an earlier renewal was applied though its answer was lost. The next round then
        renews again."""
        try:
            return await leasing.still_held(self._engine, claim)
        except StoreError:
            return True  # not known: the next round asks again

    async def _look_at_execution(self, claim: Claim) -> None:
        """The heartbeat is how a running task learns that its execution was stopped, or has settled
        the task without it (a map at its deadline, a time limit before compensation)."""
        partition = claim.aggregate.partition
        try:
            found = await self._engine.store.read_many(EXECUTIONS, partition, [partition[1]])
        except StoreError:
            return
        doc = found.get(partition[1])
        settled = doc is not None and ord(doc.body["state"]["tasks"][claim.position])
        if doc is None or settled in SETTLED_CODES or doc.body["status"] in TERMINAL_EXECUTION:
            _stop(claim, lost=False)


def _stop(claim: Claim, *, lost: bool) -> None:
    claim.lost = claim.lost or lost
    if claim.call is not None:
        claim.call.cancelled = True
