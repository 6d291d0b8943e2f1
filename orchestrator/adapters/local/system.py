"""The real clock and real ids. Everything else takes them as arguments, so that time can be faked.

Ids sort by creation time: they are database keys, and random ones would touch a random page of
every index with each insert.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # base32 without i, l, o, u; sorts as ASCII
_PAIRS: Final = [high + low for high in _ALPHABET for low in _ALPHABET]
_RANDOM_BITS: Final = 80


class SystemClock:
    """The machine's time."""

    def now(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    async def sleep(self, ms: int) -> None:
        """Wait `ms` milliseconds; not at all if negative."""
        await asyncio.sleep(max(0, ms) / 1000)


class SystemIds:
    """48 bits of milliseconds and 80 random bits, as 26 characters of base32.

    Within a process ids only grow, also within one millisecond and when the clock is set back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._last = 0

    def new(self) -> str:
        """A new id of `[0-9a-hjkmnp-tv-z]`, unique among all processes."""
        stamp = time.time_ns() // 1_000_000 << _RANDOM_BITS
        with self._lock:
            if os.getpid() != self._pid:  # a fork must not continue its parent's series
                self._pid = os.getpid()
                self._last = 0
            if stamp > self._last:
                value = stamp | int.from_bytes(os.urandom(_RANDOM_BITS // 8), "big")
            else:  # the same millisecond, or the clock was set back
                value = self._last + 1
            self._last = value
        # 13 groups of 10 bits.
        return "".join([_PAIRS[value >> shift & 1023] for shift in range(120, -1, -10)])
