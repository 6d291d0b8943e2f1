"""What the engine did, mended and waited for. In memory; `/metrics` and the exporters read it.

A counter that stays at zero in a test that broke something means that the repair was not the one
claimed, so tests read these too.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from typing import Final

from orchestrator.ports_telemetry import Listener

BOUNDS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
)
"""Upper ends of the buckets of every histogram, in seconds: up to the longest attempt."""


class Histogram:
    """How many values fell into which bucket, the last one being those above all bounds."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value, in seconds."""
        self.buckets[bisect_left(BOUNDS, value)] += 1
        self.total += value


class Metrics:
    """Named counters, levels and histograms, labels folded into the name as `name{label}`."""

    __slots__ = ("counters", "gauges", "heard", "histograms", "set_at")

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}
        self.set_at: dict[str, float] = {}  # monotonic seconds, of gauges
        self.histograms: dict[str, Histogram] = {}
        self.heard: Listener | None = None

    def count(self, name: str, label: str = "", by: int = 1) -> None:
        """Add `by` to a counter."""
        self.counters[_key(name, label)] += by

    def gauge(self, name: str, label: str, value: float) -> None:
        """Set what is a level and not a count, such as the state of a breaker."""
        key = _key(name, label)
        self.gauges[key] = value
        self.set_at[key] = time.monotonic()

    def observe(self, name: str, label: str, seconds: float) -> None:
        """Add a duration to a histogram."""
        key = _key(name, label)
        found = self.histograms.get(key)
        if found is None:
            found = self.histograms[key] = Histogram()
        found.add(seconds)
        if self.heard is not None:
            self.heard(name, label, seconds)

    def value(self, name: str, label: str = "") -> float:
        """A counter's or a level's value, 0 if there was none; of a histogram, how many values."""
        key = _key(name, label)
        if key in self.histograms:
            return sum(self.histograms[key].buckets)
        return self.gauges[key] if key in self.gauges else self.counters[key]


def _key(name: str, label: str) -> str:
    return f"{name}{{{label}}}" if label else name
