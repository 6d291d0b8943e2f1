"""One scenario in the real worker library, in this process: `python -m … SCENARIO APP_DIR`.

Prints one line of JSON. The settings are the environment's, as for a function app.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from orchestrator import bootstrap
from orchestrator.domain.topology import (
    DEAD_LETTER_SUFFIX,
    EVENTS_QUEUE,
    EXECUTIONS,
    ORCHESTRATION_QUEUE,
    TASKS_STANDARD_QUEUE,
)
from orchestrator.engine.core import Engine
from orchestrator.ports import OutMessage, TransportError
from tests.wire.worker.code import code
from tests.wire.worker.library import InvocationFailed, Worker

DEFINITION = {
    "name": "squares",
    "tasks": {
        "numbers": {"type": "transform", "output": "${[1, 2, 3]}"},
        "square": {
            "type": "map",
            "needs": ["numbers"],
            "items": "${tasks.numbers.output}",
            "do": {"type": "transform", "output": "${item * item}"},
        },
    },
    "output": "${tasks.square.output}",
}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def index(worker: Worker, engine: list[Engine]) -> Any:
    """What the host gets to read, and that nothing was built for it."""
    return {"bindings": worker.bindings, "engines": len(engine)}


async def run(worker: Worker, engine: list[Engine]) -> Any:
    """A workflow from publish to output, every step through a trigger."""
    execution = await _start(worker)
    handled = await _work(worker, engine[0])
    _, seen, _ = await worker.http(
        "get_execution", "GET", f"http://x/v1/executions/{execution}", route={"id": execution}
    )
    return {"execution": seen, "handled": handled, "engines": len(engine)}


async def relay(worker: Worker, engine: list[Engine]) -> Any:
    """The broker refuses the fast path; the change feed brings the outbox to the relay."""
    await worker.http("ready", "GET", "http://x/ready")
    transport = engine[0].transport
    engine[0].transport = Refusing()
    execution = await _start(worker)
    engine[0].transport = transport
    page = await engine[0].store.changes(EXECUTIONS, None, 100)
    found = [doc.body for doc in page.documents]
    poison = {"id": "outbox:poison", "type": "outbox", "messages": "?", "tenantId": "t"}
    await worker.documents("relay", "documents", [poison, *found])
    again = await engine[0].store.changes(EXECUTIONS, None, 100)
    await worker.documents("relay", "documents", found)  # the same batch a second time
    handled = await _work(worker, engine[0])
    _, seen, _ = await worker.http(
        "get_execution", "GET", f"http://x/v1/executions/{execution}", route={"id": execution}
    )
    return {
        "status": seen["status"],
        "outboxes": [
            sum(doc["type"] == "outbox" for doc in docs)
            for docs in (found, [doc.body for doc in again.documents])
        ],
        "sent": handled["sent"],
        "metrics": dict(engine[0].metrics.counters),
    }


async def garbage(worker: Worker, engine: list[Engine]) -> Any:
    """Messages that are none become dead letters; their neighbours and the function live on."""
    execution = await _start(worker)
    broker: Any = engine[0].transport
    for number in range(3):
        bad = OutMessage(queue=ORCHESTRATION_QUEUE, body=b"\xff", message_id=f"bad{number}")
        await broker.send([bad])
    await _work(worker, engine[0])
    await worker.tick("sweeper", "timer")
    _, seen, _ = await worker.http(
        "get_execution", "GET", f"http://x/v1/executions/{execution}", route={"id": execution}
    )
    return {"status": seen["status"], "metrics": dict(engine[0].metrics.counters)}


async def events(worker: Worker, engine: list[Engine]) -> Any:
    """One event by all three ways, in all its forms: HTTP, the queue, Event Grid."""
    await worker.http("publish_workflow", "POST", "http://x/v1/workflows", body=DEFINITION)
    trigger = {"name": "any", "workflow": "squares", "match": {"type": "t"}}
    status, answer, _ = await worker.http(
        "create_trigger", "POST", "http://x/v1/triggers", body=trigger
    )
    if status != 201:
        raise AssertionError(answer)
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": 5}}
    grid = {"id": "1", "topic": "/s", "subject": "", "eventType": "t", "data": {"n": 5}}
    time = "2026-11-30T12:00:00.1234567Z"
    await worker.event("event_grid", "event", {**grid, "eventTime": time, "dataVersion": "1.0"})
    await worker.event("event_grid", "event", {**event, "time": time, "sequence": "7"})
    await worker.event("event_grid", "event", {**event, "source": ""})
    broker: Any = engine[0].transport
    body = json.dumps(event).encode()
    await broker.send([OutMessage(queue=EVENTS_QUEUE, body=body, message_id="m")])
    (message,) = await broker.receive(EVENTS_QUEUE, 1, 0)
    await worker.message("events", "message", message)
    await broker.dead_letter(message, "TooOften", "it crashed")
    (message,) = await broker.receive(EVENTS_QUEUE + DEAD_LETTER_SUFFIX, 1, 0)
    await worker.message("events_dead", "message", message)
    kind = {"content-type": "application/cloudevents+json"}
    status, answer, _ = await worker.http(
        "send_events", "POST", "http://x/v1/events", body=event, headers=kind
    )
    await _work(worker, engine[0])
    _, letters, _ = await worker.http("list_deadletters", "GET", "http://x/v1/deadletters")
    (id,) = answer["items"][0]["executions"]
    url = f"http://x/v1/executions/{id}"
    _, seen, _ = await worker.http("get_execution", "GET", url, route={"id": id})
    return {
        "status": status,
        "execution": seen,
        "letters": sorted(letter["reason"] for letter in letters["items"]),
        "metrics": dict(engine[0].metrics.counters),
    }


async def unsettled(worker: Worker, engine: list[Engine]) -> Any:
    """The settings are unusable: everything is indexed, health says so, triggers fail."""
    status, body, _ = await worker.http("ready", "GET", "http://x/ready")
    failed = ""
    try:
        await worker.tick("sweeper", "timer")
    except InvocationFailed as error:
        failed = str(error)
    return {"functions": len(worker.bindings), "status": status, "body": body, "failed": failed}


class Refusing:
    """A broker that is down."""

    async def send(self, messages: Any) -> None:
        raise TransportError("down")

    async def close(self) -> None:
        pass


async def _start(worker: Worker) -> str:
    status, answer, _ = await worker.http(
        "publish_workflow", "POST", "http://x/v1/workflows", body=DEFINITION
    )
    if status not in (200, 201):
        raise AssertionError(answer)
    status, answer, headers = await worker.http(
        "start_execution",
        "POST",
        "http://x/v1/workflows/squares/start",
        route={"name": "squares"},
        body={"input": {}},
        headers={"traceparent": TRACE},
    )
    if status != 202:
        raise AssertionError(answer)
    return headers["location"].rpartition("/")[2]


async def _work(worker: Worker, engine: Engine) -> dict[str, Any]:
    """Deliver until both queues are empty, as the host would; what was delivered."""
    broker: Any = engine.transport
    counts = {"orchestration": 0, "tasks": 0, "batches": 0}
    sent: list[str] = []
    traces: set[str] = set()
    while True:
        batch = await broker.receive(ORCHESTRATION_QUEUE, 32, 0)
        if batch:
            await worker.messages("orchestration", "messages", batch)
            await broker.complete_many(batch)
        singles = await broker.receive(TASKS_STANDARD_QUEUE, 8, 0)
        for message in singles:
            await worker.message("tasks_standard", "message", message)
            await broker.complete(message)
        await engine.drain()
        counts["batches"] += bool(batch)
        counts["orchestration"] += len(batch)
        counts["tasks"] += len(singles)
        sent += [message.message_id for message in (*batch, *singles)]
        traces |= {m.properties.get("traceparent", "") for m in (*batch, *singles)}
        if not batch and not singles:
            return {**counts, "sent": sent, "traces": sorted(traces)}


SCENARIOS: dict[str, Callable[[Worker, list[Engine]], Awaitable[Any]]] = {
    scenario.__name__: scenario
    for scenario in (index, run, relay, garbage, events, unsettled, code)
}


async def main(name: str, app_dir: str) -> None:
    engines: list[Engine] = []
    build = bootstrap.build

    async def noted(*args: Any, **kwargs: Any) -> Engine:
        engines.append(await build(*args, **kwargs))
        return engines[-1]

    bootstrap.build = noted  # the app's own engine, looked at and never replaced
    worker = await Worker.start(app_dir)
    print(json.dumps(await SCENARIOS[name](worker, engines)))  # noqa: T201
    for engine in engines:
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
