"""What Durable Functions tells of an orchestration's past, in the words of Weft's own history.

Payloads are shown as everywhere, by their size alone; but every activity of a code workflow is one
function to Durable, so which it is stands in its input. Its events have no place among the commits:
they follow the history, in their own order, and say where they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.domain import jsonvalues
from orchestrator.domain.codec import iso
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.orchestration import MAIN, workflow_of
from orchestrator.domain.orchestration_result import failure_from
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import TaskType
from orchestrator.engine import documents, inspect, live
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.engine.views import HistoryEvent
from orchestrator.ports_durable import ACTIVITY_FUNCTION, CALL_FUNCTION, Instance

SOURCE: Final = "durable"
MAX_EVENTS: Final = 1_000
"""Of one execution; older ones are left out."""
MAX_INSTANCES: Final = 20
WORDS: Final = {
    "ExecutionStarted": "executionStarted",
    "ExecutionCompleted": "executionCompleted",
    "ExecutionFailed": "executionFailed",
    "ExecutionTerminated": "executionCancelled",
    "ExecutionSuspended": "executionPaused",
    "ExecutionResumed": "executionResumed",
    "TaskScheduled": "taskQueued",
    "TaskCompleted": "taskCompleted",
    "TaskFailed": "taskFailed",
    "SubOrchestrationInstanceCreated": "childStarted",
    "SubOrchestrationInstanceCompleted": "childCompleted",
    "SubOrchestrationInstanceFailed": "childFailed",
    "TimerCreated": "taskWaiting",
    "TimerFired": "timerFired",
    "EventRaised": "signalReceived",
}
"""Durable's event -> ours. Turns of the orchestrator are no events of the workflow."""
_TIMES: Final = {"ScheduledTime": "startedAt", "FireAt": "dueAt"}
_ENDS: Final = {"Completed": "executionCompleted", "Failed": "executionFailed"}


async def of_execution(engine: Engine, tenant: str, execution: str) -> list[HistoryEvent]:
    """The events of the orchestrations that its tasks have now, oldest first; instead of one's
    events a `note` where Durable does not tell. Raises `NotFoundError`."""
    found = await inspect.aggregate(engine, tenant, execution)
    events: list[HistoryEvent] = []
    for task, instance in await _instances(engine, found):
        seen, note = await live.seen_now(engine, instance, history=True)
        more = {"source": SOURCE, "task": task, "instance": instance}
        if seen is None:
            unknown = {"type": "orchestrationUnknown", "at": iso(engine.clock.now()), "note": note}
            events.append(_event(found, {**unknown, **more}))
        else:
            events += [_event(found, {**one, **more}) for one in translate(seen)]
    return sorted(events, key=lambda one: one.at)[-MAX_EVENTS:]


async def _instances(engine: Engine, found: Aggregate) -> list[tuple[str, str]]:
    """(task, instance) of its durable tasks that have one; items of maps are left out."""
    names = [spec.id for spec in found.workflow.tasks if spec.type is TaskType.DURABLE]
    ids = [documents.task_id(MAIN if found.workflow.code else name) for name in names]
    docs = await patiently(engine, engine.store.read_many, EXECUTIONS, found.partition, ids)
    bodies = [docs[id].body for id in ids if id in docs]
    known = [(one["task"], one["instance"]["id"]) for one in bodies if "instance" in one]
    return known[:MAX_INSTANCES]


def _event(found: Aggregate, fields: Mapping[str, Any]) -> HistoryEvent:
    return HistoryEvent(seq=found.state.seq, **fields)


def translate(seen: Instance) -> Iterable[dict[str, Any]]:
    """The events that Durable tells, as ours: `type`, `at`, and what there is to say."""
    for event in seen.history or ():
        kind = WORDS.get(str(event.get("EventType")))
        if kind is None:
            continue
        if kind == "executionCompleted":
            kind = _ENDS.get(str(event.get("OrchestrationStatus")), kind)
        told: dict[str, Any] = {"type": kind, "at": _time(event.get("Timestamp"))}
        name = event.get("FunctionName") or event.get("Name")
        if name and kind.startswith("execution"):
            told["orchestrator"] = name
        elif name:
            told |= _what(kind, str(name), event.get("Input"))
        for theirs, ours in _TIMES.items():
            if event.get(theirs):
                told[ours] = _time(event[theirs])
        if event.get("Result") is not None:
            told["output"] = {"bytes": len(jsonvalues.dumps(event["Result"]))}
        if kind == "signalReceived" and event.get("Input") is not None:
            told["input"] = {"bytes": len(jsonvalues.dumps(event["Input"]))}
        if event.get("Reason"):
            told["reason"] = _reason(str(event["Reason"]))
        yield told


def _what(kind: str, name: str, given: Json) -> dict[str, Any]:
    """What an event is about, in the author's words as far as its input tells."""
    if kind == "signalReceived":
        return {"signal": name}
    doc = _unnested(given)
    if isinstance(doc, list) and len(doc) == 1:  # Durable's host: a list of arguments
        doc = _unnested(doc[0])
    if isinstance(doc, dict) and name in (ACTIVITY_FUNCTION, CALL_FUNCTION):
        call = doc.get("call", doc)
        for field in ("activity", "workflow"):
            own = call.get(field) if isinstance(call, dict) else None
            if isinstance(own, str):
                return {field: own}
    if (child := workflow_of(name)) is not None:
        return {"workflow": child[0], "version": child[1]}
    return {"activity": name}


def _unnested(value: Json) -> Json:
    """JSON text as a value, also that within."""
    while isinstance(value, str):
        try:
            value = jsonvalues.loads(value)
        except ValueError:
            break
    return value


def _reason(text: str) -> str:
    failure = failure_from(text)
    return (text if failure is None else f"{failure.type}: {failure.message}")[:1_000]


def _time(text: Any) -> str:
    """Durable's time as ours; it writes up to seven digits of a second."""
    try:
        moment = datetime.fromisoformat(str(text)[:26].rstrip("Z"))
    except ValueError:
        return str(text)
    return iso(int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000))
