"""One world per test, closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.world import FakeActivities, World

MakeWorld = Callable[..., Awaitable[World]]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[MakeWorld]:
    """`await make(activities…, tunables=…)`: an open world."""
    made: list[World] = []

    async def build(*, tunables: Any = None, wrap_store: Any = None, **functions: Any) -> World:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        activities = FakeActivities(**functions)
        world = World(folder, activities, tunables=tunables, wrap_store=wrap_store)
        made.append(world)
        return await world.open()

    yield build
    for world in made:
        await world.close()
