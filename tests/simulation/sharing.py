"""Tenant slots, priorities and the overflow lane: seeds in which few tasks may run at once.

What is judged: the slots that are held are never more than the limit, unless a process outlived its
lease; no process runs more tasks than it holds slots for; and in the end all slots are free.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from orchestrator.domain.tenant_limits import TenantLimits
from orchestrator.domain.topology import CONTROL
from orchestrator.engine import gate
from orchestrator.engine.lanes import Lanes
from orchestrator.ports import ActivityCall
from tests.simulation.features import Feature
from tests.simulation.flows import Flow
from tests.simulation.loop import sleep
from tests.simulation.profile import Profile
from tests.simulation.store import Commit

if TYPE_CHECKING:
    from tests.simulation.process import Worker

SHARE: Final = 0.25
MAX_SKEW_MS: Final = 5_000
IDLE_S: Final = gate.MAX_WAIT_MS * 1.5 / 1_000
"""A task that waits for a slot asks again after that at the latest (`docs/limits.md`)."""
CLASSES: Final = ("high", "standard", "low")


class Sharing(Feature):
    """See the module."""

    def __init__(self, rng: random.Random, profile: Profile) -> None:
        super().__init__()
        self.rng = rng
        self.limit = rng.choice((1, 2, 3))
        self.places = rng.choice((2, 64))
        self.actors = (self._others,)
        self.held: dict[str, tuple[int, int]] = {}  # token -> count, until; as stored
        self.ever: set[str] = set()  # incarnations of workers that ever held one
        self.running: Counter[str] = Counter()  # by incarnation
        self.turns: set[tuple[str, str, int]] = set()  # attempts since faults ended
        self.begun: dict[tuple[str, int], float] = {}
        self.busy_s = 0.0  # what those of activities have taken

    def tune(self, profile: Profile) -> Profile:
        """Few slots for the tenant, and in some seeds few places, so that messages are moved."""
        limits = TenantLimits(concurrent_tasks=self.limit)
        places = self.places
        return profile.tuned(limits=limits, task_places=places, decision_places=places)

    def alter(self, flow: Flow) -> None:
        """Any class."""
        flow.definition["priority"] = self.rng.choice(CLASSES)

    async def _others(self, worker: Worker) -> None:
        """Another tenant has work, too, as long as there are faults."""
        while self.world.plan.enabled:
            worker.engine.part(Lanes).note(["somebody-else"])
            await sleep(30)

    def commit(self, commit: Commit) -> None:
        """Every change of the slots."""
        if commit.container != CONTROL:
            return
        for _, _, new in commit.changes:
            if new is not None and new["type"] == "slots":
                self._changed({token: (n, until) for token, (n, until) in new["holders"].items()})

    def _changed(self, after: dict[str, tuple[int, int]]) -> None:
        before, self.held = self.held, after
        known, self.ever = self.ever, self.ever | {token.rpartition(":")[0] for token in after}
        if any(count <= 0 for count, _ in after.values()):
            self.world.fail(f"slots held by nobody: {after}")
        if sum(count for count, _ in after.values()) <= self.limit:
            return
        now = self.world.now()
        for token in after:
            count, until = before.get(token, (0, 0))
            if after[token][0] <= count:
                continue  # it renews what it has
            # A process that was frozen or cut off for longer than its lease still runs its tasks.
            if until > now + MAX_SKEW_MS or token.rpartition(":")[0] not in known:
                self.world.fail(f"more than {self.limit} slots are held: {before}, then {after}")

    def attempt(self, worker: Worker, call: ActivityCall) -> None:
        """No process runs more than it holds."""
        name = worker.engine.worker
        self.begun[call.idempotency_key, call.attempt] = self.world.loop.time()
        self.running[name] += 1
        mine = [one for token, one in self.held.items() if token.startswith(f"{name}:")]
        if mine and mine[0][1] > self.world.now() + MAX_SKEW_MS:
            if self.running[name] > mine[0][0]:
                self.world.fail(f"{name} runs {self.running[name]} tasks and holds {mine[0][0]}")
        elif name not in self.ever:
            self.world.fail(f"{name} runs a task and never had a slot")

    def attempted(self, worker: Worker, call: ActivityCall) -> None:
        """An attempt has ended."""
        begun = self.begun.pop((call.idempotency_key, call.attempt), None)
        if begun is not None and self.world.healed_at:
            self.busy_s += self.world.loop.time() - begun
        self.running[worker.engine.worker] -= 1

    def claimed(self, where: str, doc: dict[str, Any]) -> None:
        """Somebody's turn."""
        if self.world.healed_at:
            self.turns.add((doc["executionId"], doc["id"], doc["attempt"]))

    def excused_s(self) -> float:
        """Tasks come one after the other, and a slot that changes hands may be idle until the next
        one asks for it again. Each attempt counts once: they are limited, so what goes round in
        circles is excused for no longer."""
        return (self.busy_s + len(self.turns) * IDLE_S) / self.limit

    def done(self) -> bool:
        """All slots are free in the end."""
        return not any(until > self.world.now() for _, until in self.held.values())

    def snapshot(self) -> Any:
        """Nobody takes one any more."""
        return sorted(self.held)
