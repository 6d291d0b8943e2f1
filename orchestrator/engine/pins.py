"""Which versions an execution's children have: chosen once, when it is submitted.

A child may start days after its parent. The latest version then may want another input than the
parent's definition was written for, so the header keeps (`pins`: name -> version) what was latest
at the start.
"""

from __future__ import annotations

from orchestrator.domain import kin
from orchestrator.domain.workflow import Workflow
from orchestrator.engine import catalog
from orchestrator.engine.core import Engine


async def resolve(engine: Engine, tenant: str, workflow: Workflow) -> dict[str, int]:
    """The pins of a new execution of `workflow`. A child that is not published (or archived) has
    none: its task fails, unless it is published before that task's turn comes."""
    names = kin.names_of(workflow)
    return await catalog.latest(engine, tenant, sorted(names)) if names else {}
