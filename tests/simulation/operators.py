"""Operators: pause, resume, cancel and terminate executions at random moments, as actors of the
simulation.

Also the pattern for further actors: a coroutine that asks the plan at a place of its own, and that
`World.heal` brings to an end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.domain.errors import WeftError
from orchestrator.engine import control
from orchestrator.ports import StoreError, TransportError
from tests.simulation.loop import sleep

if TYPE_CHECKING:
    from tests.simulation.world import World

ACTIONS = {
    "pause": control.PAUSE,
    "resume": control.RESUME,
    "cancel": control.CANCEL,
    "cancelAndUndo": control.CANCEL_COMPENSATING,
    "terminate": control.TERMINATE,
}
ENDING = ("cancel", "cancelAndUndo", "terminate")
TENANT = "acme"


async def operator(world: World) -> None:
    """Acts on stored executions while faults last, then lets everything go on."""
    while world.plan.enabled:
        await sleep(world.rng.random() * 2)
        fault = world.plan.at("operator", world.chances.operators)
        known = sorted(world.watch.statuses)
        if fault is None or not known:
            continue
        id = known[fault.size % len(known)]
        world.note(f"operator: {fault.kind} {id}")
        await _act(world, id, fault.kind)
    for id, status in sorted(world.watch.statuses.items()):
        if status == "PAUSED":
            answered = False
            while not answered:
                answered = await _act(world, id, "resume")
                await sleep(1)


async def _act(world: World, id: str, name: str) -> bool:
    """Whether it was answered, be it with a refusal."""
    if name in ENDING:
        world.cancelled.add(id)  # if the answer is lost, it may have happened
    try:
        await control.act(world.client.engine, TENANT, id, ACTIONS[name], by="operator")
    except WeftError:
        return True
    except (StoreError, TransportError, OSError):
        return False
    return True
