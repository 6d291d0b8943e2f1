"""The read side: what the API shows of executions, tasks and history. Writes nothing."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from orchestrator.domain import codec
from orchestrator.domain.errors import MalformedError, NotFoundError, UnavailableError
from orchestrator.domain.payload import Payload
from orchestrator.domain.status import TERMINAL_EXECUTION, Code, ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS, VISIBILITY
from orchestrator.engine import aggregate as aggregates
from orchestrator.engine import (
    claimcheck,
    compensation,
    documents,
    live,
    project,
    sensitive,
    shapes,
)
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.history import commits
from orchestrator.engine.resilience import patiently
from orchestrator.engine.sensitive import Reveal, hidden
from orchestrator.engine.submission import links
from orchestrator.engine.views import (
    EventOrigin,
    ExecutionSummary,
    ExecutionView,
    HistoryEvent,
    TaskSummary,
    TaskView,
)
from orchestrator.ports import Document, Query, Where

log = logging.getLogger(__name__)

After = tuple[str | int, str] | None

POLL_FIRST_MS = 5
POLL_LAST_MS = 1_000
MAX_PLACE_DIGITS = 9
LAST_CHARACTER = "\uffff"
"""Greater than every character of an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFilter:
    """What to list. Times in epoch ms; `tag` as (name, value)."""

    status: ExecutionStatus | None = None
    workflow: str | None = None
    tag: tuple[str, str] | None = None
    owner: str | None = None  # who started it
    parent: str | None = None  # the execution that started it
    created_after: int | None = None  # inclusive
    created_before: int | None = None  # exclusive
    search: str | None = None  # the beginning of an id, or a whole idempotency key


async def aggregate(engine: Engine, tenant: str, execution: str) -> Aggregate:
    """The execution as stored now. Raises `NotFoundError`; `UnavailableError` if newer code wrote
    it, which happens while a deployment rolls: another process can answer."""
    try:
        found = await aggregates.load(engine, (tenant, execution), fresh=True)
    except documents.NewerSchema:
        raise UnavailableError(
            f"execution {execution!r} was written by a newer version of Weft; ask again"
        ) from None
    if found is None:
        raise unknown(execution)
    return found


def unknown(execution: str) -> NotFoundError:
    """There is no such execution. The same text whether it never was, is hidden or archived."""
    return NotFoundError(
        f"no execution {execution!r}; see GET /v1/executions, and GET /v1/archive?execution=ID "
        "(`weft archive list --execution ID`) for those that ended long ago",
        code="EXECUTION_NOT_FOUND",
    )


async def execution(
    engine: Engine, tenant: str, execution: str, *, wait_ms: int = 0, reveal: Reveal = hidden
) -> ExecutionView:
    """One execution, what is sensitive masked unless `reveal` says otherwise. With `wait_ms`,
    answer when it has ended or the time is up. Raises `NotFoundError`."""
    waited, pause = 0, POLL_FIRST_MS
    while True:
        found = await aggregate(engine, tenant, execution)
        if found.state.status in TERMINAL_EXECUTION or waited >= wait_ms:
            break
        pause = min(pause, wait_ms - waited)
        await engine.clock.sleep(pause)
        waited, pause = waited + pause, min(pause * 3 // 2, POLL_LAST_MS)
    failure = found.state.failure
    header = found.header
    shown = await live.of_execution(engine, found) if found.workflow.code else None
    seen = await sensitive.shown(engine, found, reveal)
    return ExecutionView(
        **shapes.summary(header, found.state),
        deadline_at=found.state.deadline_at,
        idempotency_key=header.get("key"),
        schedule=header.get("schedule"),
        scheduled_for=header.get("scheduledFor"),
        replay_of=header.get("replayOf"),
        replay_from=header.get("replayFrom"),
        parent_task=header.get("parentTask", {}).get("task"),
        parent_item=header.get("parentTask", {}).get("item"),
        depth=header.get("depth", 0),
        event=EventOrigin(**header["event"]) if "event" in header else None,
        traceparent=header.get("traceparent"),
        seq=found.state.seq,
        waiting_for=shapes.waiting_for(found),
        holding=shapes.holding(found),
        compensation=compensation.view(found),
        terminated=found.state.terminated,
        erased_at=header.get("erasedAt"),
        input=seen.value(seen.flow.input, await claimcheck.load(engine, found.input)),
        output=seen.value(seen.flow.output, await claimcheck.load(engine, found.state.output)),
        error=shapes.failure(failure.failure.to_doc(), failure.task, failure.index)
        if failure
        else None,
        orchestration=shown,
        links=links(execution),
    )


async def executions(
    engine: Engine, tenant: str, filter: ExecutionFilter, *, limit: int, after: After
) -> tuple[list[ExecutionSummary], After]:
    """A page of the tenant's executions, newest first, and where the next page begins.

    From the read model, which follows the executions by moments (`project`)."""
    pages = await asyncio.gather(
        *(
            patiently(
                engine,
                engine.store.query,
                VISIBILITY,
                Query(
                    partition=(tenant,),
                    where=where,
                    order_by="createdAt",
                    descending=True,
                    after=after,
                    limit=limit,
                ),
            )
            for where in _conditions(tenant, filter)
        )
    )
    # Every condition's page begins at the same place and is complete up to its last row or the
    # limit, so the first `limit` of all of them together are the page.
    found = {(row.body["tenantId"], row.id): row for page in pages for row in page}
    ordered = sorted(found.values(), key=_place, reverse=True)
    shown = ordered[:limit]
    more = len(ordered) > limit or any(len(page) == limit for page in pages)
    own = [row for row in shown if row.body["tenantId"] == tenant]
    engine.metrics.count("weft_foreign_rows_total", by=len(shown) - len(own))
    return _summaries(engine, own), _place(shown[-1]) if more else None


def _place(row: Document) -> tuple[int, str]:
    return row.body["createdAt"], row.id


def _conditions(tenant: str, filter: ExecutionFilter) -> list[tuple[Where, ...]]:
    """Rows that meet any of these conditions are listed; more than one for a search only."""
    # The tenant is in the query's text too, and every row is checked: routing by a prefix of a
    # hierarchical key has returned other partitions' rows.
    where = [Where("type", "=", "execution"), Where("tenantId", "=", tenant)]
    if filter.status is not None:
        where.append(Where("status", "=", filter.status.value))
    if filter.workflow is not None:
        where.append(Where("workflow", "=", filter.workflow))
    if filter.owner is not None:
        where.append(Where("startedBy", "=", filter.owner))
    if filter.parent is not None:
        where.append(Where("parent", "=", filter.parent))
    if filter.tag is not None:
        where.append(Where(documents.tag_field(filter.tag[0]), "=", filter.tag[1]))
    if filter.created_after is not None:
        where.append(Where("createdAt", ">=", filter.created_after))
    if filter.created_before is not None:
        where.append(Where("createdAt", "<", filter.created_before))
    text = filter.search
    if text is None:
        return [tuple(where)]
    begins = (Where("id", ">=", text), Where("id", "<", text + LAST_CHARACTER))
    return [(*where, *begins), (*where, Where("key", "=", text))]


def _summaries(engine: Engine, rows: list[Document]) -> list[ExecutionSummary]:
    """A row that cannot be read must not hide the others: it is counted and left out."""
    items: list[ExecutionSummary] = []
    for row in rows:
        try:
            items.append(project.summary_of(row.body))
        except (KeyError, TypeError, ValueError) as error:
            engine.metrics.count("weft_unreadable_rows_total")
            log.error(
                "row of the read model cannot be read; rebuild it",
                extra={
                    "action": "list.unreadable",
                    "execution": row.id,
                    "error": type(error).__name__,
                },
            )
    return items


async def tasks(
    engine: Engine, tenant: str, execution: str, *, limit: int, after: After
) -> tuple[list[TaskSummary], After]:
    """A page of the tasks in definition order, then of the compensations that were called for.
    Raises `NotFoundError`."""
    found = await aggregate(engine, tenant, execution)
    start = _position(after[0]) + 1 if after else 0
    codes = found.state.tasks
    shown = [at for at in range(start, len(codes)) if codes[at] != Code.HIDDEN]
    positions = shown[:limit]
    ids = [documents.task_id(found.workflow.tasks[at].id) for at in positions]
    docs = await patiently(engine, engine.store.read_many, EXECUTIONS, found.partition, ids)
    items = [
        TaskSummary(**shapes.task(found, at, docs[id].body if id in docs else None))
        for at, id in zip(positions, ids, strict=True)
    ]
    return items, (positions[-1], "") if len(shown) > limit else None


def _position(value: str | int) -> int:
    """A place from a cursor, which anybody may have made up."""
    if not str(value).isdecimal() or len(str(value)) > MAX_PLACE_DIGITS:
        raise MalformedError("the cursor is not one of this list", code="INVALID_CURSOR")
    return int(value)


async def task(
    engine: Engine,
    tenant: str,
    execution: str,
    task: str,
    *,
    item: int | None = None,
    reveal: Reveal = hidden,
) -> TaskView:
    """One task, or one item of a map, with attempts and output, what is sensitive of it masked
    unless `reveal` says otherwise. Raises `NotFoundError`."""
    found = await aggregate(engine, tenant, execution)
    at = found.workflow.index.get(task)
    if at is None or found.state.tasks[at] == Code.HIDDEN:
        raise NotFoundError(
            f"workflow {found.workflow.name!r} has no task {task!r}", code="TASK_NOT_FOUND"
        )
    if item is not None and (at not in found.state.maps or item >= found.state.maps[at].count):
        raise NotFoundError(f"task {task!r} has no item {item}", code="ITEM_NOT_FOUND")
    id = documents.task_id(task, item)
    docs = await patiently(engine, engine.store.read_many, EXECUTIONS, found.partition, [id])
    doc = docs[id].body if id in docs else None
    output = Payload.from_doc(doc["output"]) if doc and doc.get("output") else None
    seen = await sensitive.shown(engine, found, reveal)
    marks = seen.flow.gives(task, item=item is not None)
    return TaskView(
        **shapes.task(found, at, doc, item),
        **shapes.task_details(found, at, doc, item),
        output=seen.value(marks, await claimcheck.load(engine, output)),
        orchestration=await live.of_task(engine, doc),
    )


async def history(
    engine: Engine,
    tenant: str,
    execution: str,
    *,
    limit: int,
    after: After,
    reveal: Reveal = hidden,
) -> tuple[list[HistoryEvent], After]:
    """A page of the history, what is sensitive of it masked unless `reveal` says otherwise. `after`
    is (commit, position in it). Raises `NotFoundError`."""
    found = await aggregate(engine, tenant, execution)
    seen = await sensitive.shown(engine, found, reveal)
    begin = (_position(after[0]), _position(after[1])) if after else (0, -1)
    # Every commit holds at least one event, so `limit + 1` commits are enough.
    records = await commits(
        engine, found.partition, first=begin[0], last=found.state.seq, limit=limit + 1
    )
    items: list[HistoryEvent] = []
    last: After = None
    for record in records:
        for position, doc in enumerate(record["events"]):
            if (record["seq"], position) <= begin:
                continue
            if len(items) == limit:
                return items, last
            described = codec.describe(codec.event_from_doc(doc), found.workflow)
            if "output" in described:  # of the execution
                described["output"] = seen.payload(seen.flow.output, described["output"])
            items.append(HistoryEvent(seq=record["seq"], **described))
            last = (record["seq"], str(position))
    return items, None
