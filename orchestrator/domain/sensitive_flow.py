"""How sensitive data flows through a workflow: what a task is given, and what it gives.

Followed by the names in expressions, not by values. What reads a sensitive part, or computes with
it, is sensitive as a whole; an expression that is a plain path passes on the marks of what it
names. What an activity or a service answers is marked by its `outputSchema`.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.expressions import Expression, Template
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.sensitive import ALL, NONE, Fields, Marks, of_schema
from orchestrator.domain.workflow import TaskSpec, TaskType, Workflow

Keys = tuple[str | int, ...]


class Flow:
    """The marks of one workflow's data. `input`, `outputs` (by task id), `output`."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self.input = of_schema(workflow.input_schema)
        self.outputs: dict[str, Marks] = {}
        self._items: dict[str, Marks] = {}
        if self.input or any(of_schema(schema) for schema in _schemas(workflow)):
            for spec in _in_order(workflow):
                self._take(spec)
        self.output = self._template(workflow.output, NONE)

    def __bool__(self) -> bool:
        """Whether anything of it is sensitive."""
        return bool(self.input) or any(self.outputs.values())

    def given(self, task: str, *, item: bool = False) -> Marks:
        """Of the input of a task (of a map's item: what its `do` is given)."""
        spec = self._workflow.tasks[self._workflow.index[task]]
        if item and spec.do is not None:
            spec = spec.do
        return self._template(spec.template, self._items.get(task, NONE))

    def gives(self, task: str, *, item: bool = False) -> Marks:
        """Of its output."""
        marks = self.outputs.get(task, NONE)
        is_map = self._workflow.tasks[self._workflow.index[task]].type is TaskType.MAP
        return marks.at(None) if item and is_map else marks

    def _take(self, spec: TaskSpec) -> None:
        if spec.type is not TaskType.MAP or spec.do is None:
            self.outputs[spec.id] = self._work(spec, NONE)
            return
        items = self._template(spec.items, NONE)
        # Which item of the list it is, is not known here: what any of them has, all have.
        self._items[spec.id] = items.at(None)
        self.outputs[spec.id] = Fields({}, self._work(spec.do, items.at(None)))

    def _work(self, spec: TaskSpec, item: Marks) -> Marks:
        if spec.type is TaskType.TRANSFORM:
            return self._template(spec.template, item)
        if spec.type is TaskType.WORKFLOW:  # its schemas are another workflow's, chosen later
            return ALL if self._template(spec.template, item) else NONE
        return of_schema(spec.schema if spec.type is TaskType.SIGNAL else spec.output_schema)

    def _template(self, template: Template | None, item: Marks) -> Marks:
        if template is None or template.constant or not (self.input or self.outputs):
            return NONE
        return self._node(template.source, item)

    def _node(self, value: Json, item: Marks) -> Marks:
        if isinstance(value, str) and "${" in value:
            template = Template.compile(value)
            if template.single is not None:
                return self._expression(template.single, item)
            found = [self._expression(one, item) for _, one in template.expressions]
            return ALL if any(found) else NONE
        if isinstance(value, dict):
            fields = Fields({key: self._node(one, item) for key, one in value.items()})
        elif isinstance(value, list):
            fields = Fields({at: self._node(one, item) for at, one in enumerate(value)})
        else:
            return NONE
        return fields or NONE

    def _expression(self, expression: Expression, item: Marks) -> Marks:
        if expression.path is not None:
            root, keys = expression.path
            return self._read(root, keys, item)
        if any(self._read(root, keys, item) for root, keys in expression.reads):
            return ALL
        return NONE

    def _read(self, root: str, keys: Keys, item: Marks) -> Marks:
        if root == "input":
            return _stepped(self.input, keys)
        if root == "item":
            return _stepped(item, keys)
        if root != "tasks":
            return NONE
        match keys:
            case ():  # which task, is known at run time
                return ALL if any(self.outputs.values()) else NONE
            case (task, "output", *rest):
                return _stepped(self.outputs.get(str(task), NONE), rest)
            case _:
                return NONE


def _stepped(marks: Marks, keys: Sequence[str | int]) -> Marks:
    for key in keys:
        marks = marks.at(key)
    return marks


def _schemas(workflow: Workflow) -> list[Json]:
    works = [spec.do or spec for spec in workflow.tasks]
    return [schema for one in works for schema in (one.schema, one.output_schema) if schema]


def _in_order(workflow: Workflow) -> list[TaskSpec]:
    """The tasks, each behind those that it needs."""
    done: set[int] = set()
    order: list[TaskSpec] = []
    for first in range(len(workflow.tasks)):
        stack = [first]
        while stack:
            at = stack[-1]
            before = [need for need in workflow.tasks[at].needs if need not in done]
            if before and at not in done:
                stack.extend(before)
                continue
            stack.pop()
            if at not in done:
                done.add(at)
                order.append(workflow.tasks[at])
    return order
