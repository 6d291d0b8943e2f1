"""The expressions of a definition: where they may stand, and what each may name there.

A task can only read what has settled before it starts, so every task that an expression names must
be upstream. Secrets are resolved by the worker only: an orchestration decision that saw one would
write it into the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.expressions import Expression, Template, TemplateError
from orchestrator.domain.graph import Graph
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import child_path
from orchestrator.domain.nearest import Nearest

BASE: Final = frozenset({"input", "tasks", "execution"})
WORKER: Final = BASE | {"secrets"}
ITEM: Final = frozenset({"item", "index"})

WORK_SITES: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "activity": ("input", WORKER),
    "http": ("request", WORKER),
    "transform": ("output", BASE),
    "wait": ("until", BASE),
    "workflow": ("input", BASE),
    "publish": ("event", BASE),
    "durable": ("input", BASE),
}
"""Per task type: the field that holds expressions, and the names they may use."""


@dataclass(frozen=True, slots=True)
class Site:
    """A value that may hold expressions."""

    path: str
    value: Json
    names: frozenset[str]
    single: bool = False  # a text must be exactly one expression
    is_time: bool = False  # a text without expressions must be a time
    reads_itself: bool = False  # the task's own output is known here


def task_sites(task: Mapping[str, Json], path: str) -> Iterator[Site]:
    """All sites of a task as written. Values of a wrong type are left out: they are reported
    elsewhere."""
    if isinstance(when := task.get("when"), str):
        yield Site(f"{path}.when", when, BASE, single=True)
    if task.get("type") == "map":
        items = task.get("items")
        if isinstance(items, list) or (isinstance(items, str) and "${" in items):
            yield Site(f"{path}.items", items, BASE, single=True)
        if isinstance(do := task.get("do"), dict):
            yield from _work_sites(do, f"{path}.do", ITEM)
    else:
        yield from _work_sites(task, path, frozenset())
    if isinstance(compensate := task.get("compensate"), dict):
        yield from _work_sites(compensate, f"{path}.compensate", frozenset(), reads_itself=True)


def _work_sites(
    task: Mapping[str, Json], path: str, more: frozenset[str], *, reads_itself: bool = False
) -> Iterator[Site]:
    kind = task.get("type")
    field, names = WORK_SITES.get(kind, ("", BASE)) if isinstance(kind, str) else ("", BASE)
    if field in task:
        yield Site(
            f"{path}.{field}",
            task[field],
            names | more,
            is_time=kind == "wait",
            reads_itself=reads_itself,
        )


class ReferenceCheck:
    """Checks sites against the tasks of one definition."""

    def __init__(self, positions: Mapping[str, int], graph: Graph, nearest: Nearest) -> None:
        self._positions = positions
        self._graph = graph
        self._nearest = nearest

    def check(self, site: Site, owner: str | None) -> Iterator[ErrorDetail]:
        """Findings of one site. `owner`: the task it belongs to; None: it may read every task."""
        try:
            template = Template.compile(site.value)
        except TemplateError as error:
            for path, source, reason in error.problems:
                shown = f"`{_short(source)}` does not compile: {reason}" if source else reason
                yield ErrorDetail(f"{site.path}{path}", shown, "BAD_EXPRESSION")
            return
        if site.single and isinstance(site.value, str) and template.single is None:
            hint = "write ${…} and nothing around it"
            yield ErrorDetail(site.path, "must be exactly one expression", "BAD_EXPRESSION", hint)
        if site.is_time and template.constant and isinstance(site.value, str):
            yield from _check_time(site.path, site.value)
        for path, expression in template.expressions:
            yield from self._expression(expression, f"{site.path}{path}", site, owner)

    def _expression(
        self, expression: Expression, path: str, site: Site, owner: str | None
    ) -> Iterator[ErrorDetail]:
        for name in sorted(expression.names - site.names):
            yield self._name(name, path, site)
        if expression.dynamic_tasks:
            hint = "write tasks.ID or tasks['ID']"
            message = f"`{_short(expression.source)}` must name the task that it reads"
            yield ErrorDetail(path, message, "DYNAMIC_TASK", hint)
        for task in sorted(expression.tasks):
            if task not in self._positions:
                hint = self._nearest.hint(task, self._positions)
                yield ErrorDetail(path, f'there is no task "{task[:80]}"', "UNKNOWN_TASK", hint)
            elif owner is not None and not self._may_read(task, owner, site):
                yield _not_upstream(path, task, owner)

    def _may_read(self, task: str, owner: str, site: Site) -> bool:
        if task == owner and site.reads_itself:
            return True
        return self._graph.is_upstream(self._positions[task], self._positions[owner])

    def _name(self, name: str, path: str, site: Site) -> ErrorDetail:
        if name in ITEM:
            message = f"`{name}` is known only inside the `do` of a map"
            return ErrorDetail(path, message, "MISPLACED_NAME")
        if name == "secrets":
            message = "secrets are known only in the input of an activity and in an http request"
            return ErrorDetail(path, message, "MISPLACED_NAME", "pass the secret where it is used")
        hint = self._nearest.hint(name, site.names)
        known = ", ".join(sorted(site.names))
        message = f'there is no name "{name[:80]}" here, only {known}'
        return ErrorDetail(path, message, "UNKNOWN_NAME", hint)


def _not_upstream(path: str, task: str, owner: str) -> ErrorDetail:
    if task == owner:
        return ErrorDetail(path, "a task cannot read itself", "NOT_UPSTREAM")
    message = f'"{task}" is not upstream of "{owner}": it may not have settled yet'
    return ErrorDetail(path, message, "NOT_UPSTREAM", f'add "{task}" to the needs of "{owner}"')


def _check_time(path: str, text: str) -> Iterator[ErrorDetail]:
    hint = "write it like 2027-03-28T02:30:00Z"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        yield ErrorDetail(path, "must be an ISO 8601 time with an offset", "BAD_TIME", hint)
        return
    if moment.tzinfo is None:
        yield ErrorDetail(path, "the time has no offset from UTC", "BAD_TIME", hint)


def _short(source: str) -> str:
    text = source.strip()
    return text if len(text) <= 120 else text[:120] + "…"


def concurrency_site(value: Json) -> Site:
    """The site of the key of a concurrency group: evaluated before anything has run."""
    return Site("$.concurrency.key", value, BASE - {"tasks"})


def output_site(value: Json) -> Site:
    """The site of the workflow's output."""
    return Site(child_path("$", "output"), value, BASE)
