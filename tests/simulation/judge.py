"""Invariants that are looked at when faults are over: outcome, history, and silence."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import outbox, verify
from tests.simulation.profile import Profile
from tests.simulation.reference import Reference, attempts_of
from tests.simulation.world import QUEUES, TENANT, World

QUIET_WITHIN_S = 2_400
RECOVERY_S = 400
STOPPED_WITHIN_S = 1_200
"""How long a child may run after its parent's cancel, faults of some minutes included."""


async def judge(world: World, profile: Profile) -> None:
    """Nothing accepted is lost, the history is the state, the outcome is the fault-free one."""
    reference = Reference()
    judged: set[str] = set()
    client = world.client.engine
    await _children(world)
    for submission in world.submissions:
        id = submission.execution
        if not id or id in judged:
            continue
        judged.add(id)
        doc = world.document(id)
        if doc is None:
            world.fail(f"{id} was accepted and is lost")
            continue
        report = await verify.verify(client, TENANT, id)
        for problem in report.problems:
            world.fail(f"{id}: {problem}")
        _agree(world, id)
        if submission.flow.comparable and world.cancelled.isdisjoint(_family(world, id)):
            expected = reference.of(submission.flow)
            _attempts_are_real(world, id)
            found = world.outcome(id, whole=expected.whole)
            if found != expected.outcome:
                world.fail(f"{id}: outcome {found}, without faults {expected.outcome}")
            elif profile.benign and expected.whole:
                attempts = attempts_of(world, id)
                if attempts != expected.attempts:
                    world.fail(f"{id}: attempts {attempts}, without faults {expected.attempts}")


def _family(world: World, execution: str) -> list[str]:
    """It and all its descendants."""
    found = [execution]
    for id in found:  # grows while it is read
        found += [child for child, parent in world.watch.parents.items() if parent == id]
    return found


async def _children(world: World) -> None:
    """Every child is known to its parent, and was not left behind by it."""
    for id, parent in world.watch.parents.items():
        report = await verify.verify(world.client.engine, TENANT, id)
        for problem in report.problems:
            world.fail(f"{id}: {problem}")
        _agree(world, id)
        doc, above = world.document(id), world.document(parent)
        if doc is None or above is None:
            world.fail(f"{id}: it or its parent {parent} is lost")
            continue
        place = doc["parentTask"]
        name = f"task:{place['task']}" + (f":{place['item']}" if "item" in place else "")
        task = world.store.body(EXECUTIONS, (TENANT, parent), name)
        if task is None or task["child"]["number"] < place["number"]:
            world.fail(f"{id}: its parent's {name} does not know it: {task}")
        if task is not None and not task["child"].get("settled"):
            world.fail(f"{parent}/{name}: ended without knowing the end of its child: {task}")
        left = doc["state"].get("endedAt", 0) - above["state"].get("endedAt", 0)
        if above["status"] == "CANCELLED" and left > STOPPED_WITHIN_S * 1000:
            world.fail(f"{id}: ran for {left} ms after its parent was cancelled")


def _agree(world: World, execution: str) -> None:
    """The task documents say what the state says."""
    wanted = {"C": "COMPLETED", "D": "DEAD_LETTERED"}
    state = world.state(execution)
    assert state is not None
    docs = world.store.bodies(EXECUTIONS, (TENANT, execution))
    tasks = world.flow(execution).definition["tasks"]
    for code, (id, task) in zip(state["tasks"], tasks.items(), strict=True):
        doc = docs.get(((TENANT, execution), f"task:{id}"))
        waited = task["type"] == "wait" and code == "C"  # a wait leaves no document
        if code in wanted and not waited and (doc is None or doc["status"] != wanted[code]):
            world.fail(f"{execution}: {id} is {code}, its document {doc}")
        if code in "Ss" and doc is not None:
            world.fail(f"{execution}: {id} was skipped and has a document")


def _attempts_are_real(world: World, execution: str) -> None:
    """An attempt that is recorded with an activity's own failure has run."""
    docs = world.store.bodies(EXECUTIONS, (TENANT, execution))
    dead = {id for (_, id) in docs if id.startswith("dead:")}
    for (_, id), doc in docs.items():
        if doc["type"] != "task":
            continue
        letter = f"dead:{id.removeprefix('task:')}:{doc['attempt']}"
        if doc["attempt"] and (doc["status"] == "DEAD_LETTERED") != (letter in dead):
            world.fail(f"{execution}/{id}: is {doc['status']}, its dead letter says otherwise")
        for attempt in doc.get("attempts", ()):
            type = attempt.get("error", {}).get("type")
            failed = type in ("Flaky", "Fatal", "OUTPUT_NOT_JSON")
            if type in ("Throttled", "Unavailable") and not world.outage:
                world.fail(f"{execution}/{id}: attempt {attempt['attempt']} paid for a {type}")
            if failed and (execution, id, attempt["attempt"]) not in world.watch.started:
                world.fail(f"{execution}/{id}: attempt {attempt['attempt']} is recorded, never ran")


async def recover_again(world: World) -> None:
    """Everything falls silent; another round of recovery finds nothing and changes nothing."""
    if not await world.until(lambda: _quiet(world), QUIET_WITHIN_S):
        left = {queue: len(world.broker.queues[queue]) for queue in QUEUES}
        world.fail(f"not quiet {QUIET_WITHIN_S} s after the end: {left} {_outboxes(world)}")
        return
    await world.until(lambda: False, 120)
    before = _snapshot(world)
    messages: list[Message] = []
    for body in world.store.bodies(EXECUTIONS).values():
        owner: tuple[str, str] = (body["tenantId"], body["executionId"])
        if body["type"] == "execution":
            messages += [
                Message(MessageType.CHECK, *owner),
                Message(MessageType.EXECUTION_STARTED, *owner),
                Message(MessageType.TIMER_DUE, *owner),
            ]
        elif body["type"] == "task":
            for kind in (MessageType.RUN_TASK, MessageType.TASK_FINISHED):
                messages.append(Message(kind, *owner, body["task"], body.get("item")))
    engine = world.client.engine
    sending = [outbox.out_message(message, engine.ids.new()) for message in messages]
    await world.broker.send(sending)
    sent = len(world.watch.sent)
    await world.until(lambda: False, RECOVERY_S)
    if (after := _snapshot(world)) != before:
        changed = [key for key in {*before, *after} if before.get(key) != after.get(key)]
        shown = [(key[1], before.get(key), after.get(key)) for key in changed]
        world.fail(f"a second recovery changed {shown}")
    if len(world.watch.sent) != sent:
        world.fail(f"{len(world.watch.sent) - sent} messages were sent although all had ended")


def _quiet(world: World) -> bool:
    return not any(world.broker.queues[queue] for queue in QUEUES) and not _outboxes(world)


def _outboxes(world: World) -> list[str]:
    return [
        id for (_, id), doc in world.store.bodies(EXECUTIONS).items() if doc["type"] == "outbox"
    ]


def _snapshot(world: World) -> dict[Any, Any]:
    return world.store.bodies(EXECUTIONS)
