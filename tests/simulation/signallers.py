"""Signals in the simulation: somebody who sends them at random moments, also doubled, and what must
be true of them in the end.

While faults last, ids are drawn from a few, so that one signal is sent again and again, from
several clients, to executions that have just begun, wait, or have ended. Then whoever still waits
is served, so that every execution can end. The payload depends on the name alone: which of two
signals of one name a task takes does not change the outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.domain.errors import WeftError
from orchestrator.domain.taken import mark_of, unpack_taken
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import signals
from orchestrator.ports import StoreError, TransportError
from tests.simulation.loop import sleep

if TYPE_CHECKING:
    from tests.simulation.world import World

TENANT = "acme"
RECOVERY_MS = 400_000
"""What was accepted while its execution was open is taken in within this, without faults."""


def payload_of(name: str) -> dict[str, Any]:
    """What a signal of this name holds."""
    value: dict[str, Any] = {"n": len(name) * 100, "list": list(range(len(name) % 4)), "name": name}
    if name == "big":
        value["pad"] = "x" * 70 * 1024
    return value


async def signaller(world: World) -> None:
    """Sends while faults last; then serves whoever waits, for as long as the world lives."""
    while world.plan.enabled:
        await sleep(world.rng.random() * 2)
        fault = world.plan.at("signals", world.chances.signals)
        known = sorted(world.watch.statuses)
        if fault is None or not known:
            continue
        id = known[fault.size % len(known)]
        names = sorted(world.flow(id).signals)
        if not names:
            continue
        name = names[fault.size // 7 % len(names)]
        key = f"{name}/{fault.size // 50 % 6}"
        for client in (0, 1) if fault.kind == "again" else (0,):
            await _send(world, id, name, key, client)
    count = 0
    while True:
        await sleep(5)
        for id in world.open():
            state = world.state(id)
            if state is None:
                continue
            for name, tasks in sorted(world.flow(id).signals.items()):
                codes = [state["tasks"][world.position(id, task)] for task in tasks]
                if "W" in codes:
                    count += 1
                    await _send(world, id, name, f"late {count}", 0)


async def _send(world: World, id: str, name: str, key: str, client: int) -> None:
    world.signals.setdefault((id, key), (name, False))
    try:
        await signals.send(world.clients[client].engine, TENANT, id, name, payload_of(name), id=key)
    except (StoreError, TransportError, WeftError, OSError):
        return  # not known to be stored; a signal that is may have been, and it counts then
    world.note(f"signal {key} to {id}")
    world.signals[id, key] = (name, True)


def unmarked(world: World) -> list[str]:
    """Signals that the sweeper still has to ask for."""
    bodies = world.store.bodies(EXECUTIONS).values()
    return [body["id"] for body in bodies if body["type"] == "signal" and "sweepAt" in body]


def judge_signals(world: World, execution: str) -> None:
    """Each accepted signal is there, taken by one task, buffered, or came as the execution ended;
    each task that completed has taken one of its own name, with its payload."""
    state = world.state(execution)
    assert state is not None
    docs = world.store.bodies(EXECUTIONS, (TENANT, execution))
    stored = {body["signalId"]: body for body in docs.values() if body["type"] == "signal"}
    for (owner, id), (_, accepted) in world.signals.items():
        if owner == execution and accepted and id not in stored:
            world.fail(f"{execution}: signal {id} was accepted and is lost")
    names = {body["key"]: body["name"] for body in stored.values()}
    taken: dict[str, str] = state.get("consumed", {})
    buffered = [key for keys in state.get("signals", {}).values() for key in keys]
    items = _judge_items(world, execution, docs, names)
    known = [*taken.values(), *buffered, *items]
    if len(set(known)) != len(known):
        world.fail(f"{execution}: a signal was taken twice: {taken} {buffered} {items}")
    for id, body in stored.items():
        ended = _over_at(docs, state) or world.now()
        late = max(body["receivedAt"], world.healed_at) + RECOVERY_MS
        raised = body["status"] == "RAISED"  # to an orchestration, which `hubs` judges
        if body["key"] not in known and not raised and ended > late:
            world.fail(f"{execution}: signal {id} was never taken in")
    tasks = world.flow(execution).definition["tasks"]
    waiting = {
        str(at): task for at, task in enumerate(tasks.items()) if task[1]["type"] == "signal"
    }
    for at, (id, task) in waiting.items():
        completed = state["tasks"][int(at)] == "C"
        if completed != (at in taken):
            if not completed or not _given(docs, execution, id):
                world.fail(f"{execution}: {id} is {state['tasks'][int(at)]}, took {taken.get(at)}")
        elif completed:
            if names.get(taken[at]) != task["signal"]:
                world.fail(f"{execution}: {id} took {taken[at]}, no signal {task['signal']}")
            doc = docs[(TENANT, execution), f"task:{id}"]
            if doc["output"] != docs[(TENANT, execution), f"signal:{taken[at]}"]["payload"]:
                world.fail(f"{execution}: the output of {id} is not its signal's payload")


def _over_at(docs: dict[Any, Any], state: dict[str, Any]) -> int | None:
    """When the execution ended for its signals: what undoes takes none, and may go on for long."""
    begun = (
        event["at"]
        for body in docs.values()
        if body["type"] == "events"
        for event in body["events"]
        if event["type"] == "compensationStarted"
    )
    return next(begun, state.get("endedAt"))


def _judge_items(
    world: World, execution: str, docs: dict[Any, Any], names: dict[str, str]
) -> list[str]:
    """The keys of the signals that items have, after a look at their documents."""
    state = world.state(execution)
    assert state is not None
    marks = unpack_taken(state.get("taken", {}))
    keys: list[str] = []
    for at, (id, task) in enumerate(world.flow(execution).definition["tasks"].items()):
        if task.get("do", {}).get("type") != "signal":
            continue
        for (_, name), doc in docs.items():
            if doc["type"] != "task" or doc.get("task") != id or "item" not in doc:
                continue
            mark, key = marks.pop((at, doc["item"]), None), doc.get("signal")
            if doc["status"] != "COMPLETED" or key is None:
                skipped = any(
                    letter["status"] == "SKIPPED"
                    for (_, other), letter in docs.items()
                    if other.startswith(f"dead:{id}:{doc['item']}:")
                )
                if mark is not None or (doc["status"] == "COMPLETED" and not skipped):
                    world.fail(f"{execution}/{name}: {doc['status']}, took {mark}")
                continue
            keys.append(key)
            if mark != mark_of(key) or names.get(key) != task["do"]["signal"]:
                world.fail(f"{execution}/{name}: took {key}, the state says {mark}")
            elif doc["output"] != docs[(TENANT, execution), f"signal:{key}"]["payload"]:
                world.fail(f"{execution}/{name}: its output is not its signal's payload")
    if marks:
        world.fail(f"{execution}: items without documents took signals: {marks}")
    return keys


def unclosed(world: World) -> list[str]:
    """Items that still wait for a signal although their execution has ended, and tasks that have
    ended before their orchestration was seen to: to be looked at."""
    bodies = world.store.bodies(EXECUTIONS).values()
    return [
        body["id"]
        for body in bodies
        if body["type"] == "task"
        and (
            (body["status"] == "WAITING" and "awaits" in body)
            or ("instance" in body and not body["instance"].get("settled"))
        )
        and body["executionId"] not in world.open()
    ]


def _given(docs: dict[Any, Any], execution: str, task: str) -> bool:
    """Whether it completed without a signal: copied by a replay, or with an operator's output."""
    if "copiedFrom" in docs[(TENANT, execution), f"task:{task}"]:
        return True
    letters = [doc for (_, id), doc in docs.items() if id.startswith(f"dead:{task}:")]
    return any(letter["status"] == "SKIPPED" for letter in letters)
