"""Parents and children in tests: definitions, and looks at documents."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import inspect
from orchestrator.engine.views import TaskView
from tests.support.definitions import flow, task
from tests.support.world import TENANT, World


def child_task(workflow: str, *needs: str, **more: Any) -> dict[str, Any]:
    """A `workflow` task."""
    result: dict[str, Any] = {"type": "workflow", "workflow": workflow, **more}
    return result | ({"needs": list(needs)} if needs else {})


def parent(workflow: str = "child", name: str = "parent", **more: Any) -> dict[str, Any]:
    """A definition with one child in its task `c`."""
    own = ("on_failure", "defaults")
    options = {key: more.pop(key) for key in own if key in more}
    return flow(name, c=child_task(workflow, **more), output="${tasks.c.output}", **options)


def child(**more: Any) -> dict[str, Any]:
    """A child that runs the activity `work` with its input."""
    return flow("child", w=task("work", input="${input}"), output="${tasks.w.output}", **more)


async def doc(world: World, execution: str, id: str) -> dict[str, Any]:
    """A stored document of an execution."""
    return (await world.sqlite.read(EXECUTIONS, (TENANT, execution), id)).body


async def task_of(world: World, execution: str, task: str, item: int | None = None) -> TaskView:
    """A task as the API shows it."""
    return await inspect.task(world.engine, TENANT, execution, task, item=item)


async def child_of(world: World, execution: str, task: str = "c", item: int | None = None) -> str:
    """The id of the child that a task has (or had last)."""
    view = await task_of(world, execution, task, item)
    assert view.child is not None
    return view.child


async def everyone(world: World) -> dict[str, dict[str, Any]]:
    """All execution documents, by id."""
    from orchestrator.ports import Query, Where

    found = await world.sqlite.query(
        EXECUTIONS, Query(where=(Where("type", "=", "execution"),), limit=1_000)
    )
    return {one.id: one.body for one in found}
