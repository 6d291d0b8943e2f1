"""Where the time goes: cProfile over one shape of work, summed up by the rooms of the code.

Processor time, not wall time. A profiler that is called at every call makes Python look slower than
it is beside C, so the shares are a map and no measurement.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from bench import harness

SHAPES: Final[dict[str, tuple[dict[str, Any], int, int]]] = {
    "chain": (harness.chain(10), 50, 10),
    "fan": (harness.fan(2_000), 1, 2_002),
    "map": (harness.mapping(2_000), 1, 2_001),
}
"""Definition, executions, tasks of each."""
LINES: Final = 40

_ROOMS: Final = (
    ("orchestrator/domain", "domain"),
    ("orchestrator/engine", "engine"),
    ("orchestrator/adapters", "adapters"),
    ("orchestrator/local", "host"),
    ("orchestrator/functions", "functions"),
    ("azure/functions", "functions"),
    ("activities/", "activities"),
    ("bench/", "benchmark"),
    ("asyncio", "asyncio"),
    ("sqlite3", "SQLite"),
    ("orjson", "JSON"),
)


async def profile(folder: Path, shape: str) -> str:
    """The report, as text."""
    definition, executions, tasks = SHAPES[shape]
    profiler = cProfile.Profile(time.process_time)  # what others do on the machine does not count
    async with harness.running(folder) as platform:
        await harness.run(platform, definition, executions, tasks)
        profiler.enable()
        run = await harness.run(platform, definition, executions, tasks)
        profiler.disable()
    text = io.StringIO()
    stats = pstats.Stats(profiler, stream=text)
    rooms = _rooms(stats)
    whole = sum(rooms.values())
    text.write(f"{shape}: {run.cpu_ms:.2f} ms per task under the profiler\n\n")
    for room, spent in rooms.most_common():
        text.write(f"{spent / whole:6.1%}  {spent * 1000 / run.tasks:6.3f} ms  {room}\n")
    stats.strip_dirs().sort_stats("tottime").print_stats(LINES)
    return text.getvalue()


def _rooms(stats: pstats.Stats) -> Counter[str]:
    """Own time of each function, by room; built-in functions have a room by their name."""
    found: Counter[str] = Counter()
    entries: Any = stats.stats  # type: ignore[attr-defined]
    for (file, _, function), (_, _, own, _, _) in entries.items():
        where = function if file == "~" else file.replace("\\", "/")
        room = next((room for part, room in _ROOMS if part in where), "builtins and library")
        found[room] += own
    return found
