"""What a workflow gives when nothing fails: the yardstick for runs in which everything does."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from orchestrator.domain.topology import EXECUTIONS
from tests.simulation.faults import FaultPlan
from tests.simulation.flows import Flow
from tests.simulation.loop import SimLoop
from tests.simulation.profile import CALM
from tests.simulation.redrive import finish_held
from tests.simulation.signallers import signaller
from tests.simulation.watch import ENDED
from tests.simulation.world import TENANT, Submission, World


def attempts_of(world: World, execution: str) -> dict[str, int]:
    """Attempts that were paid for, by task document."""
    docs = world.store.bodies(EXECUTIONS, (TENANT, execution))
    return {
        id: doc["attempt"] - doc.get("granted", 0)
        for (_, id), doc in docs.items()
        if doc["type"] == "task"
    }


@dataclass(frozen=True)
class Expected:
    """The fault-free outcome. `whole`: every task's, else only the execution's status."""

    outcome: Any
    without_items: Any
    whole: bool
    attempts: dict[str, int]


class Reference:
    """Runs workflows in a world without faults, each once."""

    def __init__(self) -> None:
        self._known: dict[str, Expected] = {}

    def of(self, flow: Flow) -> Expected:
        """The outcome of one workflow."""
        if flow.name not in self._known:
            self._known[flow.name] = self._apart(flow)
        return self._known[flow.name]

    def _apart(self, flow: Flow) -> Expected:
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
            world.outcome(submission.execution, whole=whole, items=False),
            whole,
            attempts_of(world, submission.execution),
        )

    async def _live(self, world: World) -> None:
        await world.publish([world.submissions[0].flow])
        world.start_workers()
        world.spawn(signaller, world)
        await world.submit(world.submissions[0])
        world.spawn(finish_held, world)
        assert await world.until(lambda: not world.open(), 24 * 3_600), world.problems
