"""Run an ended execution again, as a new one: from its beginning, or from a task on.

The origin stays as it was. From a task on, every result that does not lie behind that task is
copied: its document into the new partition, before the submission's batch, and the fact itself as
the second event of the new history (`TasksCopied`), so that the history still folds to the state.
What the origin has undone is not copied; what is copied belongs to the origin, and a failure of the
replay does not undo it.
Copies of a submission that then fails lie in a partition that nobody names; with an idempotency
key the next call finds and overwrites them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.domain import built_in, jsonvalues
from orchestrator.domain.errors import ConflictError, NotFoundError
from orchestrator.domain.payload import Payload
from orchestrator.domain.priority import Priority
from orchestrator.domain.status import TERMINAL_EXECUTION, Code, TaskStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import Workflow
from orchestrator.engine import (
    admission,
    audit,
    catalog,
    claimcheck,
    documents,
    erase,
    facts,
    inspect,
    pins,
    places,
    submission,
    submit,
)
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.letters_act import check_reason
from orchestrator.engine.resilience import patiently
from orchestrator.engine.views import StartResult

WRITES_AT_ONCE = 32


async def replay(
    engine: Engine,
    tenant: str,
    execution: str,
    *,
    start_at: str | None = None,
    latest: bool = False,
    key: str | None = None,
    by: str = "",
    reason: str = "",
    traceparent: str = "",
) -> StartResult:
    """Start the new execution; durable when it returns. The same `key` with the same request gives
    the first answer again (`created` False).

    Raises `NotFoundError` (execution, task), `ConflictError` (it has not ended; key reused;
    archived), `InvalidError` (its input does not fit the latest version; reason), `LimitError`."""
    check_reason(reason)
    origin = await inspect.aggregate(engine, tenant, execution)
    name = origin.workflow.name
    if name in built_in.NAMES:
        raise ConflictError(
            f"{name!r} is Weft's own and cannot be replayed; send the request for it again",
            code="CANNOT_REPLAY",
        )
    digest = jsonvalues.body_hash({"replayOf": execution, "from": start_at, "latest": latest})
    if key is None:
        id = engine.ids.new()
    else:
        id = submission.derived_id(tenant, f"replay {execution}", key)
        known = await submission.repeat(engine, tenant, id, digest, key)
        if known is not None:
            await _audit(engine, tenant, execution, id, by, reason)
            return known
    erase.refuse_if_erased(origin.header)
    if origin.state.status not in TERMINAL_EXECUTION:
        raise ConflictError(
            f"the execution is {origin.state.status.value}; it can be replayed when it has ended",
            code="CANNOT_REPLAY",
        )
    number, workflow, kind = await _version(engine, tenant, origin, latest=latest)
    if start_at is not None and workflow.index.get(start_at, workflow.visible) >= workflow.visible:
        raise NotFoundError(
            f"version {number} of workflow {name!r} has no task {start_at!r}",
            code="TASK_NOT_FOUND",
        )
    read = latest or workflow.concurrency is not None
    given = await claimcheck.load(engine, origin.input) if read else None
    if latest:
        await submit.check_input(workflow, given)
    partition = (tenant, id)
    kept = () if start_at is None else _kept(origin, workflow, workflow.index[start_at])
    more = {"replayFrom": start_at, "key": key, "traceparent": traceparent or None}
    header: dict[str, Any] = {
        "workflow": name,
        "version": number,
        "startedBy": by,
        "priority": Priority.of(origin.header).value,
        "requestHash": digest,
        "replayOf": execution,
        "tags": origin.header["tags"],
        **{documents.tag_field(tag): value for tag, value in origin.header["tags"].items()},
        **await places.header(workflow, tenant, id, given, origin.header["tags"]),
        **{field: value for field, value in more.items() if value is not None},
        **kind,
    }
    if latest:
        pinned = await pins.resolve(engine, tenant, workflow)
        header |= await pins.uses(engine, tenant, workflow, pinned)
    else:  # the same version means the same children, too
        pinned = origin.header.get("pins")
        header |= pins.uses_of(origin.header)
    if pinned:
        header["pins"] = pinned
    async with admission.start(engine, tenant, id) as seat:
        await _copy(engine, origin, workflow, kept, partition)
        header["input"] = await _moved(engine, origin.header["input"], partition, "input")
        seat.created = await submission.store(engine, partition, header, workflow, kept)
    result = await submission.answer(
        engine, partition, header, created=seat.created, digest=digest, key=key or ""
    )
    if result.created:
        engine.metrics.count("weft_operator_actions_total", "replay")
    await _audit(engine, tenant, execution, id, by, reason)
    return result


async def _version(
    engine: Engine, tenant: str, origin: Aggregate, *, latest: bool
) -> tuple[int, Workflow, dict[str, Any]]:
    """The version to run (its origin's, or the latest), compiled, and what the header says of its
    kind. Raises `NotFoundError`, `ConflictError` (archived)."""
    name = origin.workflow.name
    number: int = origin.header["version"]
    kind = {"kind": origin.header["kind"]} if "kind" in origin.header else {}
    if latest:
        head = await catalog.head(engine, tenant, name)
        if head.body["archived"]:
            raise ConflictError(
                f"workflow {name!r} is archived; replay it on the same version",
                code="WORKFLOW_ARCHIVED",
            )
        number = int(head.body["latest"])
        kind = catalog.kind_fields(head)
    return number, await catalog.compiled(engine, tenant, name, number, code=bool(kind)), kind


async def _audit(
    engine: Engine, tenant: str, execution: str, id: str, by: str, reason: str
) -> None:
    """Once for each replay: whoever made it may have died before its record was written."""
    await audit.record(
        engine,
        tenant,
        action="replay",
        execution=execution,
        task=id,
        details={"replay": id},
        by=by,
        reason=reason,
        id=f"replay:{id}",
    )


def _kept(origin: Aggregate, workflow: Workflow, start_at: int) -> tuple[int, ...]:
    """Positions (in `workflow`) whose results are copied: COMPLETED in the origin and not behind
    `start_at`, nor behind what the origin's version does not have like this: a new task, one of
    another type, one that needs something more. Nor behind what was undone: it has to be done
    again."""
    old, visible = origin.workflow, range(workflow.visible)
    behind = {start_at, *(at for at in visible if _is_new(old, workflow, at))}
    behind |= {workflow.index[id] for id in _undone(origin) if id in workflow.index}
    stack = list(behind)
    while stack:
        for task in workflow.successors[stack.pop()]:
            if task not in behind:
                behind.add(task)
                stack.append(task)
    return tuple(
        at
        for at in visible
        if at not in behind
        and origin.state.tasks[old.index[workflow.tasks[at].id]] == Code.COMPLETED
    )


def _undone(origin: Aggregate) -> list[str]:
    """Ids of the tasks whose compensation was called for, whatever became of it."""
    codes, workflow = origin.state.tasks, origin.workflow
    return [
        workflow.tasks[task].id
        for task, undo in workflow.undo.items()
        if codes[undo] != Code.HIDDEN
    ]


def _is_new(old: Workflow, workflow: Workflow, at: int) -> bool:
    task = workflow.tasks[at]
    if task.id not in old.index:
        return True
    was = old.tasks[old.index[task.id]]
    needed = {old.tasks[need].id for need in was.needs}
    return was.type is not task.type or any(
        workflow.tasks[need].id not in needed for need in task.needs
    )


async def _copy(
    engine: Engine,
    origin: Aggregate,
    workflow: Workflow,
    kept: tuple[int, ...],
    partition: tuple[str, str],
) -> None:
    """Write the documents of the kept results. A wait has none."""
    ids = [documents.task_id(workflow.tasks[at].id) for at in kept]
    found = await facts.read_tasks(engine, origin.partition, ids)
    done = [doc for doc in found.values() if doc["status"] == TaskStatus.COMPLETED.value]
    for at in range(0, len(done), WRITES_AT_ONCE):
        some = done[at : at + WRITES_AT_ONCE]
        await asyncio.gather(*(_copy_one(engine, doc, partition) for doc in some))


async def _copy_one(engine: Engine, doc: dict[str, Any], partition: tuple[str, str]) -> None:
    copy: dict[str, Any] = {
        **documents.base(partition, doc["id"], "task"),
        "task": doc["task"],
        "status": TaskStatus.COMPLETED.value,
        "attempt": 0,
        "attempts": [],
        "endedAt": doc["endedAt"],
        "copiedFrom": doc["executionId"],
    }
    if doc.get("output") is not None:
        copy["output"] = await _moved(engine, doc["output"], partition, doc["task"])
    await patiently(engine, engine.store.upsert, EXECUTIONS, partition, copy)


async def _moved(
    engine: Engine, stored: dict[str, Any], partition: tuple[str, str], name: str
) -> dict[str, Any]:
    """The same payload, owned by the new execution: the origin's may be removed one day."""
    payload = Payload.from_doc(stored)
    if payload.ref is None:
        return stored
    data = await claimcheck.read_text(engine, payload)
    return (await claimcheck.store(engine, partition, name, data)).to_doc()
