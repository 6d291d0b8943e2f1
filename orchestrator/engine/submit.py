"""Start an execution: check the request, ask whether the tenant may, store it (`submission`).

Everybody starts executions here: people, schedules, events, parents. Replays have checks of their
own and share the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain import tags as tag_rules
from orchestrator.domain.errors import (
    ConflictError,
    InvalidError,
    LimitError,
    UnavailableError,
)
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.priority import Priority
from orchestrator.domain.workflow import Workflow
from orchestrator.engine import (
    admission,
    catalog,
    claimcheck,
    code_catalog,
    documents,
    pins,
    places,
    submission,
)
from orchestrator.engine.admission import Seat
from orchestrator.engine.aside import faults_of
from orchestrator.engine.core import Engine
from orchestrator.engine.views import StartResult
from orchestrator.ports import Document


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
    digest = _digest(workflow, version, input, labels, priority)
    if link is not None:
        execution = link.execution
    elif key is not None:
        execution = submission.derived_id(tenant, workflow, key)
    else:
        execution = id or engine.ids.new()
    if key is not None:
        known = await submission.repeat(engine, tenant, execution, digest, key)
        if known is not None:
            return known
    if head.body["archived"] and not (link is not None and link.pinned):
        raise ConflictError(
            f"workflow {workflow!r} is archived; publish it again to start it",
            code="WORKFLOW_ARCHIVED",
        )
    number = catalog.number_of(head, version)
    code = catalog.is_code(head)
    runnable = await catalog.compiled(engine, tenant, workflow, number, code=code)
    await check_input(runnable, input)
    header: dict[str, Any] = {
        "workflow": workflow,
        "version": number,
        "tags": labels,
        "startedBy": started_by,
        "priority": (priority or runnable.priority).value,
        "requestHash": digest,
        **{documents.tag_field(name): value for name, value in labels.items()},
        **(more or {}),
        **await places.header(runnable, tenant, execution, input, labels),
        **({} if key is None else {"key": key}),
        **({"traceparent": traceparent} if traceparent else {}),
        **catalog.kind_fields(head),
        **({} if link is None else link.header),
    }
    data = jsonvalues.dumps(input)
    await admission.payload(engine, tenant, len(data), "the input", "$.input")
    if code:
        admission.step(len(data), "the input", "$.input")
    # A child belongs to what was admitted; and operators help a tenant that is at its limits.
    free = own or link is not None
    same = digest if link is None else None
    entry = nullcontext(Seat()) if free else admission.start(engine, tenant, execution)
    try:
        async with entry as seat:
            seat.created = await _store_with_input(
                engine, (tenant, execution), header, runnable, data
            )
    except LimitError:
        # What was started before is answered, whatever the limits say now.
        if id is None and key is None:
            raise
        known = await submission.repeat(engine, tenant, execution, same, key or "")
        if known is None:
            raise
        return known
    return await submission.answer(
        engine, (tenant, execution), header, created=seat.created, digest=same, key=key or ""
    )


def _digest(
    workflow: str,
    version: int | None,
    input: Json,
    labels: Mapping[str, str],
    priority: Priority | None,
) -> str:
    """Of what was asked for: a key that comes again must come with the same. A priority that was
    not given is left out, as it was before there were any."""
    asked: dict[str, Json] = {"workflow": workflow, "version": version, "input": input}
    asked["tags"] = dict(labels)
    if priority is not None:
        asked["priority"] = priority.value
    return jsonvalues.body_hash(asked)


async def _store_with_input(
    engine: Engine,
    partition: tuple[str, str],
    header: dict[str, Any],
    workflow: Workflow,
    data: bytes,
) -> bool:
    """`submission.store`, after the input and the versions of children were put into the header."""
    payload = await claimcheck.store(engine, partition, "input", data)
    header["input"] = payload.to_doc()
    pinned = await pins.resolve(engine, partition[0], workflow)
    if pinned:
        header["pins"] = pinned
    header |= await pins.uses(engine, partition[0], workflow, pinned)
    return await submission.store(engine, partition, header, workflow)


def _own(engine: Engine, tenant: str, workflow: str) -> Document:
    head = code_catalog.head(engine, tenant, workflow)
    if head is None:
        raise UnavailableError(f"{workflow!r} is not part of this app", code="NOT_DEPLOYED")
    return head


def check_tags(labels: dict[str, str]) -> None:
    """Raises `InvalidError` with every tag that could not be stored, or not be asked for."""
    if faults := tag_rules.problems(labels):
        raise InvalidError("the tags are not valid", details=faults)


async def check_input(workflow: Workflow, input: Json) -> None:
    """Validate against the definition's schema. Remote references were refused at publish."""
    if workflow.input_schema is None:
        return
    faults = await faults_of(workflow.input_schema, input, "$.input")
    if input is None:
        hint = "there was no input, or it was null"
        faults = [replace(one, hint=hint) if one.field == "$.input" else one for one in faults]
    if faults:
        raise InvalidError(
            f"the input does not fit the schema of workflow {workflow.name!r}",
            code="INPUT_INVALID",
            details=sorted(faults, key=lambda fault: fault.field),
        )
