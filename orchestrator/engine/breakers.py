"""Circuit breakers as a process knows them: a memory of a second over the shared documents.

A healthy dependency costs one read per second and process, and no write: outcomes are counted in
memory, and written only when there are enough failures to matter. Trouble with the store never
stops a task: a breaker spares a dependency, it must not become an outage of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.domain import breakers as rules_of
from orchestrator.domain.breakers import Breaker, BreakerStatus, Gate, Taken, Verdict
from orchestrator.domain.topology import CONTROL
from orchestrator.engine import breaker_docs
from orchestrator.engine.breakers_known import Known, is_fresh
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import NewerSchema
from orchestrator.engine.lru import Lru
from orchestrator.ports import Conflict, NotFound, PreconditionFailed, StoreError, Unavailable

log = logging.getLogger(__name__)

TRIES = 20
"""ETag conflicts in a row before a change is given up."""
REMEMBERED = 5_000
ALIVE_MS = 120_000
"""Postponed tasks come back within this after their breaker lets them; until then their silence is
no loss. Above the longest postponement (`gate.MAX_WAIT_MS`, one and a half times)."""
_LEVEL = {BreakerStatus.CLOSED: 0, BreakerStatus.HALF_OPEN: 1, BreakerStatus.OPEN: 2}

Step = Callable[[Breaker], Breaker]


@dataclass(slots=True)
class _Names:
    """The tenant's list as it was read last."""

    names: tuple[str, ...] = ()
    read_at: int | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Breakers:
    """All breakers, for one process: `engine.part(Breakers)`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: Lru[Known] = Lru(REMEMBERED)
        self._lists: Lru[_Names] = Lru(REMEMBERED)

    async def state(self, tenant: str, dependency: str) -> Breaker | None:
        """The breaker, at most a second old; None if the store cannot tell. Never raises."""
        return (await self._current(tenant, dependency)).breaker

    async def pass_gate(self, tenant: str, dependency: str, token: str) -> tuple[Gate, Breaker]:
        """Whether a task may run now; `PROBE` if it has the probe, named `token`. Never raises:
        while the store is in trouble, tasks run."""
        known = await self._current(tenant, dependency)
        breaker = known.breaker
        if breaker is None:
            return Gate.RUN, Breaker(tenant=tenant, dependency=dependency)
        now = self._engine.clock.now()
        gate = rules_of.admit(breaker, now, known.seen_at)
        if gate is not Gate.PROBE:
            return gate, breaker

        def take(before: Breaker) -> Breaker:
            return rules_of.take_probe(
                before, token, now=now, seen_at=known.seen(before, now), rules=self.rules
            )

        try:
            after = await self._promptly(tenant, dependency, take)
        except _TROUBLE as error:
            self._trouble("breaker.probe_not_taken", dependency, error)
            return Gate.RUN, breaker
        if after.probe is not None and after.probe.token == token:
            return Gate.PROBE, after
        return rules_of.admit(after, now, known.seen_at), after

    async def report(
        self,
        tenant: str,
        dependency: str,
        verdict: Verdict,
        *,
        error: str = "",
        probe: Taken | None = None,
    ) -> None:
        """Take in how an attempt ended: `error` is the failure's type, `probe` set if
        it was one. Written only if it changes something. Never raises."""
        now, known = self._engine.clock.now(), self._entry(tenant, dependency)
        if verdict is not Verdict.NEUTRAL:
            known.count(now, verdict, error, self.rules)
        if probe is not None:

            def end(before: Breaker) -> Breaker:
                return rules_of.probed(
                    before, probe, verdict, now=now, rules=self.rules, error=error
                )

            try:
                await self._promptly(tenant, dependency, end)
            except _TROUBLE as trouble:
                self._trouble("breaker.probe_not_told", dependency, trouble)
        elif verdict is Verdict.FAILURE and self._worth_telling(known):
            async with known.telling:  # of many failures at once, one writes for all
                if self._worth_telling(known):
                    await self._tell(tenant, dependency, known)

    async def _tell(self, tenant: str, dependency: str, known: Known) -> None:
        now, worker = self._engine.clock.now(), self._engine.worker
        counts, failures = known.counted(now, self.rules)

        def step(before: Breaker) -> Breaker:
            return rules_of.trip(before, worker, counts, known.errors, now=now, rules=self.rules)

        known.told, known.told_at = failures, now
        try:
            await self._promptly(tenant, dependency, step)
        except _TROUBLE as trouble:
            known.untold()
            self._trouble("breaker.not_told", dependency, trouble)

    def _worth_telling(self, known: Known) -> bool:
        return known.worth_telling(self._engine.worker, self._engine.clock.now(), self.rules)

    async def names(self, tenant: str) -> tuple[str, ...]:
        """Names of the tenant's breakers, latest first, at most a second old. Never raises: on
        trouble what was known last."""
        known = self._names(tenant)
        async with known.lock:
            if not self._fresh(known.read_at):
                known.read_at = self._engine.clock.now()
                try:
                    async with asyncio.timeout(self._seconds):
                        known.names = tuple((await self._read_names(tenant))[0])
                except _TROUBLE as error:
                    self._trouble("breaker.list_not_read", "", error)
        return known.names

    async def postponed(self, tenant: str, dependency: str | None) -> bool:
        """Whether tasks of this dependency wait for its breaker, or may still be on their way back;
        None: of any of the tenant's. Their silence is then no loss. Not so if the breaker's time
        has long been over: then nobody is there any more to probe it."""
        if dependency is None:
            for name in await self.names(tenant):
                if await self.postponed(tenant, name):
                    return True
            return False
        known = await self._current(tenant, dependency)
        breaker = known.breaker
        if breaker is None:
            return False
        now = self._engine.clock.now()
        if breaker.status is BreakerStatus.CLOSED:
            return breaker.closed_at is not None and now - breaker.closed_at < ALIVE_MS
        if breaker.status is BreakerStatus.HALF_OPEN:
            until = breaker.probe.until if breaker.probe else breaker.updated_at
        else:
            due = rules_of.due(breaker, known.seen_at)
            until = now if due is None else due
        return now < until + ALIVE_MS

    async def change(self, tenant: str, dependency: str, step: Step) -> tuple[Breaker, bool]:
        """Read, apply `step`, write by ETag, again while somebody else is faster; the breaker, and
        whether it was changed. Raises what the store raises, and `NewerSchema`."""
        store, known = self._engine.store, self._entry(tenant, dependency)
        for _ in range(TRIES):
            before, etag = await self._read(tenant, dependency)
            after = step(before)
            if after == before:
                self._adopt(known, before)
                return before, False
            body = breaker_docs.to_doc(after)
            try:
                if etag is None or before.status is BreakerStatus.CLOSED:
                    await self._list(tenant, dependency)  # it may have made room for others
                if etag is None:
                    await store.create(CONTROL, (body["id"],), body)
                else:
                    await store.replace(CONTROL, (body["id"],), body, if_match=etag)
            except (Conflict, PreconditionFailed, NotFound):
                continue
            self._adopt(known, after)
            if before.status is not after.status:
                self._changed(after)
            return after, True
        raise Unavailable(f"the breaker of {dependency} changes too fast")

    async def read(self, tenant: str, dependency: str) -> tuple[Breaker, bool]:
        """The stored breaker, and whether there is one. Raises what the store raises."""
        breaker, etag = await self._read(tenant, dependency)
        self._adopt(self._entry(tenant, dependency), breaker)
        return breaker, etag is not None

    async def stored_names(self, tenant: str) -> list[str]:
        """The list itself. Raises what the store raises."""
        return (await self._read_names(tenant))[0]

    # --- inside -----------------------------------------------------------------------------------

    @property
    def rules(self) -> rules_of.BreakerRules:
        """The rules in force."""
        return self._engine.tunables.breaker

    @property
    def _seconds(self) -> float:
        return self._engine.tunables.fast_path_ms / 1000

    def _entry(self, tenant: str, dependency: str) -> Known:
        known = self._known.get((tenant, dependency))
        if known is None:
            known = Known()
            self._known.put((tenant, dependency), known)
        return known

    def _names(self, tenant: str) -> _Names:
        known = self._lists.get(tenant)
        if known is None:
            known = _Names()
            self._lists.put(tenant, known)
        return known

    def _fresh(self, read_at: int | None) -> bool:
        return is_fresh(read_at, self._engine.clock.now())

    async def _current(self, tenant: str, dependency: str) -> Known:
        known = self._entry(tenant, dependency)
        if self._fresh(known.read_at):
            return known
        async with known.lock:  # the others wait for this reading instead of reading too
            if self._fresh(known.read_at):
                return known
            try:
                async with asyncio.timeout(self._seconds):
                    self._adopt(known, (await self._read(tenant, dependency))[0])
            except _TROUBLE as error:
                known.breaker, known.read_at = None, self._engine.clock.now()
                self._trouble("breaker.not_read", dependency, error)
        return known

    async def _promptly(self, tenant: str, dependency: str, step: Step) -> Breaker:
        async with asyncio.timeout(self._seconds):
            return (await self.change(tenant, dependency, step))[0]

    async def _read(self, tenant: str, dependency: str) -> tuple[Breaker, str | None]:
        id = breaker_docs.breaker_id(tenant, dependency)
        try:
            doc = await self._engine.store.read(CONTROL, (id,), id)
        except NotFound:
            return Breaker(tenant=tenant, dependency=dependency), None
        return breaker_docs.from_doc(doc.body), doc.etag

    async def _read_names(self, tenant: str) -> tuple[list[str], str | None]:
        id = breaker_docs.list_id(tenant)
        try:
            doc = await self._engine.store.read(CONTROL, (id,), id)
        except NotFound:
            return [], None
        return list(doc.body["names"]), doc.etag

    async def _list(self, tenant: str, dependency: str) -> None:
        """Put the name at the head of the tenant's list, unless it is there."""
        store = self._engine.store
        for _ in range(TRIES):
            names, etag = await self._read_names(tenant)
            if dependency in names:
                break
            if len(names) >= breaker_docs.MAX_LISTED:
                names.remove(await self._least(tenant, names))
            body = breaker_docs.list_doc(tenant, [dependency, *names])
            try:
                if etag is None:
                    await store.create(CONTROL, (body["id"],), body)
                else:
                    await store.replace(CONTROL, (body["id"],), body, if_match=etag)
            except (Conflict, PreconditionFailed, NotFound):
                continue
            break
        else:
            raise Unavailable("the list of breakers changes too fast")
        self._names(tenant).read_at = None  # our own change must be known here at once

    async def _least(self, tenant: str, names: list[str]) -> str:
        """The name that can go: the oldest whose breaker is closed, or else the oldest. An open one
        that is not listed would be found by nobody."""
        for name in names[: -1 - TRIES : -1]:
            if (await self._read(tenant, name))[0].status is BreakerStatus.CLOSED:
                return name
        return names[-1]

    def _adopt(self, known: Known, breaker: Breaker) -> None:
        """This is how it is now."""
        known.adopt(breaker, self._engine.clock.now())
        if breaker.updated_at:
            label = f"{breaker.tenant}:{breaker.dependency}"
            self._engine.metrics.gauge("weft_breaker_state", label, _LEVEL[breaker.status])

    def _changed(self, breaker: Breaker) -> None:
        self._engine.metrics.count("weft_breaker_transitions_total", breaker.status.value)
        log.warning(
            "circuit breaker is %s",
            breaker.status.value,
            extra={
                "action": "breaker.changed",
                "tenant": breaker.tenant,
                "dependency": breaker.dependency,
                "until": breaker.until,
                "manual": breaker.manual,
            },
        )

    def _trouble(self, action: str, dependency: str, error: BaseException) -> None:
        self._engine.metrics.count("weft_breaker_trouble_total")
        log.warning(
            "breaker not used, tasks run: %s",
            type(error).__name__,
            extra={"action": action, "dependency": dependency},
        )


_TROUBLE = (StoreError, NewerSchema, TimeoutError, KeyError, ValueError, TypeError)
"""What reading or writing a breaker may raise, also if its document is damaged."""
