"""Invariants that are looked at when faults are over: outcome, history, and silence."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import outbox, verify
from tests.simulation.judge_children import family, judge_children, unsettled
from tests.simulation.judge_letters import altered, judge_letters
from tests.simulation.profile import Profile
from tests.simulation.reference import Reference, attempts_of
from tests.simulation.signallers import judge_signals, unclosed, unmarked
from tests.simulation.undoing import all_tasks
from tests.simulation.world import QUEUES, TENANT, World

QUIET_WITHIN_S = 2_400
RECOVERY_S = 400


async def judge(world: World, profile: Profile) -> None:
    """Nothing accepted is lost, the history is the state, the outcome is the fault-free one."""
    reference = Reference()
    client = world.client.engine
    for id in world.accepted():
        if world.document(id) is None:
            world.fail(f"{id} was accepted and is lost")
    judge_letters(world)
    judge_children(world)
    for feature in world.features:
        feature.judge()
    for id in sorted(world.watch.statuses):
        flow, doc = world.flow(id), world.document(id)
        assert doc is not None
        report = await verify.verify(client, TENANT, id)
        for problem in report.problems:
            world.fail(f"{id}: {problem}")
        _agree(world, id)
        judge_signals(world, id)
        world.watch.undoing.judge(id, doc["status"], doc["state"])
        own = not _born(world, id)
        related = family(world, id)
        if own and flow.comparable and not any(_meddled(world, one, id) for one in related):
            expected = reference.of(flow)
            _attempts_are_real(world, id)
            copies = "replayFrom" in doc  # of a map, only its own result
            found = world.outcome(id, whole=expected.whole, items=not copies)
            wanted = expected.without_items if copies else expected.outcome
            if found != wanted:
                world.fail(f"{id}: outcome {found}, without faults {wanted}")
            elif (
                profile.benign
                and expected.whole
                and not any(_touched(world, one) for one in related)
                and not any(feature.disturbs(flow) for feature in world.features)
            ):
                attempts = attempts_of(world, id)
                if attempts != expected.attempts:
                    world.fail(f"{id}: attempts {attempts}, without faults {expected.attempts}")


def _born(world: World, execution: str) -> bool:
    """Whether it is a child, or replays one: the input of a child is its parent's to say."""
    doc = world.document(execution)
    while doc is not None and "replayOf" in doc:
        doc = world.document(doc["replayOf"])
    return doc is not None and "parent" in doc


def _meddled(world: World, execution: str, root: str) -> bool:
    """Whether an operator may have changed how `root` ends by what they did to `execution`, it or
    one of its family: a child that is taken up again may end twice, and the parent hears of one."""
    again = execution != root and execution in world.watch.letters.reopened
    return again or execution in world.cancelled or altered(world, execution)


def _touched(world: World, execution: str) -> bool:
    """Whether tasks may have had more attempts, or fewer, than without operators."""
    doc = world.document(execution)
    return execution in world.watch.letters.reopened or (doc is not None and "replayFrom" in doc)


def _agree(world: World, execution: str) -> None:
    """The task documents say what the state says."""
    wanted = {"C": "COMPLETED", "D": "DEAD_LETTERED", "d": "DEAD_LETTERED"}
    state = world.state(execution)
    assert state is not None
    docs = world.store.bodies(EXECUTIONS, (TENANT, execution))
    tasks = all_tasks(world.flow(execution).definition)
    for code, (id, task) in zip(state["tasks"], tasks.items(), strict=True):
        doc = docs.get(((TENANT, execution), f"task:{id}"))
        waited = task["type"] == "wait" and code == "C"  # a wait leaves no document
        if code in wanted and not waited and (doc is None or doc["status"] != wanted[code]):
            world.fail(f"{execution}: {id} is {code}, its document {doc}")
        if code in "SsH" and doc is not None:
            world.fail(f"{execution}: {id} was not run ({code}) and has a document")


def _attempts_are_real(world: World, execution: str) -> None:
    """An attempt that is recorded with an activity's own failure has run."""
    docs = world.store.bodies(EXECUTIONS, (TENANT, execution))
    dead = {id for (_, id), doc in docs.items() if id.startswith("dead:")
            and doc["status"] not in ("RETRIED", "SKIPPED")}  # fmt: skip
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
        rest = [*_outboxes(world), *unsettled(world), *_unswept(world)]
        world.fail(f"not quiet {QUIET_WITHIN_S} s after the end: {left} {rest}")
        return
    await world.until(lambda: False, 120)
    before = _snapshot(world)
    messages: list[Message] = []
    for body in world.store.bodies(EXECUTIONS).values():
        owner: tuple[str, str] = (body["tenantId"], body["executionId"])
        if world.document(owner[1]) is None:
            continue  # copies of a replay that was never stored
        if body["type"] == "execution":
            messages += [
                Message(MessageType.CHECK, *owner),
                Message(MessageType.EXECUTION_STARTED, *owner),
                Message(MessageType.TIMER_DUE, *owner),
            ]
        elif body["type"] == "task":
            for kind in (MessageType.RUN_TASK, MessageType.TASK_FINISHED):
                messages.append(Message(kind, *owner, body["task"], body.get("item")))
        elif body["type"] == "signal":
            messages.append(Message(MessageType.SIGNAL_RECEIVED, *owner, body["key"]))
    engine = world.client.engine
    sending = [outbox.out_message(message, engine.ids.new()) for message in messages]
    await world.broker.send(sending)
    sent = len(world.watch.sent)
    await world.until(lambda: False, RECOVERY_S)
    if (after := _snapshot(world)) != before:
        changed = [key for key in {*before, *after} if before.get(key) != after.get(key)]
        changed = [key for key in changed if not _rested(before.get(key), after.get(key))]
        shown = [(key[1], before.get(key), after.get(key)) for key in changed]
        if changed:
            world.fail(f"a second recovery changed {shown}")
    if len(world.watch.sent) != sent:
        world.fail(f"{len(world.watch.sent) - sent} messages were sent although all had ended")


def _rested(before: Any, after: Any) -> bool:
    """Whether a task of an execution that ended while it was paused is closed only now: nobody
    looked after it, so nobody had to (`engine/resting.py`)."""
    if not isinstance(before, dict) or not isinstance(after, dict) or before["type"] != "task":
        return False
    return (
        before["status"] in ("RUNNING", "RETRYING")
        and "sweepAt" not in before
        and after["status"] == "CANCELLED"
    )


def _quiet(world: World) -> bool:
    queued = any(world.broker.queues[queue] for queue in QUEUES)
    open_ = _outboxes(world) or unmarked(world) or unclosed(world) or unsettled(world)
    return not queued and not open_ and not _unswept(world)


def _unswept(world: World) -> list[str]:
    """Tasks that the sweeper has yet to look at. Their executions have ended, but what seems to
    wait for a slot of its tenant is left alone for minutes after somebody was refused one."""
    return [
        f"{partition[1]}/{id}: {doc['status']}, to be swept"
        for (partition, id), doc in world.store.bodies(EXECUTIONS).items()
        if doc["type"] == "task" and "sweepAt" in doc
    ]


def _outboxes(world: World) -> list[str]:
    return [
        id for (_, id), doc in world.store.bodies(EXECUTIONS).items() if doc["type"] == "outbox"
    ]


def _snapshot(world: World) -> dict[Any, Any]:
    features = {("feature", type(one).__name__): one.snapshot() for one in world.features}
    return {**world.store.bodies(EXECUTIONS), **features}
