"""Signals in engine tests: tasks that wait, signals sent, what the list says of them."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import signals
from orchestrator.engine.views_signals import SignalResult, SignalView
from tests.support.definitions import flow
from tests.support.world import TENANT, World


def awaiting(name: str = "go", *needs: str, **more: Any) -> dict[str, Any]:
    """A signal task."""
    return {"type": "signal", "signal": name, "needs": list(needs), **more}


async def send(
    world: World, execution: str, name: str = "go", payload: Any = None, **more: Any
) -> SignalResult:
    """Send one."""
    return await signals.send(world.engine, TENANT, execution, name, payload, **more)


async def listed(world: World, execution: str) -> list[SignalView]:
    """All signals of an execution."""
    found, _ = await signals.page(world.engine, TENANT, execution, limit=1_000, after=None)
    return found


async def states(world: World, execution: str) -> dict[str, tuple[str, str | None]]:
    """Signal id -> (status, the task that took it)."""
    return {one.id: (one.status.value, one.task) for one in await listed(world, execution)}


async def started(world: World, *, settle: bool = True, **tasks: Any) -> str:
    """Publish these tasks and start an execution; its id."""
    await world.publish(flow(**tasks))
    id = (await world.start("flow")).id
    if settle:
        await world.settle()
    return id


async def stored(world: World, execution: str, id: str) -> dict[str, Any]:
    """A document of an execution."""
    return (await world.sqlite.read(EXECUTIONS, (TENANT, execution), id)).body
