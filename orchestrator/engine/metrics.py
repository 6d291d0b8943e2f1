"""Counters of what the engine did and mended. In memory; the telemetry part exports them.

A counter that stays at zero in a test that broke something means that the repair was not the one
claimed, so tests read these too.
"""

from __future__ import annotations

from collections import Counter


class Metrics:
    """Named counters, labels folded into the name as `name{label}`."""

    __slots__ = ("counters",)

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()

    def count(self, name: str, label: str = "", by: int = 1) -> None:
        """Add `by` to a counter."""
        self.counters[f"{name}{{{label}}}" if label else name] += by

    def gauge(self, name: str, label: str, value: int) -> None:
        """Set what is a level and not a count, such as the state of a breaker."""
        self.counters[f"{name}{{{label}}}" if label else name] = value

    def value(self, name: str, label: str = "") -> int:
        """A counter's value, 0 if it never counted."""
        return self.counters[f"{name}{{{label}}}" if label else name]
