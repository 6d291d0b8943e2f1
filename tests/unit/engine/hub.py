"""Worlds with a task hub, for tests of orchestrations."""

from __future__ import annotations

from typing import Any

from orchestrator.engine.core import Engine
from tests.support.definitions import flow
from tests.support.fake_orchestrations import FakeCode, FakeOrchestrations
from tests.support.world import World
from tests.unit.engine.conftest import MakeWorld

CODE = {"ship": [1, 2]}


class Hub(FakeOrchestrations):
    """The hub of a world, with that world."""

    world: World
    code: FakeCode

    def join(self, engine: Engine) -> Engine:
        """Give `engine` the hub."""
        engine.orchestrations = self
        engine.code = self.code
        return engine


async def hub_of(
    make: MakeWorld, code: dict[str, list[int]] | None = None, **options: Any
) -> tuple[World, Hub]:
    """An open world whose engine has a hub."""
    schema = options.pop("schema", None)
    world = await make(**options)
    hub = Hub(world.clock)
    hub.world, hub.code = world, FakeCode(dict(CODE if code is None else code), schema)
    hub.join(world.engine)
    return world, hub


def durable(*needs: str, **more: Any) -> dict[str, Any]:
    """A `durable` task."""
    task: dict[str, Any] = {"type": "durable", "orchestration": "ship", **more}
    return task | ({"needs": list(needs)} if needs else {})


def around(**more: Any) -> dict[str, Any]:
    """A definition with one durable task, `d`."""
    own = ("on_failure", "defaults")
    options = {key: more.pop(key) for key in own if key in more}
    return flow("around", d=durable(**more), output="${tasks.d.output}", **options)
