"""One seed, one run: build the world from the seed, let it live through faults, judge it."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from orchestrator.domain.topology import EXECUTIONS
from tests.simulation import breaking, crowds, eventing, flows, hubs, scheduling, sharing
from tests.simulation.breaking import Outage
from tests.simulation.crowds import Crowds
from tests.simulation.eventing import Events
from tests.simulation.faults import Fault, FaultPlan
from tests.simulation.features import Feature
from tests.simulation.flows import Flow
from tests.simulation.hubs import Hubs
from tests.simulation.judge import judge, recover_again
from tests.simulation.loop import SimLoop, Stuck
from tests.simulation.operators import operator
from tests.simulation.profile import Profile, draw
from tests.simulation.redrive import Redrive, finish_held
from tests.simulation.scheduling import Schedules
from tests.simulation.sharing import Sharing
from tests.simulation.signallers import signaller
from tests.simulation.world import TENANT, Submission, World

END_WITHIN_S = 3_600
"""After faults have stopped: twice the longest silence of the sweeper (15 min), and the time that
the longest workflow takes."""

KINDS: tuple[tuple[Callable[[random.Random, Profile], Feature], str, float], ...] = (
    (Schedules, "schedules", scheduling.SHARE),
    (Outage, "outage", breaking.SHARE),
    (Events, "events", eventing.SHARE),
    (Sharing, "sharing", sharing.SHARE),
    (Crowds, "crowds", crowds.SHARE),
    (Hubs, "hubs", hubs.SHARE),
)
"""Parts of the platform, each with the share of seeds that exercise it."""
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
    features: list[Feature]

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
        features = draw_features(seed, profile)
        for feature in features:
            profile = feature.tune(profile)
            for flow in (member for one in found for member in one.family()):
                feature.alter(flow)
        return Scenario(profile, found, submissions, features)


def features_of(seed: int) -> list[str]:
    """Names of the parts that a seed exercises."""
    drawn = [(name, random.Random(f"{name} {seed}").random() < share) for _, name, share in KINDS]
    return [name for name, chosen in drawn if chosen]


def draw_features(seed: int, profile: Profile) -> list[Feature]:
    """Which parts a seed exercises; each has a random source of its own."""
    drawn: list[Feature] = []
    for kind, name, share in KINDS:
        rng = random.Random(f"{name} {seed}")
        if rng.random() < share:
            drawn.append(kind(rng, profile))
    return drawn


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
    world.adopt(scenario.features)
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
    await world.publish([*scenario.flows, *world.more_flows])
    for feature in world.features:
        await feature.prepare()
    world.plan.enabled = enabled
    world.start_workers()
    world.spawn(world.chaos)
    world.spawn(signaller, world)
    redrive = Redrive(world)
    redrive.start()
    operating = [world.spawn(operator, world), world.spawn(redrive.live)]
    clients = [world.spawn(world.submit, one) for one in world.submissions]
    clients += [world.spawn(feature.live) for feature in world.features]
    await world.until(lambda: False, scenario.profile.fault_seconds)
    world.heal()
    acting = [*operating, *clients]
    world.spawn(finish_held, world)
    await world.until(lambda: all(actor.done() for actor in acting), END_WITHIN_S)
    if not await _all_end(world) and not world.problems:
        if not world.open():
            world.fail(f"there is more to begin {END_WITHIN_S} s after the last fault")
        for id in world.open():
            world.fail(
                f"{id} has not ended {END_WITHIN_S} s after the last fault: {_why(world, id)}"
            )
    if world.problems:
        return
    await judge(world, scenario.profile)
    if not world.problems:
        await recover_again(world)


async def _all_end(world: World) -> bool:
    """Whether everything ends within the bound, and what features excuse beyond it."""
    since = world.loop.time()
    while not world.problems:
        excused = sum(feature.excused_s() for feature in world.features)
        left = since + END_WITHIN_S + excused - world.loop.time()
        if left <= 0:
            break
        if await world.until(world.ended, left):
            return True
    return False


def _why(world: World, execution: str) -> str:
    state = world.state(execution)
    docs = world.store.bodies(EXECUTIONS, (TENANT, execution))
    tasks = {id: (doc["status"], doc.get("sweepAt")) for (_, id), doc in docs.items()
             if doc["type"] == "task"}  # fmt: skip
    return f"{state and state['tasks']} {state and state.get('maps')} {tasks}"
