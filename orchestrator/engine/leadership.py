"""Who runs the schedules: one leader at a time, and a token that outlives any mistake about it.

Container `control`, partition and id `scheduler`: {owner, token, renewals, released, until, write}.
The token grows with every change of leader. A lease alone is not trusted: a leader may be slow, and
a clock wrong. So every write to a schedule carries the token, and is refused if the schedule has
seen a newer one (`engine/schedule_docs.py`).

Clocks of different machines are never compared. `until` is for people. Who wants to lead must have
seen the document unchanged for a whole lease, measured in small steps on its own clock: a clock
that jumps forward gains one step, and no more.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from orchestrator.domain.topology import CONTROL, SCHEMA_VERSION
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import Conflict, Document, NotFound, PreconditionFailed, StoreError

log = logging.getLogger(__name__)

ID: Final = "scheduler"
PARTITION: Final = (ID,)
STEPS: Final = 3
"""A leader renews after a third of the lease; one look of a waiting one counts as no more."""


class Leadership:
    """This process's view of the lease. Used by one pass at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._step = max(1, engine.tunables.scheduler_lease_ms // STEPS)
        self._mine: Document | None = None  # the lease as this process wrote it, while it leads
        self._renewed = 0
        self._seen = ""  # etag of another leader's lease, and
        self._looked = 0  # when it was last looked at, and
        self._waited = 0  # how long it has not changed since, in capped steps
        self._floor = 0  # the highest token met in a schedule

    async def hold(self) -> int | None:
        """Take or keep the leadership; the fencing token, or None: somebody else leads. Cheap while
        the lease is fresh. Raises `StoreError` if the store does not answer."""
        now = self._engine.clock.now()
        if self._mine is not None:
            token: int = self._mine.body["token"]
            if 0 <= now - self._renewed < self._step:
                return token
            if await self._write(now, token, self._mine):
                return token
        return await self._contend(now)

    def lost(self, token: int) -> None:
        """A schedule was written by a leader with this newer token. The next own token is above it:
        should the lease have been deleted, leaders do not begin again below what they wrote."""
        self._floor = max(self._floor, token)
        if self._mine is not None:
            self._mine = None
            self._seen = ""
            self._engine.metrics.count("weft_scheduler_deposed_total")

    async def close(self) -> None:
        """Hand the leadership back, so that the next one need not wait for the lease to end."""
        if self._mine is None:
            return
        body = {**self._mine.body, "released": True}
        etag, self._mine = self._mine.etag, None
        try:
            await self._engine.store.replace(CONTROL, PARTITION, body, if_match=etag)
        except StoreError:
            log.info("leadership not handed back", extra={"action": "scheduler.release_failed"})

    async def _contend(self, now: int) -> int | None:
        try:
            found = await patiently(self._engine, self._engine.store.read, CONTROL, PARTITION, ID)
        except (NotFound, Unclear):
            token = self._floor + 1
            return token if await self._write(now, token, None) else None
        if not found.body["released"]:
            if found.etag != self._seen:
                self._seen, self._looked, self._waited = found.etag, now, 0
                return None
            self._waited += max(0, min(now - self._looked, self._step))
            self._looked = now
            if self._waited < self._engine.tunables.scheduler_lease_ms:
                return None
        token = max(int(found.body["token"]), self._floor) + 1
        if not await self._write(now, token, found):
            return None
        log.info("scheduler leads", extra={"action": "scheduler.leads", "token": token})
        self._engine.metrics.count("weft_scheduler_takeovers_total")
        return token

    async def _write(self, now: int, token: int, over: Document | None) -> bool:
        """Whether the lease is ours now."""
        engine = self._engine
        body: dict[str, Any] = {
            "id": ID,
            "type": "lease",
            "v": SCHEMA_VERSION,
            "owner": engine.worker,
            "token": token,
            "renewals": 0 if over is None else int(over.body["renewals"]) + 1,
            "released": False,
            "until": now + engine.tunables.scheduler_lease_ms,
            "write": engine.ids.new(),  # tells whose write it was when an answer is lost
        }
        self._mine = None
        try:
            if over is None:
                etag = await patiently(engine, engine.store.create, CONTROL, PARTITION, body)
            else:
                etag = await patiently(
                    engine, engine.store.replace, CONTROL, PARTITION, body, if_match=over.etag
                )
        except (Conflict, PreconditionFailed, NotFound):
            self._seen = ""
            return False
        except Unclear:
            self._seen = ""
            found = await patiently(engine, engine.store.read_many, CONTROL, PARTITION, [ID])
            if ID not in found or found[ID].body["write"] != body["write"]:
                return False
            etag = found[ID].etag
        self._mine, self._renewed = Document(ID, body, etag), now
        return True
