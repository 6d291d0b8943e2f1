"""One seed, one run: build the world from the seed, let it live through faults, judge it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import outbox, verify
from tests.simulation import flows
from tests.simulation.faults import Fault, FaultPlan
from tests.simulation.flows import Flow
from tests.simulation.loop import Stuck, SimLoop
from tests.simulation.operators import operator
from tests.simulation.profile import CALM, Profile, draw
from tests.simulation.watch import ENDED
from tests.simulation.world import QUEUES, TENANT, Submission, World

END_WITHIN_S = 3_600
"""After faults have stopped: twice the longest silence of the sweeper (15 min), and the time that
the longest workflow takes."""
QUIET_WITHIN_S = 2_400
RECOVERY_S = 400

Setup = Callable[[World], None]


@dataclass
class Result:
    """What became of a seed."""

    seed: int
    problems: list[str]
    faults: list[Fault]
    trace: list[str]
    digest: str
    steps: int
    virtual_s: float
    metrics: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every invariant held."""
        return not self.problems


@dataclass(frozen=True)
class Scenario:
    """What a seed stands for, faults apart."""

    profile: Profile
    flows: list[Flow]
    submissions: list[tuple[int, float, bool, bool]]  # (flow, when, with a key, sent twice)

    @staticmethod
    def of(seed: int) -> Scenario:
        """Drawn from the seed."""
        rng = random.Random(f"scenario {seed}")
        profile = draw(rng)
        found = [flows.draw(rng, f"flow-{n}") for n in range(rng.randint(1, profile.executions))]
        submissions = [
            (
                rng.randrange(len(found)),
                rng.random() * profile.fault_seconds * 0.6,
                rng.random() < 0.7,
                rng.random() < 0.3,
            )
            for _ in range(profile.executions)
        ]
        return Scenario(profile, found, submissions)


def run(seed: int, *, only: Sequence[Fault] | None = None, setup: Setup | None = None) -> Result:
    """Simulate. `only`: exactly these faults instead of the seed's. `setup` may add actors and
    invariants before anything starts."""
    scenario = Scenario.of(seed)
    plan = FaultPlan(seed, only=only)
    return _run(seed, scenario, plan, setup)


def _run(seed: int, scenario: Scenario, plan: FaultPlan, setup: Setup | None) -> Result:
    rng = random.Random(f"schedule {seed}")
    loop = SimLoop(rng)
    quiet = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    world = World(loop, rng, plan, scenario.profile)
    if setup is not None:
        setup(world)
    try:
        main = loop.create_task(_live(world, scenario))
        try:
            loop.run_until_complete(main)
        except Stuck as error:
            world.fail(f"stuck: {error}")
        result = _result(seed, world)
        plan.enabled = False
    finally:
        loop.finish(world.processes)
        logging.disable(quiet)
    return result


def _result(seed: int, world: World) -> Result:
    loop, trace = world.loop, list(world.trace)
    text = "\n".join([*trace, str(loop.steps), str(world.store.lsn)])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    problems, faults = list(world.problems), list(world.plan.fired)
    return Result(
        seed, problems, faults, trace, digest, loop.steps, loop.time(), dict(world.metrics)
    )


async def _live(world: World, scenario: Scenario) -> None:
    world.submissions = [
        Submission(scenario.flows[flow], at, f"key-{n}" if keyed else None, client)
        for n, (flow, at, keyed, twice) in enumerate(scenario.submissions)
        for client in ((0, 1) if keyed and twice else (0,))
    ]
    enabled, world.plan.enabled = world.plan.enabled, False
    await world.publish(scenario.flows)
    world.plan.enabled = enabled
    world.start_workers()
    world.spawn(world.chaos)
    operating = world.spawn(operator, world)
    clients = [world.spawn(world.submit, one) for one in world.submissions]
    await world.until(lambda: False, scenario.profile.fault_seconds)
    world.heal()
    acting = [operating, *clients]
    await world.until(lambda: all(actor.done() for actor in acting), END_WITHIN_S)
    if not await world.until(lambda: not world.open(), END_WITHIN_S) and not world.problems:
        for id in world.open():
            world.fail(
                f"{id} has not ended {END_WITHIN_S} s after the last fault: {_why(world, id)}"
            )
    if world.problems:
        return
    await _judge(world, scenario)
    if not world.problems:
        await _recover_again(world)


def _why(world: World, execution: str) -> str:
    state = world.state(execution)
    docs = world.store.bodies(EXECUTIONS, (TENANT, execution))
    tasks = {id: (doc["status"], doc.get("sweepAt")) for (_, id), doc in docs.items()
             if doc["type"] == "task"}  # fmt: skip
    return f"{state and state['tasks']} {state and state.get('maps')} {tasks}"


async def _judge(world: World, scenario: Scenario) -> None:
    """Nothing accepted is lost, the history is the state, the outcome is the fault-free one."""
    reference = Reference()
    judged: set[str] = set()
    client = world.client.engine
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
        if submission.flow.comparable and id not in world.cancelled:
            expected = reference.of(submission.flow)
            _attempts_are_real(world, id)
            found = world.outcome(id, whole=expected.whole)
            if found != expected.outcome:
                world.fail(f"{id}: outcome {found}, without faults {expected.outcome}")
            elif scenario.profile.benign and expected.whole:
                attempts = _attempts(world, id)
                if attempts != expected.attempts:
                    world.fail(f"{id}: attempts {attempts}, without faults {expected.attempts}")


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
    for (_, id), doc in docs.items():
        for attempt in doc.get("attempts", ()):
            type = attempt.get("error", {}).get("type")
            failed = type in ("Flaky", "Fatal", "OUTPUT_NOT_JSON")
            if type in ("Throttled", "Unavailable") and not world.outage:
                world.fail(f"{execution}/{id}: attempt {attempt['attempt']} paid for a {type}")
            if failed and (execution, id, attempt["attempt"]) not in world.watch.started:
                world.fail(f"{execution}/{id}: attempt {attempt['attempt']} is recorded, never ran")


def _attempts(world: World, execution: str) -> dict[str, int]:
    docs = world.store.bodies(EXECUTIONS, (TENANT, execution))
    return {id: doc["attempt"] for (_, id), doc in docs.items() if doc["type"] == "task"}


async def _recover_again(world: World) -> None:
    """Everything falls silent; another round of recovery finds nothing and changes nothing."""
    if not await world.until(lambda: _quiet(world), QUIET_WITHIN_S):
        left = {queue: len(world.broker.queues[queue]) for queue in QUEUES}
        world.fail(f"not quiet {QUIET_WITHIN_S} s after the end: {left} {_outboxes(world)}")
        return
    await world.until(lambda: False, 120)
    before = _snapshot(world)
    messages: list[Message] = []
    for (partition, _), body in world.store.bodies(EXECUTIONS).items():
        if body["type"] == "execution":
            messages += [
                Message(MessageType.CHECK, *partition),
                Message(MessageType.EXECUTION_STARTED, *partition),
                Message(MessageType.TIMER_DUE, *partition),
            ]
        elif body["type"] == "task":
            for kind in (MessageType.RUN_TASK, MessageType.TASK_FINISHED):
                messages.append(Message(kind, *partition, body["task"], body.get("item")))
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


@dataclass(frozen=True)
class Expected:
    """The fault-free outcome. `whole`: every task's, else only the execution's status."""

    outcome: Any
    whole: bool
    attempts: dict[str, int]


class Reference:
    """Runs workflows in a world without faults."""

    def of(self, flow: Flow) -> Expected:
        """The outcome of one workflow."""
        outer = asyncio.get_running_loop()
        asyncio._set_running_loop(None)  # a loop within a loop: this one is not running in between
        try:
            return self._of(flow)
        finally:
            asyncio._set_running_loop(outer)

    def _of(self, flow: Flow) -> Expected:
        rng = random.Random("reference")
        loop = SimLoop(rng)
        plan = FaultPlan(0)
        plan.enabled = False
        world = World(loop, rng, plan, CALM)
        world.submissions = [Submission(flow, 0.0, "reference")]
        try:
            loop.run_until_complete(self._live(world))
        finally:
            loop.finish(world.processes)
        (submission,) = world.submissions
        doc = world.document(submission.execution)
        assert doc is not None
        assert doc["status"] in ENDED
        assert not world.problems, world.problems
        fails_fast = flow.definition["onFailure"] == "failFast"
        whole = not (doc["status"] == "FAILED" and fails_fast)
        return Expected(
            world.outcome(submission.execution, whole=whole),
            whole,
            _attempts(world, submission.execution),
        )

    async def _live(self, world: World) -> None:
        await world.publish([world.submissions[0].flow])
        world.start_workers()
        await world.submit(world.submissions[0])
        assert await world.until(lambda: not world.open(), 24 * 3_600), world.problems
