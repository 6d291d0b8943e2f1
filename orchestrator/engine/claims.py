"""Claim a task: the worker's lease in the task document, taken under ETag.

    no document            -> create it, attempt 1
    final                  -> duplicate message, settle
    lease valid            -> somebody works on it, settle
    lease expired          -> that worker died: count its attempt as LEASE_EXPIRED, take over
    retry due              -> next attempt
    waits for a child, a time, a signal  -> have a look, see `waiting`
    retry not yet due      -> its own message will come, settle; only a little early: it is its own

Whoever loses the ETag race settles the message too: the winner runs the task. So one attempt is
never run twice, and several sweepers that see one dead worker count one attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.domain import kin, orchestration
from orchestrator.domain.compensating import gives_back
from orchestrator.domain.deadlines import dispatched_at
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.messages import Message
from orchestrator.domain.retry import is_retryable, next_delay
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.status import (
    SETTLED_CODES,
    TERMINAL_EXECUTION,
    Code,
    ExecutionStatus,
    TaskStatus,
)
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import TaskSpec, TaskType, Workflow
from orchestrator.engine import aggregate as aggregates
from orchestrator.engine import documents, resting, task_docs
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.handback import CLOCK_SKEW_MS, STALE_READ_MS
from orchestrator.engine.leasing import held, lease
from orchestrator.engine.parked import NO_ATTEMPT, Parked, is_parked
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import ActivityCall, Conflict, Document, NotFound, PreconditionFailed


@dataclass(slots=True)
class Claim:
    """A task that this worker holds. `doc` and `etag` change with every renewal, under `lock`."""

    aggregate: Aggregate
    spec: TaskSpec  # what to run: for a map item, the map's `do`
    position: int
    item: int | None
    doc: dict[str, Any]
    etag: str
    token: str
    count: int  # map: number of its items
    failed: int = 0  # map: how many of them have failed, and are tolerated
    call: ActivityCall | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    lost: bool = False
    ended: bool = False  # its result is stored: nothing is left to renew

    @property
    def id(self) -> str:
        """Id of the task document."""
        return self.doc["id"]

    @property
    def attempt(self) -> int:
        """Number of the running attempt, from 1."""
        return self.doc["attempt"]

    @property
    def deadline_at(self) -> int | None:
        """When the task fails if it has not ended. A map's is not its items'."""
        return None if self.item is not None else self.aggregate.state.deadlines.get(self.position)

    @property
    def gathers(self) -> bool:
        """Whether this is a map whose items are done and want to be put together."""
        return self.spec.type is TaskType.MAP


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message needs no work now. `again_ms`: look again after that, the store may lag behind
    or the broker's clock may be ahead of ours; None: never, the message is settled. `over`: the
    execution has settled this task without its worker. `unheard`: the task has a result that came
    before its dispatch; the orchestrator had no use for it then."""

    reason: str
    again_ms: int | None = None
    over: bool = False
    unheard: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The claim ended the task without running it: a final document to be reported."""

    aggregate: Aggregate
    doc: dict[str, Any]
    etag: str | None  # None: the document does not exist yet
    report: bool = True  # False: the execution does not wait for it any more


Admit = Callable[[Aggregate, TaskSpec, int | None, Any], Awaitable[Refusal | str]]
"""Asked before a claim, with the item and the task document (or None): why the task must not run
now, or what it calls ("": nothing)."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A task as it was read: its execution, what to run, its document if there is one."""

    execution: Document
    aggregate: Aggregate
    spec: TaskSpec
    position: int
    existing: Document | None


async def _find(engine: Engine, message: Message) -> _Found | Refusal:
    partition = (message.tenant, message.execution)
    id = documents.task_id(message.task, message.item)
    found = documents.checked(
        await patiently(
            engine, engine.store.read_many, EXECUTIONS, partition, [message.execution, id]
        )
    )
    execution = found.get(message.execution)
    if execution is None:
        return Refusal("unknownExecution", again_ms=STALE_READ_MS)
    aggregate = await aggregates.from_document(engine, execution.body, execution.etag, items=False)
    position = aggregate.workflow.index.get(message.task)
    if position is None:
        return Refusal("unknownTask")
    spec = _spec(aggregate.workflow, position, message.item)
    if spec is None:
        return Refusal("noSuchItem")
    return _Found(execution, aggregate, spec, position, found.get(id))


async def claim(engine: Engine, message: Message, admit: Admit) -> Claim | Ended | Parked | Refusal:
    """Try to claim the task of `message` for one attempt."""
    found = await _find(engine, message)
    if isinstance(found, Refusal):
        return found
    aggregate, spec, position = found.aggregate, found.spec, found.position
    partition, existing, now = aggregate.partition, found.existing, engine.clock.now()
    doc = existing.body if existing else None
    giving_back = gives_back(aggregate.workflow, aggregate.state, position)
    refusal = _refused(aggregate.state, position, message.item)
    here = Parked(
        aggregate=aggregate,
        spec=spec,
        position=position,
        item=message.item,
        doc=task_docs.new(partition, message) if doc is None else doc,
        etag=existing and existing.etag,
        over=refusal is not None and refusal.over,
        gives_back=giving_back,
    )
    if doc is not None and is_parked(doc):
        return here
    if refusal:
        return await _turned_away(engine, aggregate, existing, refusal, now)
    if doc is not None and doc["status"] in task_docs.FINAL:
        again = doc["status"] == TaskStatus.CANCELLED.value and not giving_back
        if not again:
            since = dispatched_at(aggregate.workflow, aggregate.state, position)
            return Refusal("finished", unheard=doc["endedAt"] <= since)
    if not giving_back and aggregate.state.deadlines.get(position, now + 1) <= now:
        return Refusal("pastDeadline")  # the orchestrator fails it: its timer is due
    if doc is not None and doc["status"] == TaskStatus.RUNNING.value:
        if doc["lease"]["until"] > now:
            # Word of an orchestration must not be lost to the worker that is starting it.
            durable = spec.type is TaskType.DURABLE
            return Refusal("leased", again_ms=STALE_READ_MS if durable else None)
        if ended := _take_over(aggregate, spec, doc, existing and existing.etag, now):
            return ended
    elif doc is not None and not giving_back and doc.get("dueAt", 0) > now:
        early = doc["dueAt"] - now
        return Refusal("notDue", again_ms=early if early <= CLOCK_SKEW_MS else None)
    if giving_back:
        doc = task_docs.cancelled(task_docs.new(partition, message) if doc is None else doc, now)
        return Ended(aggregate, doc, existing.etag if existing else None)
    if spec.type in NO_ATTEMPT:
        return replace(here, doc=task_docs.without_lease(here.doc))
    admitted = await admit(aggregate, spec, message.item, doc)
    if isinstance(admitted, Refusal):
        return admitted
    doc = task_docs.new(partition, message) if doc is None else task_docs.without_lease(doc)
    if admitted:
        doc["dependency"] = admitted  # for the sweeper: whether its silence is a loss
    taken = await _take(engine, aggregate, spec, position, message, existing and existing.etag, doc)
    if isinstance(taken, Claim) and taken.gathers:
        progress = found.execution.body["state"]["maps"][str(position)]
        taken.count, taken.failed = progress["count"], progress.get("failed", 0)
    return taken


async def _turned_away(
    engine: Engine, aggregate: Aggregate, existing: Document | None, refusal: Refusal, now: int
) -> Ended | Refusal:
    """The execution's state forbids to run the task: nobody need look after its document."""
    if refusal.over and existing is not None and _left_open(existing.body, now):
        closed = task_docs.cancelled(existing.body, now)
        return Ended(aggregate, closed, existing.etag, report=False)
    if refusal.reason == "paused" and existing is not None:
        await resting.lay_down(engine, existing)
    return refusal


async def _take(
    engine: Engine,
    aggregate: Aggregate,
    spec: TaskSpec,
    position: int,
    message: Message,
    etag: str | None,
    body: dict[str, Any],
) -> Claim | Refusal:
    partition, now = aggregate.partition, engine.clock.now()
    token = engine.ids.new()
    body["attempt"] += 1
    if spec.type is TaskType.WORKFLOW:
        body["child"] = kin.next_child(partition, body)
    elif spec.type is TaskType.DURABLE:
        own = aggregate.workflow.code
        body["instance"] = orchestration.next_instance(partition, body, own=own)
    body["attempts"] = [
        *body["attempts"][1 - task_docs.MAX_KEPT_ATTEMPTS :],
        {"attempt": body["attempt"], "worker": engine.worker, "startedAt": now},
    ]
    body |= {
        "status": TaskStatus.RUNNING.value,
        "startedAt": now,
        **lease(engine, token, now),
    }
    try:
        if etag is None:
            new_etag = await patiently(engine, engine.store.create, EXECUTIONS, partition, body)
        else:
            new_etag = await patiently(
                engine, engine.store.replace, EXECUTIONS, partition, body, if_match=etag
            )
    except (Conflict, PreconditionFailed, NotFound):
        return Refusal("lostRace")
    except Unclear:
        mine = await held(engine, partition, body["id"], token)
        if mine is None:
            return Refusal("lostRace")
        new_etag = mine
    return Claim(aggregate, spec, position, message.item, body, new_etag, token, 0)


def _spec(workflow: Workflow, position: int, item: int | None) -> TaskSpec | None:
    spec = workflow.tasks[position]
    return spec if item is None else spec.do


def _refused(state: ExecutionState, position: int, item: int | None) -> Refusal | None:
    """Whether the execution's state forbids to run the task."""
    if state.status in TERMINAL_EXECUTION:
        return Refusal("executionEnded", over=True)
    if state.status is ExecutionStatus.PAUSED:
        return Refusal("paused")
    wanted = Code.QUEUED if item is None else Code.WAITING
    code = state.tasks[position]
    if code == wanted:
        return None
    # Dispatched by a commit that this replica has not seen yet; never final the other way round.
    if code in (Code.PENDING, Code.HIDDEN):
        return Refusal("notDispatched", again_ms=STALE_READ_MS)
    return Refusal("notDispatched", over=code in SETTLED_CODES)


def _left_open(doc: dict[str, Any], now: int) -> bool:
    """Whether a task document waits for a retry or a dead worker, and the sweeper keeps looking
    after it (not if it rests since a pause, see `resting`)."""
    if "sweepAt" not in doc:
        return False
    if doc["status"] == TaskStatus.RUNNING.value:
        return doc["lease"]["until"] <= now
    return doc["status"] not in task_docs.FINAL


def _take_over(
    aggregate: Aggregate, spec: TaskSpec, doc: dict[str, Any], etag: str | None, now: int
) -> Ended | None:
    """The lease expired: record that in the attempt; the end if it was the last one. Changes
    `doc` (a fresh read, ours alone)."""
    failure = Failure(
        type=FailureType.LEASE_EXPIRED,
        message=f"worker {doc['lease']['worker']} stopped renewing its lease",
    )
    doc["attempts"] = [
        *doc["attempts"][:-1],
        {**doc["attempts"][-1], "endedAt": now, "error": failure.to_doc()},
    ]
    if kin.forgiven(doc):
        return None
    left = next_delay(spec.retry, attempt=task_docs.counted(doc), key="") is not None
    if left and is_retryable(spec.retry, failure):
        return None
    final = task_docs.without_lease(doc) | {
        "status": TaskStatus.DEAD_LETTERED.value,
        "endedAt": now,
        "failure": failure.to_doc(),
    }
    return Ended(aggregate, final, etag)
