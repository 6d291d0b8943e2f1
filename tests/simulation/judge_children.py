"""Invariants of parents and children that are looked at when faults are over."""

from __future__ import annotations

from orchestrator.domain.topology import EXECUTIONS
from tests.simulation.world import TENANT, World

STOPPED_WITHIN_S = 1_200
"""How long a child may run after its parent's cancel, faults of some minutes included."""


def family(world: World, execution: str) -> list[str]:
    """It and all its descendants."""
    found = [execution]
    for id in found:  # grows while it is read
        found += [child for child, parent in world.watch.parents.items() if parent == id]
    return found


def judge_children(world: World) -> None:
    """Every child is known to its parent, and was not left behind by it."""
    for id, parent in world.watch.parents.items():
        doc, above = world.document(id), world.document(parent)
        if doc is None or above is None:
            world.fail(f"{id}: it or its parent {parent} is lost")
            continue
        place = doc["parentTask"]
        name = f"task:{place['task']}" + (f":{place['item']}" if "item" in place else "")
        task = world.store.body(EXECUTIONS, (TENANT, parent), name)
        if task is None or task["child"]["number"] < place["number"]:
            world.fail(f"{id}: its parent's {name} does not know it: {task}")
        left = doc["state"].get("endedAt", 0) - above["state"].get("endedAt", 0)
        if above["status"] == "CANCELLED" and left > STOPPED_WITHIN_S * 1000:
            world.fail(f"{id}: ran for {left} ms after its parent was cancelled")


def unsettled(world: World) -> list[str]:
    """Tasks that do not know yet that what they had started (a child, an orchestration) has ended,
    or was never there: somebody looks after it, up to three times a minute apart."""
    return [
        f"{partition[1]}/{id}: does not know the end of its child: {doc}"
        for (partition, id), doc in world.store.bodies(EXECUTIONS).items()
        if doc["type"] == "task"
        and (child := doc.get("child") or doc.get("instance")) is not None
        and ("sweepAt" in doc or not child.get("settled"))
    ]
