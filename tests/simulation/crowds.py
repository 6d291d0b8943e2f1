"""Workflows of which only so many executions may run at the same time.

Those that have begun and not ended are never more than the limit, operators' second wishes apart;
and everybody has their turn, or the run would not end. (A place that a lagging replica hid from who
gave it back is found by the next one who asks.)
"""

from __future__ import annotations

import random
from typing import Any

from tests.simulation.features import Feature
from tests.simulation.flows import Flow
from tests.simulation.profile import Profile
from tests.simulation.store import Commit

SHARE = 0.2
ENDED = ("COMPLETED", "FAILED", "CANCELLED")


class Crowds(Feature):
    """See the module."""

    def __init__(self, rng: random.Random, profile: Profile) -> None:
        super().__init__()
        self._rng = rng
        self._limits: dict[str, int] = {}
        self._running: dict[str, set[str]] = {}

    def alter(self, flow: Flow) -> None:
        """Most workflows are limited; who waits must not be judged by when it ends."""
        if self._rng.random() < 0.7:
            self._limits[flow.name] = self._rng.choice((1, 1, 2))
            flow.definition["concurrency"] = {"limit": self._limits[flow.name]}

    def commit(self, commit: Commit) -> None:
        """Count those that have begun, as they were stored."""
        for _, before, after in commit.changes:
            doc = after or before
            if doc is None or doc.get("type") != "execution" or "place" not in doc:
                continue
            name, id = doc["workflow"], doc["executionId"]
            running = self._running.setdefault(name, set())
            if after is None or after["status"] in ENDED:
                running.discard(id)
            elif _began(after) and not (before is not None and _began(before)):
                running.add(id)
                if len(running) > self._limits[name]:
                    self.world.fail(f"{sorted(running)} of {name} run, {self._limits[name]} may")


def _began(doc: dict[str, Any]) -> bool:
    return doc["state"].get("startedAt") is not None
