"""One execution in memory: its unchanging header, its state and the ETag that guards both.

Orchestrators compete by that ETag: load, decide, commit if unchanged, else load and decide again.
A process keeps the aggregates that it committed last, so that the next message of the same
execution costs no read; a stale one shows as a conflict, and "nothing to do" is only believed of a
fresh read (see `orchestrate`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from orchestrator.domain import codec
from orchestrator.domain.payload import Payload
from orchestrator.domain.state import ExecutionState, MapState
from orchestrator.domain.status import Code
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import Workflow
from orchestrator.engine import catalog, code_catalog, documents
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import NotFound, Unavailable

SMALLEST_BYTES = 3_000
"""An execution in memory, without its input and the codes of its tasks."""

_CHANGING = frozenset({"status", "sweepAt", "silence", "state"})
READ_ATTEMPTS = 20
MIXED_WAIT_MS = 2


class Mixed(Exception):
    """The execution document and the item statuses of its maps are not of one commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """An execution as loaded or committed. `header`: the part of its document that submission
    wrote and nobody changes."""

    partition: tuple[str, str]
    header: dict[str, Any]
    workflow: Workflow
    state: ExecutionState
    etag: str
    silence_ms: int  # until the sweeper looks after it again, if nothing happens
    fresh: bool  # read from the store just now, not remembered

    @property
    def execution(self) -> str:
        """The execution id."""
        return self.partition[1]

    @property
    def traceparent(self) -> str:
        """W3C trace context of the request that started it, "" if none."""
        return self.header.get("traceparent", "")

    @property
    def input(self) -> Payload:
        """The execution's input."""
        return Payload.from_doc(self.header["input"])


def remember(engine: Engine, aggregate: Aggregate) -> None:
    """Keep for the next message; no longer fresh from then on."""
    if aggregate.fresh:
        aggregate = replace(aggregate, fresh=False)
    engine.aggregates.put(aggregate.partition, aggregate, _weight(aggregate))


def _weight(aggregate: Aggregate) -> int:
    """About how many bytes of memory it takes: the parts that can be large."""
    state = aggregate.state
    given = aggregate.header["input"].get("json") or ""
    items = sum(progress.count for progress in state.maps.values())
    return SMALLEST_BYTES + len(given) + len(state.tasks) + items


async def load(
    engine: Engine, partition: tuple[str, str], *, fresh: bool = False
) -> Aggregate | None:
    """The aggregate, remembered or read; None if there is no such execution. Raises `Unavailable`
    if it changes faster than it can be read, and whatever a corrupt document causes."""
    if not fresh:
        cached: Aggregate | None = engine.aggregates.get(partition)
        if cached is not None:
            return cached
    etag = ""
    for attempt in range(READ_ATTEMPTS):
        try:
            doc = await patiently(engine, engine.store.read, EXECUTIONS, partition, partition[1])
        except (NotFound, Unclear):  # unclear are writes only: this says that it is not there
            return None
        try:
            return await from_document(engine, doc.body, doc.etag)
        except Mixed as mixed:
            if doc.etag == etag:  # nobody commits, and still it does not fit: corrupt
                raise ValueError(str(mixed)) from None
            etag = doc.etag
        if attempt:
            await engine.clock.sleep(MIXED_WAIT_MS * attempt)
    raise Unavailable(f"execution {partition[1]} changes faster than it can be read")


async def from_document(
    engine: Engine, body: dict[str, Any], etag: str, *, items: bool = True
) -> Aggregate:
    """Build from a stored execution document; reads the item statuses of running maps, unless
    `items` is False: then maps show no items (enough for a worker). Raises `Mixed`, and whatever a
    corrupt document causes."""
    documents.check_version(body)
    partition = (body["tenantId"], body["executionId"])
    code = body.get("kind") == code_catalog.KIND
    name, version = body["workflow"], body["version"]
    workflow = await catalog.compiled(engine, partition[0], name, version, code=code)
    state = body["state"]
    chunks: dict[int, list[str]] = {}
    if items:
        chunks = await _chunks(engine, partition, workflow, state)
    elif "maps" in state:
        state = {key: value for key, value in state.items() if key != "maps"}
    loaded = codec.state_from_doc(state, chunks)
    for task in chunks:
        _check_counts(loaded.maps[task])
    return Aggregate(
        partition=partition,
        header={key: value for key, value in body.items() if key not in _CHANGING},
        workflow=workflow,
        state=loaded,
        etag=etag,
        silence_ms=body["silence"],
        fresh=True,
    )


async def _chunks(
    engine: Engine, partition: tuple[str, str], workflow: Workflow, state: dict[str, Any]
) -> dict[int, list[str]]:
    """Item statuses of the maps whose counts do not say all. Two reads are no snapshot: somebody
    may commit in between, see `_check_counts`."""
    wanted = codec.open_maps(state, documents.chunk_items(workflow))
    result: dict[int, list[str]] = {}
    for task, count in wanted.items():
        ids = [documents.map_id(workflow.tasks[task].id, chunk) for chunk in range(count)]
        found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, ids)
        if len(found) < count:
            raise Mixed(f"of map {task} {count - len(found)} chunks are missing")
        result[task] = [documents.checked(found)[id].body["items"] for id in ids]
    return result


def _check_counts(state: MapState) -> None:
    """Items only move forwards, and every move changes a count; so items that fit the counts are
    of the same commit. Deciding from a mixture would dispatch what is already dispatched. Raises
    `Mixed`."""
    count = state.items.count
    counted = (
        count(Code.QUEUED),
        count(Code.COMPLETED),
        count(Code.DEAD_LETTERED),
        count(Code.CANCELLED),
    )
    told = (state.queued, state.completed, state.failed, state.cancelled)
    if counted != told:
        raise Mixed(f"a map's items {counted} do not fit its counts {told}")
