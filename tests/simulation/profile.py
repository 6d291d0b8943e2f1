"""How much goes wrong in one run, and of which kind.

Every seed mixes the families of faults differently (some off, some rare, some frequent): runs in
which everything fails at once hide the faults that need one thing to fail and the rest to work.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.engine.core import Tunables
from tests.simulation.faults import Chance

FAMILIES = (
    "crash",
    "freeze",
    "clock",
    "store",
    "stale",
    "slow",
    "broker",
    "lost",
    "double",
    "payload",
    "operator",
    "redrive",
)
BENIGN = frozenset({"double", "lost", "stale", "operator", "redrive"})
"""Families that must not cost a task an attempt: with these alone, attempts are exactly those of
the fault-free run."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Weights by family, and the shape of the installation."""

    weights: dict[str, float]
    workers: int
    executions: int
    fault_seconds: int
    benign: bool
    tunables: Tunables

    def tuned(self, **tunables: Any) -> Profile:
        """With other times and sizes of the engine."""
        return replace(self, tunables=replace(self.tunables, **tunables))

    def without(self, *families: str) -> Profile:
        """Without these families of faults."""
        return replace(self, weights=self.weights | dict.fromkeys(families, 0.0))

    def chance(self, family: str, kind: str, probability: float, low: int, high: int) -> Chance:
        """A chance, weighted."""
        return Chance(kind, probability * self.weights[family], low, high)

    def writes(self) -> list[Chance]:
        """Before and after a write of the store. Sizes in ms."""
        return [
            self.chance("store", "throttled", 0.02, 1, 3_000),
            self.chance("store", "unavailable", 0.012, 0, 0),
            self.chance("store", "answerLost", 0.02, 0, 0),
            self.chance("crash", "crashBefore", 0.01, 0, 0),
            self.chance("crash", "crashAfter", 0.015, 0, 0),
            self.chance("slow", "slowBefore", 0.01, 50, 45_000),
            self.chance("slow", "slowAfter", 0.01, 50, 45_000),
        ]

    def reads(self) -> list[Chance]:
        """At a read of the store; `stale`: by how many ms the replica lags."""
        return [
            self.chance("store", "throttled", 0.01, 1, 3_000),
            self.chance("store", "unavailable", 0.01, 0, 0),
            self.chance("stale", "stale", 0.15, 5, 5_000),
            self.chance("slow", "slowAfter", 0.01, 50, 45_000),
        ]

    def sends(self) -> list[Chance]:
        """At a call of the transport; `part`: how many messages got through."""
        return [
            self.chance("broker", "unavailable", 0.03, 0, 0),
            self.chance("broker", "answerLost", 0.03, 0, 0),
            self.chance("broker", "part", 0.02, 1, 3),
            self.chance("crash", "crashBefore", 0.01, 0, 0),
            self.chance("crash", "crashAfter", 0.02, 0, 0),
            self.chance("slow", "slowBefore", 0.02, 50, 15_000),
            self.chance("slow", "slowAfter", 0.02, 50, 15_000),
        ]

    def settles(self) -> list[Chance]:
        """At a settlement."""
        return [
            self.chance("broker", "unavailable", 0.02, 0, 0),
            self.chance("broker", "answerLost", 0.02, 0, 0),
        ]

    def payloads(self) -> list[Chance]:
        """At a call of the payload store."""
        return [
            self.chance("payload", "unavailable", 0.04, 0, 0),
            self.chance("payload", "throttled", 0.04, 1, 2_000),
            self.chance("payload", "answerLost", 0.04, 0, 0),
            self.chance("payload", "diskFull", 0.04, 0, 0),
        ]

    def life(self) -> list[Chance]:
        """Once per start of a process; size: after how many of its steps it dies."""
        return [self.chance("crash", "crash", 0.5, 1, 2_500)]

    def pauses(self) -> list[Chance]:
        """Once per start of a process and after every pause; size: steps before it."""
        return [self.chance("freeze", "freeze", 0.4, 1, 2_000)]

    def relays(self) -> list[Chance]:
        """At every page of the change feed."""
        return [self.chance("lost", "skipPage", 0.3, 0, 0)]

    def operators(self) -> list[Chance]:
        """Every second or two; size: which execution."""
        return [
            self.chance("operator", "pause", 0.04, 0, 99),
            self.chance("operator", "resume", 0.06, 0, 99),
            self.chance("operator", "cancel", 0.01, 0, 99),
            self.chance("operator", "cancelAndUndo", 0.02, 0, 99),
            self.chance("operator", "terminate", 0.01, 0, 99),
        ]

    def signals(self) -> list[Chance]:
        """Every second or so; size: which execution, name and id."""
        return [
            self.chance("operator", "signal", 0.3, 0, 999),
            self.chance("double", "again", 0.2, 0, 999),
        ]

    def redrive(self) -> list[Chance]:
        """Every second or so; size: a number to choose by."""
        return [
            self.chance("redrive", "retry", 0.08, 0, 9_999),
            self.chance("redrive", "edit", 0.03, 0, 9_999),
            self.chance("redrive", "skip", 0.03, 0, 9_999),
            self.chance("redrive", "fail", 0.02, 0, 9_999),
            self.chance("redrive", "discard", 0.02, 0, 9_999),
            self.chance("redrive", "bulk", 0.04, 0, 9_999),
            self.chance("redrive", "retryExecution", 0.04, 0, 9_999),
            self.chance("redrive", "replay", 0.03, 0, 9_999),
        ]

    def chaos(self) -> list[Chance]:
        """Twice a second or so; sizes by kind."""
        return [
            self.chance("lost", "purge", 0.01, 0, 1),
            self.chance("lost", "loseSome", 0.04, 0, 1),
            self.chance("double", "unlock", 0.02, 0, 1),
            self.chance("double", "double", 0.04, 0, 1),
            self.chance("double", "shuffle", 0.06, 0, 1),
            self.chance("double", "delay", 0.03, 0, 1),
            self.chance("double", "delayLong", 0.005, 0, 1),
            self.chance("clock", "jump", 0.06, 0, 10_000),
            self.chance("store", "storeDown", 0.004, 500, 50_000),
            self.chance("broker", "brokerDown", 0.01, 500, 60_000),
        ]


def draw(rng: random.Random) -> Profile:
    """The profile of a seed."""
    benign = rng.random() < 0.15
    weights = {
        family: 0.0 if benign and family not in BENIGN else rng.choice((0.0, 0.3, 1.0, 1.0, 2.5))
        for family in FAMILIES
    }
    return Profile(
        weights=weights,
        workers=rng.choice((1, 2, 2, 3, 3, 4)),
        executions=rng.choice((1, 2, 3, 5, 7)),
        fault_seconds=rng.choice((10, 20, 45, 90, 180)),
        benign=benign,
        tunables=Tunables(
            sweep_page=rng.choice((1, 3, 200)),
            cache_executions=rng.choice((1, 2, 2_000)),
            commit_attempts=rng.choice((2, 50, 50)),
            silence_ms=rng.choice((20_000, 60_000)),
        ),
    )


CALM = Profile(
    weights=dict.fromkeys(FAMILIES, 0.0),
    workers=1,
    executions=0,
    fault_seconds=0,
    benign=True,
    tunables=Tunables(),
)
