"""The state of an execution as a JSON document, and back. Import it from `codec`.

Written by hand and flat, because it runs for every commit. Fields at their default are left out.

Stored layout of the state (part of the `execution` document): `status`, `seq`, `tasks` (one letter
per task, see `status.Code`), `maps` (position -> counts), `waits` (position -> due), `signals`
(name -> ids), `consumed` (position -> id of a signal), `taken` (see `taken.pack_taken`),
`deadlines` (due -> positions, packed: what is dispatched together is due together), `failure`,
`output`, `acceptedAt`, `startedAt`, `endedAt`, `deadlineAt` (epoch ms), `hidden`, `undo`, `ending`,
`terminated`. The letters of map items are in chunk documents of `MAP_CHUNK_ITEMS`: see
`chunks_of`, `open_maps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from orchestrator.domain.failure import Failure
from orchestrator.domain.payload import Payload
from orchestrator.domain.positions import pack_times, times_of
from orchestrator.domain.state import ExecutionState, FailureRecord, MapState
from orchestrator.domain.status import Code, ExecutionStatus
from orchestrator.domain.taken import pack_taken, unpack_taken
from orchestrator.domain.topology import MAP_CHUNK_ITEMS

_STATUS: Final = {status.value: status for status in ExecutionStatus}


def state_to_doc(state: ExecutionState) -> dict[str, Any]:
    """The state's fields of the execution document, without the items of maps."""
    doc: dict[str, Any] = {
        "status": state.status.value,
        "seq": state.seq,
        "tasks": state.tasks.decode("ascii"),
        "acceptedAt": state.accepted_at,
    }
    if state.started_at is not None:
        doc["startedAt"] = state.started_at
    if state.deadline_at is not None:
        doc["deadlineAt"] = state.deadline_at
    if state.ended_at is not None:
        doc["endedAt"] = state.ended_at
    if state.hidden:
        doc["hidden"] = state.hidden
    if state.undo:
        doc["undo"] = list(state.undo)
    if state.ending is not None:
        doc["ending"] = state.ending.value
    if state.terminated:
        doc["terminated"] = True
    if state.maps:
        doc["maps"] = {str(task): _map_to_doc(value) for task, value in state.maps.items()}
    if state.waits:
        doc["waits"] = {str(task): due for task, due in state.waits.items()}
    if state.signals:
        doc["signals"] = {name: list(ids) for name, ids in state.signals.items()}
    if state.consumed:
        doc["consumed"] = {str(task): id for task, id in state.consumed.items()}
    if state.taken:
        doc["taken"] = pack_taken(state.taken)
    if state.deadlines:
        doc["deadlines"] = pack_times(state.deadlines.items())
    if state.failure is not None:
        doc["failure"] = record_to_doc(state.failure)
    if state.output is not None:
        doc["output"] = state.output.to_doc()
    return doc


def state_from_doc(
    doc: Mapping[str, Any], chunks: Mapping[int, Sequence[str]] | None = None
) -> ExecutionState:
    """Inverse of `state_to_doc`. `chunks`: position -> the map's chunks, in order; those of
    `open_maps(doc)` are needed for a full inverse, a map without them has empty `items`. Raises
    KeyError or ValueError if something is missing or does not fit."""
    maps: Mapping[str, Any] = doc.get("maps") or {}
    waits: Mapping[str, int] = doc.get("waits") or {}
    signals: Mapping[str, Sequence[str]] = doc.get("signals") or {}
    consumed: Mapping[str, str] = doc.get("consumed") or {}
    failure, output = doc.get("failure"), doc.get("output")
    known = chunks or {}
    return ExecutionState(
        status=_STATUS[doc["status"]],
        tasks=doc["tasks"].encode("ascii"),
        maps={
            int(task): _map_from_doc(value, known.get(int(task))) for task, value in maps.items()
        },
        waits={int(task): due for task, due in waits.items()},
        signals={name: tuple(ids) for name, ids in signals.items()},
        consumed={int(task): id for task, id in consumed.items()},
        taken=unpack_taken(doc.get("taken") or {}),
        deadlines=times_of(doc.get("deadlines") or {}),
        failure=None if failure is None else record_from_doc(failure),
        output=None if output is None else Payload.from_doc(output),
        accepted_at=doc["acceptedAt"],
        started_at=doc.get("startedAt"),
        ended_at=doc.get("endedAt"),
        deadline_at=doc.get("deadlineAt"),
        hidden=doc.get("hidden", 0),
        undo=tuple(doc.get("undo", ())),
        ending=_STATUS[doc["ending"]] if "ending" in doc else None,
        terminated=doc.get("terminated", False),
        seq=doc["seq"],
    )


def open_maps(doc: Mapping[str, Any], size: int = MAP_CHUNK_ITEMS) -> dict[int, int]:
    """Position -> number of chunk documents of `size` items, for the maps whose items cannot be
    told from their counts (all alike): those must be loaded for `state_from_doc`. `decide`
    needs them for WAITING tasks only."""
    maps: Mapping[str, Any] = doc.get("maps") or {}
    return {
        int(task): -(-value["count"] // size)
        for task, value in maps.items()
        if _uniform(value) is None
    }


def chunks_of(state: MapState, size: int = MAP_CHUNK_ITEMS) -> list[str]:
    """The letters of a map's items, `size` per chunk."""
    text = state.items.decode("ascii")
    return [text[at : at + size] for at in range(0, len(text), size)]


def _map_to_doc(state: MapState) -> dict[str, Any]:
    doc: dict[str, Any] = {"count": state.count}
    if state.queued:
        doc["queued"] = state.queued
    if state.completed:
        doc["completed"] = state.completed
    if state.failed:
        doc["failed"] = state.failed
    if state.accepted:
        doc["accepted"] = state.accepted
    if state.cancelled:
        doc["cancelled"] = state.cancelled
    if state.failure is not None:
        doc["failure"] = record_to_doc(state.failure)
    return doc


def _map_from_doc(doc: Mapping[str, Any], chunks: Sequence[str] | None) -> MapState:
    count: int = doc["count"]
    uniform = _uniform(doc)
    if uniform is not None:
        items = bytes([uniform]) * count
    elif chunks is None:
        items = b""
    else:
        items = "".join(chunks).encode("ascii")
        if len(items) != count:
            raise ValueError(f"map chunks hold {len(items)} items, the execution says {count}")
    failure = doc.get("failure")
    return MapState(
        items=items,
        count=count,
        queued=doc.get("queued", 0),
        completed=doc.get("completed", 0),
        failed=doc.get("failed", 0),
        accepted=doc.get("accepted", 0),
        cancelled=doc.get("cancelled", 0),
        failure=None if failure is None else record_from_doc(failure),
    )


def _uniform(doc: Mapping[str, Any]) -> int | None:
    """The code that all items have, if the counts alone say so."""
    count: int = doc["count"]
    for name, code in _UNIFORM:
        if doc.get(name, 0) == count:
            return code
    touched = any(name in doc for name, _ in _UNIFORM)
    return None if touched else Code.PENDING


_UNIFORM: Final = (
    ("completed", Code.COMPLETED),
    ("queued", Code.QUEUED),
    ("failed", Code.DEAD_LETTERED),
    ("cancelled", Code.CANCELLED),
)


def record_to_doc(record: FailureRecord) -> dict[str, Any]:
    """A failure with the task it belongs to: `Failure.to_doc` plus `task`?, `index`?."""
    doc = record.failure.to_doc()
    if record.task:
        doc["task"] = record.task
    if record.index is not None:
        doc["index"] = record.index
    return doc


def record_from_doc(doc: Mapping[str, Any]) -> FailureRecord:
    """Inverse of `record_to_doc`."""
    return FailureRecord(
        failure=Failure.from_doc(dict(doc)), task=doc.get("task", ""), index=doc.get("index")
    )
