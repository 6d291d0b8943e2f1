"""Records what a version of Weft leaves in its store, half-way: fixtures for `test_upgrade.py`.

    mkdir /tmp/old && git archive COMMIT | tar -x -C /tmp/old
    cd /tmp/old && PYTHONPATH=/tmp/old python …/tests/upgrade/record.py COMMIT >…/fixtures/NAME.json

Runs with the engine and the test world of that commit, so it uses nothing that came later without
asking for it: what the version cannot do is left out. A recorded fixture is never changed; each
release adds one.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from orchestrator.domain import topology
from orchestrator.ports import Query
from tests.support.world import TENANT, FakeActivities, World  # of that commit

RETRY = {"maxAttempts": 4, "initialInterval": "10m", "backoffCoefficient": 1, "jitter": "none"}
NOOP = {"type": "activity", "activity": "noop"}
FLOWS: list[dict[str, Any]] = [
    {
        "name": "chain",
        "input": {"type": "object", "required": ["n"]},
        "tasks": {
            "a": {**NOOP, "input": "${input.n}"},
            "each": {
                "type": "map",
                "needs": ["a"],
                "items": "${[1, 2, 3, 4, 5]}",
                "maxConcurrency": 2,
                "do": {**NOOP, "input": "${item}"},
            },
            "rest": {"type": "wait", "needs": ["a"], "duration": "30m"},
            "flaky": {"type": "activity", "activity": "flaky", "needs": ["a"], "retry": RETRY},
            "never": {**NOOP, "needs": ["a"], "when": "${false}"},
            "z": {**NOOP, "needs": ["each", "rest", "flaky"], "input": "${tasks.each.output}"},
        },
        "output": "${tasks.z.output}",
    },
    {
        "name": "held",
        "onFailure": "hold",
        "tasks": {
            "bad": {"type": "activity", "activity": "bad", "retry": {"maxAttempts": 1}},
            "z": {**NOOP, "needs": ["bad"], "runWhen": "allDone"},
        },
    },
    {
        "name": "undone",
        "tasks": {
            "a": {**NOOP, "compensate": {"type": "activity", "activity": "noop"}},
            "b": {**NOOP, "needs": ["a"], "compensate": {"type": "activity", "activity": "noop"}},
            "bad": {
                "type": "activity",
                "activity": "bad",
                "needs": ["b"],
                "retry": {"maxAttempts": 1},
            },
        },
    },
    {
        "name": "asks",
        "tasks": {
            "go": {"type": "signal", "signal": "go"},
            "z": {**NOOP, "needs": ["go"], "input": "${tasks.go.output}"},
        },
    },
    {
        "name": "parent",
        "tasks": {
            "child": {"type": "workflow", "workflow": "chain", "input": {"n": 7}},
            "z": {**NOOP, "needs": ["child"], "input": "${tasks.child.output}"},
        },
    },
    {
        "name": "told",
        "notify": [{"on": ["completed"], "webhook": {"url": "https://hooks.example/weft"}}],
        "tasks": {"a": NOOP},
    },
    {
        "name": "crowded",
        "concurrency": {"limit": 1},
        "tasks": {"rest": {"type": "wait", "duration": "20m"}},
    },
    {"name": "dies", "tasks": {"a": {"type": "activity", "activity": "die", "retry": RETRY}}},
]
INPUTS: dict[str, Any] = {"chain": {"n": 1}}


def _fail(call: Any) -> Any:
    raise ValueError("no")


def _die(call: Any) -> Any:
    """As if the process were killed here: no exception handler of an attempt sees it."""
    if call.attempt < 2:
        raise asyncio.CancelledError
    return call.attempt


def _flaky(call: Any) -> Any:
    if call.attempt < 3:
        raise ConnectionError("not yet")
    return call.attempt


async def _turn(world: World) -> None:
    due = world.transport.take(world.clock.now(), limit=1)
    if due:
        with contextlib.suppress(asyncio.CancelledError):
            await world.deliver(due)


async def _try(what: str, done: list[str], work: Callable[[], Awaitable[object]]) -> None:
    """Note `what` if that version can do it."""
    try:
        await work()
    except Exception as error:
        sys.stderr.write(f"{what}: {type(error).__name__}: {str(error)[:120]}\n")
    else:
        done.append(what)


def _use(module: str, function: str, *args: Any, **kwargs: Any) -> Callable[[], Awaitable[object]]:
    async def work() -> None:
        await getattr(importlib.import_module(f"orchestrator.engine.{module}"), function)(
            *args, **kwargs
        )

    return work


async def record(commit: str) -> dict[str, Any]:
    """All documents of a platform that is busy with each of `FLOWS`."""
    with tempfile.TemporaryDirectory() as folder:
        activities = FakeActivities(
            **{"weft.http": lambda call: {"status": 200}},
            noop=lambda call: call.input,
            flaky=_flaky,
            bad=_fail,
            die=_die,
        )
        world = await World(Path(folder), activities).open()
        engine, done = world.engine, list[str]()
        for flow in FLOWS:

            async def publish(flow: dict[str, Any] = flow) -> None:
                await world.publish(flow)

            await _try(flow["name"], done, publish)
        asked: list[str] = []
        for name in done:
            for turns in (0, 1, 4, 12, 40) if name == "chain" else (1, 14):
                id = (await world.start(name, INPUTS.get(name), tags={"turns": str(turns)})).id
                asked += [id] if name == "asks" else []
                for _ in range(turns):
                    await _turn(world)
        if asked:
            await _try("signal", done, _use("signals", "send", engine, TENANT, asked[0], "go", 5))
        await _more(world, done)
        world.transport.failing = True
        await world.start("chain", INPUTS["chain"])  # its outbox stays
        await world.clock.advance(1_000)
        containers = {}
        for name, spec in topology.CONTAINERS.items():
            found = await world.sqlite.query(name, Query(limit=100_000))
            containers[name] = [[[d.body[p] for p in spec.partition], d.body] for d in found]
        result = {"commit": commit, "now": world.clock.now(), "has": done, "containers": containers}
        world.transport.failing = False
        await world.close()
        return result


async def _more(world: World, done: list[str]) -> None:
    """What is beside executions."""
    engine = world.engine
    schedule = {"name": "s", "workflow": "chain", "input": {"n": 2}, "interval": "1h"}
    trigger = {
        "name": "t",
        "workflow": "chain",
        "match": {"type": "order.placed"},
        "input": {"n": "${event.data.n}"},
    }
    await _try("schedule", done, _use("schedules", "create", engine, TENANT, schedule, by="op"))
    await _try("trigger", done, _use("triggers", "create", engine, TENANT, trigger, by="op"))
    opening = _use("breakers_act", "open_", engine, TENANT, "pay.example", by="op", reason="test")
    await _try("breaker", done, opening)

    async def grant() -> None:
        from orchestrator.domain.grant_model import GrantsModel

        wanted = GrantsModel.model_validate(
            {"grants": [{"subjects": ["op@example.com"], "role": "operator"}]}
        )
        await _use("grants", "put", engine, TENANT, wanted, if_match=None, by="op")()

    await _try("grants", done, grant)
    await _try("scheduler", done, _use("schedule", "run_due", engine))

    async def project() -> None:
        module = importlib.import_module("orchestrator.engine.project")
        page = await world.sqlite.changes(topology.EXECUTIONS, None, 100_000)
        await module.project_documents(engine, [doc.body for doc in page.documents])

    await _try("visibility", done, project)


def _text(found: dict[str, Any]) -> str:
    """One document a line."""
    containers = found.pop("containers")
    parts: list[str] = []
    for name, docs in containers.items():
        lines = [json.dumps(doc, separators=(",", ":"), sort_keys=True) for doc in docs]
        parts.append(f"{json.dumps(name)}: [\n" + ",\n".join(lines) + "]")
    head = json.dumps(found, sort_keys=True)[:-1]
    return f'{head}, "containers": {{' + ",\n".join(parts) + "}}\n"


if __name__ == "__main__":
    sys.stdout.write(_text(asyncio.run(record(sys.argv[1]))))
