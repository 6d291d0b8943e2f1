"""Start an execution: one batch that stores it, its first event and its first message.

With an idempotency key the execution id is derived from tenant, workflow and key, so that the
database itself refuses the second one, from whichever instance it comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.domain import codec, jsonvalues
from orchestrator.domain import tags as tag_rules
from orchestrator.domain.effects import Outgoing
from orchestrator.domain.errors import (
    ConflictError,
    InvalidError,
    LimitError,
    UnavailableError,
)
from orchestrator.domain.events import Event, ExecutionAccepted, TasksCopied
from orchestrator.domain.evolve import fold
from orchestrator.domain.jsonschemas import check_value
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.priority import Priority
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import Workflow
from orchestrator.engine import (
    admission,
    catalog,
    claimcheck,
    code_catalog,
    documents,
    outbox,
    pins,
    places,
    relay,
    telemetry,
)
from orchestrator.engine.admission import Seat
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import StartResult
from orchestrator.ports import Conflict, Create, Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A submission on behalf of another execution: under this id, with these fields in its header.
    Whoever names the id again means the same execution, whatever else they say. `pinned`: its
    version was chosen when the other one started, so archiving no longer matters."""

    execution: str
    header: Mapping[str, Any]
    pinned: bool = False


async def start(
    engine: Engine,
    tenant: str,
    workflow: str,
    input: Json,
    *,
    key: str | None = None,
    version: int | None = None,
    tags: Mapping[str, str] | None = None,
    traceparent: str = "",
    started_by: str = "",
    priority: Priority | None = None,
    link: Link | None = None,
    id: str | None = None,
    more: Mapping[str, Any] | None = None,
    own: bool = False,
) -> StartResult:
    """Store a new execution of `workflow` (the latest version unless one is named) and send its
    first message. Durable when it returns.

    The same `key` with the same request answers with the first execution (`created` False).
    Instead of a key, `id` may name the execution, where the caller derives it from what causes it;
    `more` is kept in the header. `priority`: the class of this execution; None: its workflow's.
    `own`: it is one of Weft's own code workflows, which limits of the tenant do not hold back.
    Raises `NotFoundError`, `ConflictError` (archived; key reused with another request),
    `InvalidError` (input against its schema, all failures; tags), `TooLargeError`, `LimitError`.
    """
    labels = dict(tags or {})
    check_tags(labels)
    head = _own(engine, tenant, workflow) if own else await catalog.head(engine, tenant, workflow)
    asked: dict[str, Json] = {"workflow": workflow, "version": version, "input": input}
    asked["tags"] = dict(labels)
    if priority is not None:
        asked["priority"] = priority.value
    digest = jsonvalues.body_hash(asked)
    execution = derived_id(tenant, workflow, key) if key is not None else id or engine.ids.new()
    if link is not None:
        execution = link.execution
    if key is not None and (known := await repeat(engine, tenant, execution, digest, key)):
        return known
    if head.body["archived"] and not (link is not None and link.pinned):
        raise ConflictError(
            f"workflow {workflow!r} is archived; publish it again to start it",
            code="WORKFLOW_ARCHIVED",
        )
    number = catalog.number_of(head, version)
    code = catalog.is_code(head)
    runnable = await catalog.compiled(engine, tenant, workflow, number, code=code)
    check_input(runnable, input)
    place = places.header(runnable, tenant, execution, input, labels)
    data = jsonvalues.dumps(input)
    await admission.payload(engine, tenant, len(data), "the input", "$.input")
    if code:
        admission.step(len(data), "the input", "$.input")
    header: dict[str, Any] = {
        "workflow": workflow,
        "version": number,
        "tags": labels,
        "startedBy": started_by,
        "priority": (priority or runnable.priority).value,
        "requestHash": digest,
        **{documents.tag_field(name): value for name, value in labels.items()},
        **(more or {}),
        **place,
    }
    if key is not None:
        header["key"] = key
    if traceparent:
        header["traceparent"] = traceparent
    header |= catalog.kind_fields(head)
    header |= {} if link is None else link.header
    same = digest if link is None else None
    # A child belongs to what was admitted; and operators help a tenant that is at its limits.
    free = own or link is not None
    entry = nullcontext(Seat()) if free else admission.start(engine, tenant, execution)
    try:
        async with entry as seat:
            partition = (tenant, execution)
            payload = await claimcheck.store(engine, partition, "input", data)
            header["input"] = payload.to_doc()
            if pinned := await pins.resolve(engine, tenant, runnable):
                header["pins"] = pinned
            header |= await pins.uses(engine, tenant, runnable, pinned)
            seat.created = await store(engine, partition, header, runnable)
    except LimitError:
        # What was started before is answered, whatever the limits say now.
        if id is None and key is None:
            raise
        known = await repeat(engine, tenant, execution, same, key or "")
        if known is None:
            raise
        return known
    if not seat.created:
        known = await repeat(engine, tenant, execution, same, key or "")
        if known is None:
            raise ConflictError("the execution id is taken; try again", code="ID_TAKEN")
        return known
    return StartResult(
        id=execution,
        workflow=workflow,
        version=number,
        status=ExecutionStatus.PENDING,
        created=True,
        links=links(execution),
    )


def _own(engine: Engine, tenant: str, workflow: str) -> Document:
    head = code_catalog.head(engine, tenant, workflow)
    if head is None:
        raise UnavailableError(f"{workflow!r} is not part of this app", code="NOT_DEPLOYED")
    return head


def links(execution: str) -> dict[str, str]:
    """Where to look next."""
    own = f"/v1/executions/{execution}"
    return {"self": own, "tasks": f"{own}/tasks", "history": f"{own}/history"}


async def store(
    engine: Engine,
    partition: tuple[str, str],
    header: dict[str, Any],
    workflow: Workflow,
    copied: tuple[int, ...] = (),
) -> bool:
    """The submission's batch, then the fast path. False if the execution exists already. `copied`:
    tasks whose results are there already (`replay`). Here the execution's trace begins, or goes on
    from `header["traceparent"]`: all that becomes of it is under the span of its start."""
    about = {"tenant": partition[0], "workflow": workflow.name, "execution": partition[1]}
    above = header.get("traceparent", "")
    with telemetry.span(engine.tracer, "start", parent=above, root=True, about=about) as span:
        if span.traceparent:
            header = {**header, "traceparent": span.traceparent}
        return await _store(engine, partition, header, workflow, copied)


async def _store(
    engine: Engine,
    partition: tuple[str, str],
    header: dict[str, Any],
    workflow: Workflow,
    copied: tuple[int, ...] = (),
) -> bool:
    now = engine.clock.now()
    commit = engine.ids.new()
    happened: list[Event] = [
        ExecutionAccepted(at=now, tasks=workflow.visible, hidden=len(workflow.undo))
    ]
    if copied:
        happened.append(TasksCopied(at=now, tasks=copied))
    state = fold(None, happened)
    execution = {
        **documents.base(partition, partition[1], "execution"),
        **header,
        "createdAt": now,
        "status": state.status.value,
        "silence": engine.tunables.silence_ms,
        "sweepAt": now + engine.tunables.silence_ms,
        "state": codec.state_to_doc(state),
    }
    events = {
        **documents.base(partition, documents.events_id(0), "events"),
        "seq": 0,
        "commit": commit,
        "events": [codec.event_to_doc(event) for event in happened],
    }
    first = Outgoing(Message(MessageType.EXECUTION_STARTED, *partition))
    sends = outbox.build(engine, partition, [first], now=now, header=header)
    operations = [Create(execution), Create(events), *(Create(doc) for doc in sends)]
    try:
        await patiently(engine, engine.store.batch, EXECUTIONS, partition, operations)
    except Conflict:
        return False
    except Unclear as unclear:
        if not await _was_mine(engine, partition, commit):
            if isinstance(unclear.error, Conflict):
                return False
            raise unclear.error from unclear
    engine.metrics.count("weft_executions_total", "accepted")
    await relay.send_now(engine, sends)
    return True


async def _was_mine(engine: Engine, partition: tuple[str, str], commit: str) -> bool:
    """Whether the execution that is there came from this very call, its first answer lost."""
    found = await patiently(
        engine,
        engine.store.read_many,
        EXECUTIONS,
        partition,
        [documents.events_id(0)],
    )
    return any(doc.body["commit"] == commit for doc in found.values())


def derived_id(tenant: str, workflow: str, key: str) -> str:
    """An id of the same alphabet as fresh ones, from the idempotency key. NUL separates, because
    no tenant, workflow name or key can contain it."""
    return "k" + hashlib.sha256(f"{tenant}\0{workflow}\0{key}".encode()).hexdigest()[:31]


async def repeat(
    engine: Engine, tenant: str, execution: str, digest: str | None, key: str
) -> StartResult | None:
    """The first answer again, if the execution exists. `digest` None: whatever was asked for."""
    found = await patiently(
        engine, engine.store.read_many, EXECUTIONS, (tenant, execution), [execution]
    )
    doc = found.get(execution)
    if doc is None:
        return None
    if digest is not None and doc.body["requestHash"] != digest:
        raise ConflictError(
            f"idempotency key {key!r} was used before with another request; use a new key, or send "
            "the same request",
            code="IDEMPOTENCY_KEY_REUSED",
        )
    engine.metrics.count("weft_duplicates_suppressed_total", "start")
    return StartResult(
        id=execution,
        workflow=doc.body["workflow"],
        version=doc.body["version"],
        status=doc.body["status"],
        created=False,
        links=links(execution),
    )


def check_tags(labels: dict[str, str]) -> None:
    """Raises `InvalidError` with every tag that could not be stored, or not be asked for."""
    if faults := tag_rules.problems(labels):
        raise InvalidError("the tags are not valid", details=faults)


def check_input(workflow: Workflow, input: Json) -> None:
    """Validate against the definition's schema. Remote references were refused at publish."""
    if workflow.input_schema is None:
        return
    faults = check_value(workflow.input_schema, input, "$.input")
    if input is None:
        hint = "there was no input, or it was null"
        faults = [replace(one, hint=hint) if one.field == "$.input" else one for one in faults]
    if faults:
        raise InvalidError(
            f"the input does not fit the schema of workflow {workflow.name!r}",
            code="INPUT_INVALID",
            details=sorted(faults, key=lambda fault: fault.field),
        )
