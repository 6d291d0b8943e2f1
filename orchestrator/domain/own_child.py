"""A workflow that names, as a child, the very version that it is about to become.

A child without a version is compared when the definition is checked (`task_checks`); which number
a definition will have is known only when it is published.
"""

from __future__ import annotations

from orchestrator.domain.definition import Definition, MapTask, WorkflowDo
from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.jsonvalues import child_path


def own_version(definition: Definition, number: int) -> list[ErrorDetail]:
    """Every task of `definition`, as version `number`, that would start itself for ever."""
    found: list[ErrorDetail] = []
    for key, task in definition.tasks.items():
        path = child_path("$.tasks", key)
        do, path = (task.do, f"{path}.do") if isinstance(task, MapTask) else (task, path)
        if not isinstance(do, WorkflowDo):
            continue
        if (do.workflow, do.version) == (definition.name, number):
            message = f"version {number} is this one: it would start itself for ever"
            hint = "use a map to repeat something, or name an earlier version"
            found.append(ErrorDetail(f"{path}.version", message, "OWN_CHILD", hint))
    return found
