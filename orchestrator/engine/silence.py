"""Tasks that are silent and not lost: they wait for a circuit breaker or a slot of their tenant.

Their messages are on their way, but nothing in their documents says so: the sweeper and the `check`
of an execution would take them for lost, and send one more message each time, for as long as they
wait. An open breaker lets nothing run, and what was lost is found when it closes. Slots are taken
and free again all the time, and of a busy tenant somebody always waits: so what a lost message
leaves behind would wait for ever. After the longest silence that is no excuse any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.domain.status import TaskStatus
from orchestrator.domain.workflow import TaskSpec, TaskType
from orchestrator.engine import documents
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.breakers import Breakers
from orchestrator.engine.core import Engine
from orchestrator.engine.slots import SlotBook


async def is_postponed(engine: Engine, doc: dict[str, Any], *, patient: bool = True) -> bool:
    """Whether an overdue task document is one whose retry waits for its breaker or, for as long as
    the caller is `patient`, a slot. A lease that expired is always looked after: its worker is
    dead."""
    if doc["status"] != TaskStatus.RETRYING.value:
        return False
    if patient and await engine.part(SlotBook).busy(doc["tenantId"]):
        return True
    dependency = doc.get("dependency")
    return bool(dependency) and await engine.part(Breakers).postponed(doc["tenantId"], dependency)


async def without_postponed(
    engine: Engine,
    aggregate: Aggregate,
    lost: list[tuple[int, int | None]],
    docs: Mapping[str, dict[str, Any]],
    *,
    patient: bool = True,
) -> list[tuple[int, int | None]]:
    """Those of the (task, item) that nobody works on and that neither a breaker nor, if the caller
    is `patient`, the lack of a slot holds up. `docs`: task documents by id; they know the
    dependency where an expression or an operator's input made it."""
    if lost and patient and await engine.part(SlotBook).busy(aggregate.partition[0]):
        return []
    held: dict[tuple[int, str], bool] = {}
    left: list[tuple[int, int | None]] = []
    for task, item in lost:
        spec = aggregate.workflow.tasks[task]
        doc = docs.get(documents.task_id(spec.id, item))
        key = (task, "" if doc is None else doc.get("dependency", ""))
        if key not in held:
            held[key] = await _held(
                engine, aggregate.partition[0], spec if item is None else spec.do or spec, key[1]
            )
        if not held[key]:
            left.append((task, item))
    return left


async def _held(engine: Engine, tenant: str, spec: TaskSpec, known: str) -> bool:
    breakers = engine.part(Breakers)
    if known:
        return await breakers.postponed(tenant, known)
    if spec.type is TaskType.ACTIVITY:
        dependency = engine.activities.dependency(spec.activity)
        return dependency is not None and await breakers.postponed(tenant, dependency)
    if spec.type is TaskType.HTTP:
        # A host that an expression makes may be any of them.
        return await breakers.postponed(tenant, spec.host or None)
    return False
