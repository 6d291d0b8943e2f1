"""From a definition to the `Workflow` that is run.

Ids become positions, texts become programs, and every policy field that was left out gets its value
(task, then the definition's `defaults`, then the platform's), one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final, cast

from pydantic import ValidationError

from orchestrator.domain import defaults as platform
from orchestrator.domain.definition import (
    ActivityDo,
    Attempted,
    Defaults,
    Definition,
    Do,
    DurableDo,
    HttpDo,
    MapTask,
    Retry,
    SignalDo,
    Task,
    WaitDo,
)
from orchestrator.domain.dependencies import fixed_host
from orchestrator.domain.durations import MAX_DURATION_MS
from orchestrator.domain.errors import InvalidError
from orchestrator.domain.expressions import Expression, Template
from orchestrator.domain.faults import translate
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.nearest import Nearest
from orchestrator.domain.orchestration import MAIN
from orchestrator.domain.priority import Priority
from orchestrator.domain.published import OWN_TARGET
from orchestrator.domain.references import WORK_SITES
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.tolerance import NONE, Tolerance
from orchestrator.domain.urls import encode_part
from orchestrator.domain.validation import Validated, read_tasks
from orchestrator.domain.workflow import (
    UNDO_SUFFIX,
    ConcurrencyPolicy,
    ConcurrencySpec,
    Jitter,
    NotifySpec,
    OnFailure,
    RetryPolicy,
    RunWhen,
    TaskSpec,
    TaskType,
    Workflow,
)


def compile_workflow(validated: Validated) -> Workflow:
    """The workflow of a definition that passed `validate`."""
    definition, raw = validated.definition, validated.raw
    index = {task_id: position for position, task_id in enumerate(definition.tasks)}
    raw_tasks = cast("Mapping[str, Mapping[str, Json]]", raw["tasks"])
    compiler = _Compiler(definition.defaults or Defaults(), index)
    visible = [
        compiler.task(task_id, task, raw_tasks[task_id])
        for task_id, task in definition.tasks.items()
    ]
    hidden = compiler.compensations(definition.tasks, raw_tasks)
    tasks = (*visible, *hidden)
    index |= {task.id: len(visible) + number for number, task in enumerate(hidden)}
    successors: list[list[int]] = [[] for _ in tasks]
    for position, task in enumerate(tasks):
        for need in task.needs:
            successors[need].append(position)
    output = None if definition.output is None else Template.compile(definition.output)
    return Workflow(
        name=definition.name,
        tasks=tasks,
        index=index,
        successors=tuple(map(tuple, successors)),
        on_failure=OnFailure(definition.on_failure),
        timeout_ms=definition.timeout,
        priority=Priority(definition.priority),
        # A null output is the same as none: the execution's output is null.
        output=output,
        input_schema=definition.input,
        signals=signal_tasks(tasks),
        notify=tuple(
            NotifySpec(
                on=frozenset(ExecutionStatus(status.upper()) for status in one.on),
                url="" if one.webhook is None else one.webhook.url,
                target=one.to or "",
                secret=None if one.webhook is None else one.webhook.secret,
                include_output=one.include_output,
                retry=compiler.default_retry,
            )
            for one in definition.notify or ()
        ),
        concurrency=concurrency_of(definition),
        undo={task.undoes: index[task.id] for task in hidden if task.undoes is not None},
        hears={
            name: index[task_id]
            for task_id, task in definition.tasks.items()
            if isinstance(task, DurableDo)
            for name in task.signals or ()
        },
        heavy=any(
            one is not None and one.heavy
            for one in (output, *(e for t in tasks for e in (t.when, t.until, t.items)))
        ),
    )


def concurrency_of(definition: Definition) -> ConcurrencySpec | None:
    """The definition's `concurrency`."""
    given = definition.concurrency
    if given is None:
        return None
    return ConcurrencySpec(
        limit=given.limit,
        key=None if given.key is None else Template.compile(given.key),
        policy=ConcurrencyPolicy(given.policy),
    )


def signal_tasks(tasks: Sequence[TaskSpec]) -> dict[str, tuple[int, ...]]:
    """Signal name -> positions of the tasks, and of the maps whose items, wait for it."""
    found: dict[str, list[int]] = {}
    for position, task in enumerate(tasks):
        if task.listener is not None:
            found.setdefault(task.listener.signal, []).append(position)
    return {name: tuple(positions) for name, positions in found.items()}


def load_workflow(raw: Json) -> Workflow:
    """The workflow of a definition that was validated when it was published: no checks but those
    of the single values. Raises `InvalidError` if it was not."""
    if not isinstance(raw, dict):
        raise InvalidError("a definition must be an object")
    tasks = read_tasks(raw.get("tasks"))
    whole: dict[str, Json] = {**raw, "tasks": tasks.by_key}
    try:
        definition = Definition.model_validate(whole)
    except ValidationError as error:
        details = translate(error, tasks.paths, Nearest())
        raise InvalidError("the stored definition is not valid", details=details) from None
    return compile_workflow(Validated(definition, whole))


def code_workflow(name: str, version: int, input_schema: Json = None) -> Workflow:
    """The runnable form of a version of a code workflow."""
    return dataclasses.replace(
        load_workflow(code_definition(name, version, input_schema)), code=True
    )


def code_definition(name: str, version: int, input_schema: Json = None) -> dict[str, Json]:
    """The definition that a version of a code workflow stands for."""
    main: Json = {
        "type": "durable",
        "orchestration": name,
        "version": version,
        "input": "${input}",
    }
    schema: dict[str, Json] = {} if input_schema is None else {"input": input_schema}
    output = f"${{tasks.{MAIN}.output}}"
    return {"name": name, **schema, "tasks": {MAIN: main}, "output": output}


def retry_policy(*layers: Retry | None) -> RetryPolicy:
    """The policy of `layers`, the first one that has a field wins; the platform's values last."""
    merged: dict[str, object] = {}
    for layer in layers:
        if layer is not None:
            for name in Retry.model_fields:
                if name not in merged and (value := getattr(layer, name)) is not None:
                    merged[name] = value
    retry = Retry.model_construct(None, **merged)
    initial = retry.initial_interval or platform.DEFAULT_INITIAL_INTERVAL_MS
    return RetryPolicy(
        max_attempts=retry.max_attempts or platform.DEFAULT_MAX_ATTEMPTS,
        initial_interval_ms=initial,
        backoff_coefficient=retry.backoff_coefficient or platform.DEFAULT_BACKOFF_COEFFICIENT,
        max_interval_ms=max(initial, retry.max_interval or platform.DEFAULT_MAX_INTERVAL_MS),
        jitter=Jitter(retry.jitter) if retry.jitter else platform.DEFAULT_JITTER,
        retryable=None if retry.retryable is None else frozenset(retry.retryable),
        non_retryable=frozenset(retry.non_retryable or ()),
    )


URL_TEXTS: Final = {".url": encode_part}
"""Values pasted into the text of an http task's url are encoded. A url that is one expression is
taken as it is."""


class _Compiler:
    """Compiles the tasks of one definition."""

    def __init__(self, defaults: Defaults, index: Mapping[str, int]) -> None:
        self._defaults = defaults
        self._index = index
        self.default_retry = retry_policy(defaults.retry)

    def task(self, task_id: str, task: Task, raw: Mapping[str, Json]) -> TaskSpec:
        """One task. A map's own `timeout` and `retry` are what its `do` falls back to."""
        spec = self._work(task_id, task, raw)
        items: Template | None = None
        do: TaskSpec | None = None
        max_concurrency, tolerate = 0, NONE
        if isinstance(task, MapTask):
            items = Template.compile(task.items)
            do = self._work(task_id, task.do, cast("Mapping[str, Json]", raw["do"]), task)
            max_concurrency = task.max_concurrency or 0
            tolerate = Tolerance.of(task.tolerate_failures)
        return dataclasses.replace(
            spec,
            needs=tuple([self._index[need] for need in task.needs]),
            run_when=RunWhen(task.run_when),
            when=_condition(task.when),
            continue_on_error=task.continue_on_error,
            deadline_ms=task.deadline,
            items=items,
            do=do,
            max_concurrency=max_concurrency,
            tolerate=tolerate,
        )

    def compensations(
        self, tasks: Mapping[str, Task], raw: Mapping[str, Mapping[str, Json]]
    ) -> list[TaskSpec]:
        """The hidden tasks, in the order of those that they undo."""
        return [
            dataclasses.replace(
                self._work(
                    task_id + UNDO_SUFFIX,
                    task.compensate,
                    cast("Mapping[str, Json]", raw[task_id]["compensate"]),
                ),
                undoes=self._index[task_id],
            )
            for task_id, task in tasks.items()
            if task.compensate is not None
        ]

    def _work(
        self, task_id: str, task: Task | Do, raw: Mapping[str, Json], outer: MapTask | None = None
    ) -> TaskSpec:
        # A default meant for attempts must not end the wait for a person or for a child.
        fallback = MAX_DURATION_MS
        if isinstance(task, Attempted):
            fallback = self._defaults.timeout or platform.DEFAULT_TIMEOUT_MS
        timeout = None if isinstance(task, WaitDo) else task.timeout
        own_retry = None if isinstance(task, WaitDo | SignalDo) else task.retry
        retry = self.default_retry
        if outer is not None:
            timeout = timeout or outer.timeout
        if own_retry is not None or (outer is not None and outer.retry is not None):
            outer_retry = None if outer is None else outer.retry
            retry = retry_policy(own_retry, outer_retry, self._defaults.retry)
        elif task.type in ("workflow", "durable"):
            # Either tries again within itself; a second one is for those who ask for it.
            retry = dataclasses.replace(retry, max_attempts=1)
        template: Template | None = None
        if task.type in WORK_SITES and task.type != "wait":
            # As written: a model would fill in fields that the user left out.
            template = Template.compile(
                raw.get(WORK_SITES[task.type][0]),
                texts=URL_TEXTS if task.type == "http" else None,
            )
        return TaskSpec(
            id=task_id,
            type=TaskType(task.type),
            timeout_ms=timeout or fallback,
            heartbeat_timeout_ms=task.heartbeat_timeout if task.type == "activity" else None,
            retry=retry,
            activity=task.activity if task.type == "activity" else "",
            host=_host(raw.get("request")) if task.type == "http" else "",
            target=(task.to or OWN_TARGET) if task.type == "publish" else "",
            template=template,
            workflow=task.workflow if task.type == "workflow" else "",
            workflow_version=task.version if task.type == "workflow" else None,
            duration_ms=task.duration if task.type == "wait" else None,
            until=_until(task) if task.type == "wait" else None,
            signal=task.signal if task.type == "signal" else "",
            wait_ms=timeout if task.type == "signal" else None,
            schema=task.schema_ if task.type == "signal" else None,
            orchestration=task.orchestration if task.type == "durable" else "",
            orchestration_version=task.version if task.type == "durable" else None,
            output_schema=task.output_schema if isinstance(task, ActivityDo | HttpDo) else None,
        )


def _host(request: Json) -> str:
    return fixed_host(request.get("url")) if isinstance(request, dict) else ""


def _until(task: WaitDo) -> Template | None:
    return None if task.until is None else Template.compile(task.until)


def _condition(when: str | bool | None) -> Expression | None:
    if when is None or when is True:
        return None
    if when is False:
        return Expression.compile("false")
    single = Template.compile(when).single
    assert single is not None, "validation lets only single expressions through"
    return single
