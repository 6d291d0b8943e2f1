"""A dependency that is down for a while, and the circuit breaker that spares it.

While it is open no attempt is begun, one task at a time tries, and what processes say they have
seen is what they saw. When the dependency is back, everything ends.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from orchestrator.domain.breakers import BreakerRules
from orchestrator.domain.failure import Failure
from orchestrator.domain.topology import CONTROL
from orchestrator.ports import ActivityCall, ActivityFailed
from tests.simulation.features import Feature
from tests.simulation.flows import Flow
from tests.simulation.ports import SHOP, SHOP_ACTIVITY
from tests.simulation.profile import Profile
from tests.simulation.store import Commit

if TYPE_CHECKING:
    from tests.simulation.process import Worker

SHARE = 0.25
SKEW_MS = 10_000
"""Two clocks apart, each by five seconds."""
READ_MS = 2_000
"""What a process knows of a breaker is at most a second old; and a claim takes a moment."""
LAG_MS = 5_000
UNPUNCTUAL = ("slow", "freeze", "store")
"""With these, a task may pass the gate long before it is claimed, or the gate may not know."""


class Outage(Feature):
    """See the module."""

    def __init__(self, rng: random.Random, profile: Profile) -> None:
        super().__init__()
        self._rng = rng
        self._punctual = rng.random() < 0.6
        self._rules = BreakerRules(
            failures=rng.choice((3, 5)),
            open_ms=rng.choice((5_000, 30_000)),
            max_open_ms=60_000,
            probe_ms=rng.choice((10_000, 60_000)),
        )
        self.begins_at = rng.random() * profile.fault_seconds * 0.5
        self.ends_at = self.begins_at + rng.choice((10, 40, 120, 400))
        self.begun: Counter[str] = Counter()  # attempts at the dependency, by process
        self.troubled = 0  # of them all, those that may count as its failure
        self.stored: dict[str, Any] | None = None
        self.changed_at = 0
        self.stats: Counter[str] = Counter()

    def tune(self, profile: Profile) -> Profile:
        """See `Feature`."""
        if self._punctual:
            profile = profile.without(*UNPUNCTUAL)
        self._punctual = not any(profile.weights[family] for family in UNPUNCTUAL)
        self._skew = SKEW_MS if profile.weights["clock"] else 0
        return profile.tuned(breaker=self._rules)

    def alter(self, flow: Flow) -> None:
        """Most of the activities call the dependency."""
        for task in flow.definition["tasks"].values():
            for work in (task, task.get("do"), task.get("compensate")):
                if work and work.get("activity") == "sim.work" and self._rng.random() < 0.7:
                    work["activity"] = SHOP_ACTIVITY

    def disturbs(self, flow: Flow) -> bool:
        """See `Feature`."""
        return True

    def attempt(self, worker: Worker, call: ActivityCall) -> None:
        """See `Feature`."""
        if call.activity != SHOP_ACTIVITY:
            return
        self.begun[worker.engine.worker] += 1
        given: Any = call.input
        down = self.begins_at <= self.world.loop.time() < self.ends_at
        self.troubled += down or given["do"]["kind"] == "hang"
        if down:
            self.stats["down"] += 1
            raise ActivityFailed(Failure(type="ConnectionError", message="down"))

    def commit(self, commit: Commit) -> None:
        """See `Feature`."""
        for _, old, new in commit.changes:
            if commit.container == CONTROL and new is not None and new["type"] == "breaker":
                self._changed(old, new)

    def _changed(self, old: Any, new: Any) -> None:
        now, was = self.world.now(), "closed" if old is None else old["status"]
        if was != new["status"]:
            self.stats[new["status"]] += 1
        for process, counts in new["seen"].items():
            told = sum(failures + successes for _, failures, successes in counts)
            if told > self.begun[process]:
                self.world.fail(f"{process} tells of {told} outcomes of {self.begun[process]}")
        opens = was == "closed" and new["status"] == "open"
        if opens and self.troubled < self._rules.failures:
            self.world.fail(f"the breaker opened after {self.troubled} failures")
        taken = new["status"] == "halfOpen" and new.get("probe")
        if taken and was == "open" and old["until"] > now + self._skew:
            self.world.fail(f"a probe {old['until'] - now} ms before the breaker's time is over")
        before = None if old is None else old.get("probe")
        another = taken and was == "halfOpen" and before not in (None, new["probe"])
        if another and before["until"] > now + self._skew:
            self.world.fail(f"two probes at once: {before}, {new['probe']}")
        if was != new["status"] or before != new.get("probe"):
            self.changed_at = now
        self.stored = new

    def claimed(self, where: str, doc: dict[str, Any]) -> None:
        """No attempt is begun while it is open, but one that tries."""
        stored, now = self.stored, self.world.now()
        if doc.get("dependency") != SHOP or stored is None or not self._punctual:
            return
        if now - self.changed_at <= READ_MS + LAG_MS or stored["status"] == "closed":
            return
        self.stats["looked"] += 1
        probe = stored.get("probe")
        until = stored["until"] if stored["status"] == "open" else probe and probe["until"]
        if until and until > now + self._skew:
            self.world.fail(f"{where}: attempt {doc['attempt']} while the breaker is {stored}")
