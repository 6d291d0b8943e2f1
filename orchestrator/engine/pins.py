"""Which versions an execution's children have: chosen once, when it is submitted.

A child may start days after its parent. The latest version then may want another input than the
parent's definition was written for, so the header keeps (`pins`: name -> version) what was latest
at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.domain import kin, orchestration
from orchestrator.domain.workflow import Workflow
from orchestrator.engine import catalog
from orchestrator.engine.core import Engine


async def resolve(engine: Engine, tenant: str, workflow: Workflow) -> dict[str, int]:
    """The pins of a new execution of `workflow`. A child that is not published (or archived) has
    none: its task fails, unless it is published before that task's turn comes. The same for code
    workflows that its tasks run, under names of their own (`orchestration.pin`)."""
    names = kin.names_of(workflow)
    pins = await catalog.latest(engine, tenant, sorted(names)) if names else {}
    for name in sorted(kin.orchestrations_of(workflow)):
        if versions := engine.code.versions(name):
            pins[orchestration.pin(name)] = versions[-1]
    return pins


async def uses(
    engine: Engine, tenant: str, workflow: Workflow, pins: Mapping[str, int]
) -> dict[str, Any]:
    """Properties of an execution document: which versions of code workflows it needs as long as it
    runs, so that those who deploy can ask for them (`code_uses`)."""
    found: dict[str, Any] = {}
    children: list[tuple[str, int]] = []
    code = engine.code.names()
    for task in workflow.tasks:
        spec = task if task.do is None else task.do
        name, version = spec.orchestration, spec.orchestration_version
        if name and version is None:
            version = pins.get(orchestration.pin(name))
        if name and version is not None:
            found[orchestration.use_field(name, version)] = True
        child = pins.get(spec.workflow) if spec.workflow_version is None else spec.workflow_version
        if spec.workflow in code and child is not None:
            children.append((spec.workflow, child))
    if children:
        hidden = await catalog.published(engine, tenant, sorted({name for name, _ in children}))
        found |= {orchestration.use_field(*one): True for one in children if one[0] not in hidden}
    return found


def uses_of(header: Mapping[str, Any]) -> dict[str, Any]:
    """Those that an execution has."""
    return {field: value for field, value in header.items() if orchestration.is_use(field)}
