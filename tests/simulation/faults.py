"""Which fault happens where: drawn from the seed, recorded, and replayable one by one.

A place is named by who does what for the how-manieth time (`w1.store.batch#17`), and whether a
fault happens there depends on the seed and that name alone. So a run can be repeated with an
explicit list of faults, and leaving one out moves as little else as possible: that is what lets a
failing seed be shrunk to the faults that matter.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. `size`: how much (ms, messages, …), by kind."""

    place: str
    kind: str
    size: int = 0

    def __str__(self) -> str:
        return f"{self.place}={self.kind}:{self.size}"

    @staticmethod
    def parse(text: str) -> Fault:
        """The reverse of `str`."""
        place, _, rest = text.rpartition("=")
        kind, _, size = rest.partition(":")
        return Fault(place, kind, int(size))


@dataclass(frozen=True, slots=True)
class Chance:
    """A kind of fault with its probability at each place, and the range of its size."""

    kind: str
    probability: float
    low: int = 0
    high: int = 0


class FaultPlan:
    """Draws faults from a seed, or repeats given ones. `fired` lists what happened."""

    def __init__(self, seed: int, *, only: Sequence[Fault] | None = None) -> None:
        self._seed = seed
        self._only: Mapping[str, Fault] | None = (
            None if only is None else {fault.place: fault for fault in only}
        )
        self._counts: Counter[str] = Counter()
        self.enabled = True
        self.intensity = 1.0
        self.fired: list[Fault] = []

    def at(self, site: str, chances: Sequence[Chance]) -> Fault | None:
        """The fault at the next visit of `site`, if any."""
        self._counts[site] += 1
        if not self.enabled:
            return None
        place = f"{site}#{self._counts[site]}"
        if self._only is not None:
            fault = self._only.get(place)
        else:
            fault = self._drawn(place, chances)
        if fault is not None:
            self.fired.append(fault)
        return fault

    def _drawn(self, place: str, chances: Sequence[Chance]) -> Fault | None:
        roll, size = self.rolls(place)
        for chance in chances:
            roll -= chance.probability * self.intensity
            if roll < 0:
                span = chance.high - chance.low
                return Fault(place, chance.kind, chance.low + int(size * (span + 1)))
        return None

    def rolls(self, place: str) -> tuple[float, float]:
        """Two numbers in [0, 1) that depend on seed and place alone."""
        digest = hashlib.blake2b(f"{self._seed}|{place}".encode(), digest_size=16).digest()
        low, high = digest[:8], digest[8:]
        return int.from_bytes(low, "big") / 2**64, int.from_bytes(high, "big") / 2**64


def shown(faults: Sequence[Fault]) -> str:
    """A schedule as text, one fault a line."""
    return "\n".join(f"    {fault}" for fault in faults)
