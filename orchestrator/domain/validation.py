"""Is this definition right? Every problem at once, each with a path, a code and a hint.

Validation works on what the user wrote, not on the models: a definition with one wrong field must
still have its cycles and its expressions checked. Models check the single values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from orchestrator.domain.definition import Definition
from orchestrator.domain.definition_types import TASK_ID_PATTERN
from orchestrator.domain.errors import ErrorDetail, InvalidError
from orchestrator.domain.faults import translate
from orchestrator.domain.graph import Graph, analyse
from orchestrator.domain.jsonschemas import check_schema
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import child_path
from orchestrator.domain.nearest import Nearest
from orchestrator.domain.references import (
    ReferenceCheck,
    concurrency_site,
    output_site,
    task_sites,
)
from orchestrator.domain.task_checks import TaskCheck, check_retry
from orchestrator.domain.topology import MAX_MAPS, MAX_TASKS

SHOWN_OF_CYCLE: Final = 20  # tasks; a longer cycle is cut in the middle

_TASK_ID: Final = re.compile(TASK_ID_PATTERN)


@dataclass(frozen=True, slots=True)
class Validated:
    """A definition without problems."""

    definition: Definition
    raw: dict[str, Json]
    """As written, with `tasks` as a mapping. What is to be stored: `load_workflow` reads it."""


@dataclass(slots=True)
class Tasks:
    """The tasks as written, in order. A task without a usable id (missing, duplicate) has a key
    that no id can equal, so that its other faults are found too."""

    by_key: dict[str, Json] = field(default_factory=dict[str, Json])
    paths: dict[str, str] = field(default_factory=dict[str, str])
    problems: list[ErrorDetail] = field(default_factory=list[ErrorDetail])


def validate(
    raw: Json,
    *,
    activities: frozenset[str] | None,
    targets: frozenset[str] | None = None,
    orchestrations: Mapping[str, Sequence[int]] | None = None,
) -> Validated:
    """Check a definition. `activities`: the registered names, `targets`: those that events can be
    published to, `orchestrations`: the versions of each code workflow; None: any name is fine.

    Raises `InvalidError` with every problem in `details`.
    """
    if not isinstance(raw, dict):
        raise _invalid([ErrorDetail("$", "a definition must be an object", "WRONG_TYPE")])
    nearest = Nearest()
    tasks = read_tasks(raw.get("tasks"))
    problems = list(tasks.problems)
    whole: dict[str, Json] = {**raw}
    if tasks.by_key:
        whole["tasks"] = tasks.by_key
    elif isinstance(raw.get("tasks"), list):
        whole["tasks"] = {}
    too_many = len(tasks.by_key) > MAX_TASKS
    if too_many:
        # No further: the work would grow with the square of a number that is wrong anyway.
        message = f"{len(tasks.by_key):,} tasks, at most {MAX_TASKS:,} are allowed"
        problems.append(ErrorDetail("$.tasks", message, "TOO_MANY_TASKS"))
        tasks, whole["tasks"] = Tasks(), {}
    definition: Definition | None = None
    try:
        definition = Definition.model_validate(whole)
    except ValidationError as error:
        found = translate(error, tasks.paths, nearest)
        problems += [item for item in found if not (too_many and item.code == "NO_TASKS")]
    task_check = TaskCheck(raw, activities, nearest, targets, orchestrations)
    problems += _check_whole(raw, tasks, task_check, nearest)
    if problems or definition is None:
        raise _invalid(problems)
    return Validated(definition, whole)


def read_tasks(value: Json) -> Tasks:
    """The tasks of either form: a mapping, or a list of objects with `id`."""
    tasks = Tasks()
    if isinstance(value, dict):
        for key, task in value.items():
            path = child_path("$.tasks", key)
            tasks.by_key[key] = task
            tasks.paths[key] = path
            _check_id(key, path, tasks)
    elif isinstance(value, list):
        for position, task in enumerate(value):
            path = f"$.tasks[{position}]"
            key, rest = f"\0{position}", task
            if isinstance(task, dict):
                rest = {name: item for name, item in task.items() if name != "id"}
                key = _listed_id(task, path, tasks) or key
            tasks.by_key[key] = rest
            tasks.paths[key] = path
    return tasks


def _listed_id(task: Mapping[str, Json], path: str, tasks: Tasks) -> str | None:
    task_id = task.get("id")
    if task_id is None:
        tasks.problems.append(ErrorDetail(f"{path}.id", "`id` is missing", "MISSING_FIELD"))
    elif not isinstance(task_id, str):
        tasks.problems.append(ErrorDetail(f"{path}.id", "must be text", "WRONG_TYPE"))
    elif task_id in tasks.by_key:
        message = f'the task "{task_id[:80]}" is already at {tasks.paths[task_id]}'
        tasks.problems.append(ErrorDetail(f"{path}.id", message, "DUPLICATE_TASK"))
    else:
        _check_id(task_id, f"{path}.id", tasks)
        return task_id
    return None


def _check_id(task_id: str, path: str, tasks: Tasks) -> None:
    if not _TASK_ID.fullmatch(task_id):
        message = f"{task_id[:80]!r} is not a task id: it must match {TASK_ID_PATTERN}"
        tasks.problems.append(ErrorDetail(path, message, "BAD_TASK_ID"))


def _check_whole(
    raw: Mapping[str, Json], tasks: Tasks, task_check: TaskCheck, nearest: Nearest
) -> Iterator[ErrorDetail]:
    if isinstance(schema := raw.get("input"), dict | bool):
        yield from check_schema(schema, "$.input")
    defaults = raw.get("defaults")
    if isinstance(defaults, dict) and isinstance(retry := defaults.get("retry"), dict):
        yield from check_retry(retry, {}, "$.defaults.retry")
    yield from task_check.notify(raw.get("notify"))
    yield from _check_maps(tasks)
    positions = {key: position for position, key in enumerate(tasks.by_key)}
    needs: list[list[int]] = []
    for key, task in tasks.by_key.items():
        known: list[int] = []
        if isinstance(task, dict):
            yield from _check_needs(key, task, tasks.paths[key], positions, known, nearest)
        needs.append(known)
    graph = analyse(needs)
    yield from _check_graph(list(tasks.by_key), tasks.paths, graph)
    references = ReferenceCheck(positions, graph, nearest)
    for key, task in tasks.by_key.items():
        if isinstance(task, dict):
            yield from task_check.check(task, tasks.paths[key])
            for site in task_sites(task, tasks.paths[key]):
                yield from references.check(site, key)
    if isinstance(group := raw.get("concurrency"), dict) and "key" in group:
        yield from references.check(concurrency_site(group["key"]), None)
    if "output" in raw:
        yield from references.check(output_site(raw["output"]), None)


def _check_maps(tasks: Tasks) -> Iterator[ErrorDetail]:
    """One commit may have to write a document for each map, and a batch has room for so many: a
    workflow with more would never get beyond its first decision."""
    maps = sum(
        1 for task in tasks.by_key.values() if isinstance(task, dict) and task.get("type") == "map"
    )
    if maps > MAX_MAPS:
        message = f"{maps:,} tasks of type map, at most {MAX_MAPS} are allowed"
        hint = "put some of them into child workflows"
        yield ErrorDetail("$.tasks", message, "TOO_MANY_MAPS", hint)


def _check_needs(
    key: str,
    task: Mapping[str, Json],
    path: str,
    positions: Mapping[str, int],
    known: list[int],
    nearest: Nearest,
) -> Iterator[ErrorDetail]:
    """Findings of one task's needs; the positions of those that exist are added to `known`."""
    needs = task.get("needs")
    if not isinstance(needs, list):
        return
    seen: set[str] = set()
    for index, need in enumerate(needs):
        if not isinstance(need, str):
            continue
        where = f"{path}.needs[{index}]"
        if need in seen:
            yield ErrorDetail(where, f'"{need[:80]}" is needed twice', "DUPLICATE_NEED")
            continue
        seen.add(need)
        position = positions.get(need)
        if position is None:
            hint = nearest.hint(need, positions)
            yield ErrorDetail(where, f'there is no task "{need[:80]}"', "UNKNOWN_NEED", hint)
            continue
        known.append(position)
        if need == key:
            yield ErrorDetail(where, f'"{key}" needs itself', "SELF_NEED")


def _check_graph(names: list[str], paths: Mapping[str, str], graph: Graph) -> Iterator[ErrorDetail]:
    for cycle in graph.cycles:
        start = names[cycle[0]]
        message = f"tasks wait for each other: {_spell([names[task] for task in cycle])}"
        hint = "each needs the next; remove one of these needs"
        yield ErrorDetail(f"{paths[start]}.needs", message, "CYCLE", hint)
    for task in graph.unreachable:
        message = f'"{names[task]}" never starts: a task upstream of it waits for itself'
        yield ErrorDetail(paths[names[task]], message, "UNREACHABLE", "break the cycle upstream")


def _spell(cycle: list[str]) -> str:
    """`a -> c -> b -> a`."""
    if len(cycle) > SHOWN_OF_CYCLE:
        half = SHOWN_OF_CYCLE // 2
        cycle = [*cycle[:half], f"({len(cycle) - 2 * half:,} more)", *cycle[-half:]]
    return " -> ".join([*cycle, cycle[0]])


def _invalid(problems: list[ErrorDetail]) -> InvalidError:
    first = problems[0]
    message = f"{first.field}: {first.message}"
    if len(problems) > 1:
        message = f"the definition has {len(problems)} problems, the first: {message}"
    return InvalidError(message, details=problems)
