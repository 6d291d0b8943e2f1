"""The worker's gate: whether a task may run now, asked before the claim. Two things can stop it:
its tenant has no slot free (`slots`), or the breaker of what it calls is open (`breakers`).

A task that is stopped here has used no attempt, and its document is not touched. Its message is
sent again as a new one. For a slot that is after a second, then two, and so on up to a minute; for
a breaker when that is due, and a little later by a share derived from the task. This is no hop of
`handback`: it may go on for hours, and the message is dropped only when the task is found to be
settled. One task gets the breaker's probe, and its outcome is told at the end. The slot is held
from before the claim until after the result is recorded.

An `http` task's host is in its definition, unless an expression makes it: then the request is
evaluated here, but only if the tenant has any breaker at all.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from orchestrator.domain import breakers as rules_of
from orchestrator.domain import dependencies
from orchestrator.domain.breakers import Breaker, BreakerStatus, Gate, Taken, Verdict
from orchestrator.domain.messages import Message
from orchestrator.domain.payload import Payload
from orchestrator.domain.workflow import TaskSpec, TaskType
from orchestrator.engine import attempt, claimcheck, handback, outbox, telemetry
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.breakers import Breakers
from orchestrator.engine.claims import Claim, Refusal
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.lru import Lru
from orchestrator.engine.slots import SlotBook

log = logging.getLogger(__name__)

BASE_WAIT_MS: Final = 1_000
MAX_WAIT_MS: Final = 60_000
"""A postponed task looks again after this at the latest: an operator may close the breaker."""
MAX_PROBING_WAIT_MS: Final = 10_000
"""While another task probes: its outcome is near."""
POSTPONED: Final = "postponed"
"""Property that counts how often a message was postponed."""
DUE: Final = "postponedUntil"
"""Property with the time for which it was postponed: tells it from copies of the same task."""
REMEMBERED: Final = 100_000
SLOTS: Final = "slots"


@dataclass(frozen=True, slots=True)
class Postponed(Refusal):
    """The task is not let through; `reason` says by what. `due_at`: when to look again; None:
    another message of the same `task` is on its way already, this copy is settled."""

    task: tuple[object, ...] = ()
    due_at: int | None = None


class _OnTheirWay:
    """Postponed messages that this process has sent, by task and attempt: when they are due. The
    sweeper, a broker or an operator may send the same task again; every copy would live as long as
    the gate is closed. Past that time nothing is taken for a copy: a paused execution drops
    messages, and resuming it sends them anew."""

    def __init__(self, engine: Engine) -> None:
        self.due: Lru[int] = Lru(REMEMBERED)


class Passage:
    """One message at the gate. Use as a context manager around claim and attempt: a probe that was
    taken and not used is given back."""

    def __init__(self, engine: Engine, incoming: Incoming) -> None:
        self._engine = engine
        self._postponed = _number(incoming.properties.get(POSTPONED, ""))
        self._was_due = _number(incoming.properties.get(DUE, ""))
        self._tenant = ""
        self._probe: Taken | None = None
        self._dependency = ""
        self._slot = False

    async def __aenter__(self) -> Passage:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._slot:
            self._engine.part(SlotBook).give_back(self._tenant)
        # A process that is being stopped has no time for this; the probe's own time ends.
        if self._probe and (kind is None or issubclass(kind, Exception)):
            await self._tell(self._dependency, Verdict.NEUTRAL)

    async def admit(
        self, aggregate: Aggregate, spec: TaskSpec, item: int | None, doc: dict[str, Any] | None
    ) -> Refusal | str:
        """Why the task must not be claimed now, or what it calls (`claims.Admit`). Raises
        `StoreError` if it needs a slot and the store cannot tell."""
        self._tenant = aggregate.partition[0]
        key = (*aggregate.partition, spec.id, item, doc["attempt"] if doc is not None else 0)
        slots = self._engine.part(SlotBook)
        slots.came(self._tenant, key)
        slot = await slots.take(self._tenant)
        if slot is False:
            return self._wait(SLOTS, key)
        self._slot = slot is True
        self._dependency = await _dependency(self._engine, aggregate, spec, item, doc)
        if not self._dependency:
            return ""
        token = self._engine.ids.new()
        breakers = self._engine.part(Breakers)
        gate, breaker = await breakers.pass_gate(self._tenant, self._dependency, token)
        if gate is Gate.PROBE:
            self._probe = Taken(token, breaker.opened_at)
        if gate is not Gate.WAIT:
            return self._dependency
        return self._wait("breaker", key, breaker)

    async def done(self, claim: Claim, outcome: attempt.Outcome) -> None:
        """Tell what the attempt says about the dependency. Never raises."""
        call = claim.call
        if call is None:
            return  # its input could not be made: nothing was asked
        dependency = self._dependency
        if claim.spec.type is TaskType.HTTP and isinstance(call.input, dict):
            dependency = dependencies.host_of(call.redactor.value(call.input.get("url")))
        failure = outcome.failure
        verdict = dependencies.verdict(failure)
        if not dependency:
            return
        if dependency == self._dependency:
            await self._tell(dependency, verdict, failure.type if failure else "")
        else:
            error = failure.type if failure else ""
            breakers = self._engine.part(Breakers)
            await breakers.report(self._tenant, dependency, verdict, error=error)

    async def _tell(self, dependency: str, verdict: Verdict, error: str = "") -> None:
        probe, self._probe = self._probe, None
        await self._engine.part(Breakers).report(
            self._tenant, dependency, verdict, error=error, probe=probe
        )

    def _wait(
        self, reason: str, task: tuple[object, ...], breaker: Breaker | None = None
    ) -> Postponed:
        now = self._engine.clock.now()
        sent = self._engine.part(_OnTheirWay).due
        due = sent.get(task)
        # Further ahead than any is postponed: the clock was set back since.
        if due is not None and now < due <= now + 2 * MAX_WAIT_MS and due != self._was_due:
            # One that was called for a slot, and too late, may be called again.
            return Postponed("postponedCopy", task=task if reason == SLOTS else ())
        wait = min(BASE_WAIT_MS << min(self._postponed, 16), MAX_WAIT_MS)
        if breaker is not None and breaker.status is BreakerStatus.HALF_OPEN:
            wait = min(wait, MAX_PROBING_WAIT_MS)
        elif breaker is not None and breaker.until is not None:
            wait = max(BASE_WAIT_MS, min(breaker.until - now, breaker.span_ms, MAX_WAIT_MS))
        key = ":".join(map(str, (*task, self._postponed)))
        wait += rules_of.spread(key, max(BASE_WAIT_MS, wait // 2))
        sent.put(task, now + wait)
        return Postponed(reason, task=task, due_at=now + wait)


async def postpone(
    engine: Engine, message: Message, incoming: Incoming, refusal: Postponed
) -> None:
    """Send the message again, as a new one, due later. Raises `TransportError`."""
    times = _number(incoming.properties.get(POSTPONED, "")) + 1
    if refusal.due_at is None:
        if refusal.task:
            _call_later(engine, message, incoming, refusal, times - 1)
        return
    trace = telemetry.parent_of([incoming])
    extra = {POSTPONED: str(times), DUE: str(refusal.due_at), **handback.lane([incoming])}
    again = outbox.out_message(message, engine.ids.new(), refusal.due_at, trace, extra)
    try:
        await engine.transport.send([again])
    except BaseException:
        # The broker delivers this one again, and it must not be taken for a copy then.
        engine.part(_OnTheirWay).due.drop(refusal.task)
        raise
    engine.metrics.count("weft_postponed_total", refusal.reason)
    if refusal.reason == SLOTS:
        _call_later(engine, message, incoming, refusal, times)


def _call_later(
    engine: Engine, message: Message, incoming: Incoming, refusal: Postponed, times: int
) -> None:
    """Have the task called as soon as a slot is free here; the call is a copy of what is on its
    way."""
    extra = {POSTPONED: str(times), **handback.lane([incoming])}
    trace = telemetry.parent_of([incoming])
    call = outbox.out_message(message, engine.ids.new(), None, trace, extra)
    engine.part(SlotBook).waits(message.tenant, refusal.task, call)


async def _dependency(
    engine: Engine,
    aggregate: Aggregate,
    spec: TaskSpec,
    item: int | None,
    doc: dict[str, Any] | None,
) -> str:
    """What the task calls, "" if nothing or not known before it runs."""
    if spec.type is TaskType.ACTIVITY:
        return engine.activities.dependency(spec.activity) or ""
    if spec.type is not TaskType.HTTP:
        return ""
    edited = doc.get("inputOverride") if doc is not None else None
    if spec.host and edited is None:
        return spec.host
    if not await engine.part(Breakers).names(aggregate.partition[0]):
        return ""
    try:
        if edited is None:
            # A host that is made of a secret has a breaker under the masked name.
            request = await attempt.resolve(engine, aggregate, spec, item)
        else:
            request = await claimcheck.load(engine, Payload.from_doc(edited))
    except Exception as error:
        # The attempt meets the same and records it.
        log.info(
            "dependency not known before the attempt: %s",
            type(error).__name__,
            extra={"action": "gate.unknown", "execution": aggregate.execution, "task": spec.id},
        )
        return ""
    return dependencies.host_of(request.get("url")) if isinstance(request, dict) else ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
