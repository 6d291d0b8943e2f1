"""Compiling: what a workflow runs with, from its tasks, its defaults and the platform."""

from itertools import product
from typing import Any

import pytest

from orchestrator.domain import defaults
from orchestrator.domain.compile import code_workflow, compile_workflow, load_workflow
from orchestrator.domain.durations import MAX_DURATION_MS
from orchestrator.domain.errors import InvalidError
from orchestrator.domain.expressions import Scope
from orchestrator.domain.support import unsupported
from orchestrator.domain.workflow import Jitter, OnFailure, RetryPolicy, RunWhen, TaskType

from definition_helpers import check, compiled, from_yaml, shown, tasks  # isort: skip
from test_definition_values import EVERYTHING  # isort: skip

FIELDS = {
    "maxAttempts": ("max_attempts", 7, 7, defaults.DEFAULT_MAX_ATTEMPTS),
    "initialInterval": (
        "initial_interval_ms",
        "2s",
        2_000,
        defaults.DEFAULT_INITIAL_INTERVAL_MS,
    ),
    "backoffCoefficient": (
        "backoff_coefficient",
        3,
        3.0,
        defaults.DEFAULT_BACKOFF_COEFFICIENT,
    ),
    "maxInterval": ("max_interval_ms", "40s", 40_000, defaults.DEFAULT_MAX_INTERVAL_MS),
    "jitter": ("jitter", "equal", Jitter.EQUAL, defaults.DEFAULT_JITTER),
}
MASKS = list(product([False, True], repeat=5))


def policy(task: dict[str, Any], **top: Any) -> RetryPolicy:
    step = {"type": "transform", "output": 1, **task}
    return compiled({"name": "w", "tasks": {"a": step}, **top}).tasks[0].retry


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("place", ["task", "defaults"])
def test_case_every_combination_of_optional_retry_fields_retries(
    mask: tuple[bool, ...], place: str
) -> None:
    """CASES: a left-out optional retry field disables retries silently. All 32 combinations, the
    fields written at the task or in the definition's defaults."""
    given = {name: FIELDS[name][1] for name, on in zip(FIELDS, mask, strict=True) if on}
    if place == "task":
        retry = policy({"retry": given})
    else:
        retry = policy({}, defaults={"retry": given})
    assert retry.max_attempts > 1
    assert retry.initial_interval_ms > 0
    for (attribute, _, wanted, default), on in zip(FIELDS.values(), mask, strict=True):
        assert getattr(retry, attribute) == (wanted if on else default)


@pytest.mark.parametrize("mask", MASKS)
def test_case_retry_fields_of_a_task_win_one_by_one_over_the_defaults(
    mask: tuple[bool, ...],
) -> None:
    base = {"maxAttempts": 9, "initialInterval": "9s", "backoffCoefficient": 9}
    base |= {"maxInterval": "50s", "jitter": "none"}
    own = {name: FIELDS[name][1] for name, on in zip(FIELDS, mask, strict=True) if on}
    retry = policy({"retry": own}, defaults={"retry": base})
    inherited = dict(zip(FIELDS, [9, 9_000, 9.0, 50_000, Jitter.NONE], strict=True))
    for (name, (attribute, _, wanted, _)), on in zip(FIELDS.items(), mask, strict=True):
        assert getattr(retry, attribute) == (wanted if on else inherited[name])


def test_null_counts_as_left_out() -> None:
    assert policy({"retry": {"maxAttempts": None, "jitter": None}}) == policy({})
    assert policy({"retry": None}, defaults={"retry": None}) == policy({}, defaults=None)


def test_the_default_maximum_never_cuts_a_longer_initial_interval() -> None:
    retry = policy({"retry": {"initialInterval": "1h"}})
    assert (retry.initial_interval_ms, retry.max_interval_ms) == (3_600_000, 3_600_000)


def test_failure_types_of_a_policy() -> None:
    assert policy({}).retryable is None
    assert policy({"retry": {"retryable": []}}).retryable == frozenset()
    retry = policy(
        {"retry": {"retryable": ["A"]}},
        defaults={"retry": {"retryable": ["B"], "nonRetryable": ["C"]}},
    )
    assert (retry.retryable, retry.non_retryable) == ({"A"}, {"C"})


def test_timeouts_fall_back_from_task_to_defaults_to_platform() -> None:
    step = {"type": "transform", "output": 1}
    raw = {"name": "w", "tasks": {"a": {**step, "timeout": "1s"}, "b": step}}
    assert [task.timeout_ms for task in compiled(raw).tasks] == [
        1_000,
        defaults.DEFAULT_TIMEOUT_MS,
    ]
    raw["defaults"] = {"timeout": "2s"}
    assert [task.timeout_ms for task in compiled(raw).tasks] == [1_000, 2_000]


def test_a_default_for_attempts_does_not_end_the_wait_for_a_person() -> None:
    raw = {**tasks("{a: {type: signal, signal: x}}"), "defaults": {"timeout": "1s"}}
    assert compiled(raw).tasks[0].timeout_ms > 365 * 86_400_000


def test_what_a_map_runs_inherits_from_the_map() -> None:
    raw = tasks(
        """
        a:
          type: map
          items: "${input}"
          timeout: 7s
          retry: {maxAttempts: 8, jitter: none}
          do: {type: activity, activity: x, input: "${item}", retry: {maxAttempts: 2}}
        """
    )
    (task,) = compiled(raw).tasks
    assert task.type is TaskType.MAP
    assert task.items is not None
    assert task.items.evaluate(Scope(input=[1, 2])) == [1, 2]
    assert task.do is not None
    assert (task.do.id, task.do.type, task.do.activity) == ("a", TaskType.ACTIVITY, "x")
    assert (task.do.timeout_ms, task.do.retry.max_attempts) == (7_000, 2)
    assert (task.do.retry.jitter, task.do.needs, task.max_concurrency) == (Jitter.NONE, (), 0)
    assert task.do.template is not None
    assert task.do.template.evaluate(Scope(item="i")) == "i"


@pytest.mark.parametrize(
    ("written", "items", "allowed"),
    [
        ("3", 10, 3),
        ("0", 10, 0),
        ("'10%'", 10, 1),
        ("'10%'", 19, 1),
        ("'10%'", 9, 0),
        ("'2.5%'", 10_000, 250),
        ("'0.05%'", 10_000, 5),
        ("'100%'", 7, 7),
        ("'100.00%'", 7, 7),
        ("null", 7, 0),
    ],
)
def test_tolerated_failures_are_a_count_or_a_share(written: str, items: int, allowed: int) -> None:
    do = "do: {type: transform, output: 1}"
    raw = tasks(f"{{a: {{type: map, items: [], tolerateFailures: {written}, {do}}}}}")
    (task,) = compiled(raw).tasks
    assert task.tolerate.allowed(items) == allowed


def test_a_child_has_one_attempt_and_no_time_limit_unless_the_task_says_so() -> None:
    raw = tasks(
        """
        a: {type: workflow, workflow: x, input: "${input}"}
        b: {type: workflow, workflow: x, version: 3, timeout: 2d, retry: {initialInterval: 5s}}
        m: {type: map, items: [], do: {type: workflow, workflow: x}}
        n:
          type: map
          items: []
          timeout: 9s
          retry: {maxAttempts: 4}
          do: {type: workflow, workflow: x}
        """
    )
    raw["defaults"] = {"timeout": "5s", "retry": {"maxAttempts": 7}}
    a, b, m, n = compiled(raw).tasks
    assert m.do is not None
    assert n.do is not None
    shown = [(one.workflow, one.workflow_version) for one in (a, b, m.do, n.do)]
    assert shown == [("x", None), ("x", 3), ("x", None), ("x", None)]
    assert [one.retry.max_attempts for one in (a, b, m.do, n.do)] == [1, 7, 1, 4]
    never = MAX_DURATION_MS
    assert [one.timeout_ms for one in (a, b, m.do, n.do)] == [never, 172_800_000, never, 9_000]


@pytest.mark.parametrize(
    "place",
    [
        "{type: workflow, workflow: %s}",
        "{type: map, items: [], do: {type: workflow, workflow: %s}}",
    ],
)
def test_a_workflow_cannot_be_its_own_child(place: str) -> None:
    """Nor inside a map; another version of it must be named."""
    raw = tasks("{a: %s}" % (place % "w"))
    with pytest.raises(InvalidError) as caught:
        check(raw)
    (detail,) = caught.value.details
    where = "$.tasks.a.do" if "map" in place else "$.tasks.a"
    assert (detail.code, detail.field) == ("OWN_CHILD", f"{where}.workflow")
    assert "name the version" in detail.hint
    check(tasks("{a: %s}" % (place % "w, version: 1")))


def test_positions_and_edges() -> None:
    raw = tasks(
        """
        c: {type: transform, output: 1, needs: [a, b], runWhen: allDone, continueOnError: true}
        a: {type: transform, output: 1}
        b: {type: transform, output: 1, needs: [a], when: "${input.x}"}
        """
    )
    workflow = compiled(raw)
    assert [task.id for task in workflow.tasks] == ["c", "a", "b"]
    assert workflow.index == {"c": 0, "a": 1, "b": 2}
    assert [task.needs for task in workflow.tasks] == [(1, 2), (), (1,)]
    assert workflow.successors == ((), (0, 2), (0,))
    assert workflow.tasks[0].run_when is RunWhen.ALL_DONE
    assert workflow.tasks[0].continue_on_error
    assert workflow.tasks[2].when is not None
    assert workflow.tasks[2].when.evaluate(Scope(input={"x": True})) is True


def test_what_the_worker_resolves() -> None:
    raw = tasks(
        """
        none: {type: activity, activity: x}
        http: {type: http, request: {url: "http://h/${input}", successCodes: [200, "300-304"]}}
        wait: {type: wait, duration: PT1M}
        until: {type: wait, until: "${input}"}
        never: {type: transform, output: null, when: false}
        always: {type: transform, output: null, when: true}
        signal: {type: signal, signal: x, timeout: 2s, schema: {type: object}}
        """
    )
    none, http, wait, until, never, always, signal = compiled(raw).tasks
    assert none.template is not None
    assert none.template.evaluate(Scope()) is None
    assert http.template is not None
    assert http.template.evaluate(Scope(input="x")) == {
        "url": "http://h/x",
        "successCodes": [200, "300-304"],
    }, "as written: the model's defaults are not filled in"
    assert (wait.duration_ms, wait.until, wait.template) == (60_000, None, None)
    assert until.duration_ms is None
    assert until.until is not None
    assert until.until.evaluate(Scope(input="t")) == "t"
    assert never.when is not None
    assert never.when.evaluate(Scope()) is False
    assert always.when is None
    assert (signal.signal, signal.wait_ms, signal.schema) == ("x", 2_000, {"type": "object"})
    assert (wait.signal, wait.orchestration) == ("", "")


def test_the_workflow_itself() -> None:
    raw = {
        **tasks("{a: {type: transform, output: 1}}"),
        "timeout": "1h",
        "onFailure": "continue",
        "input": {"type": "object"},
        "output": "${tasks.a.output}",
    }
    workflow = compiled(raw)
    assert (workflow.name, workflow.timeout_ms) == ("w", 3_600_000)
    assert workflow.on_failure is OnFailure.CONTINUE
    assert workflow.input_schema == {"type": "object"}
    assert workflow.output is not None
    assert workflow.output.evaluate(Scope(tasks={"a": {"output": 5}})) == 5
    plain = compiled(tasks("{a: {type: transform, output: 1}}"))
    assert (plain.timeout_ms, plain.output, plain.input_schema) == (None, None, None)
    assert plain.on_failure is OnFailure.FAIL_FAST


def test_a_stored_definition_loads_as_it_was_compiled() -> None:
    validated = check(from_yaml(EVERYTHING))
    assert shown(load_workflow(validated.raw)) == shown(compile_workflow(validated))
    listed = tasks("[{id: a, type: transform, output: 1}]")
    assert shown(load_workflow(listed)) == shown(compiled(listed))


@pytest.mark.parametrize("raw", [None, [], {}, {"name": "w", "tasks": {"a": {}}}])
def test_loading_what_was_never_published_is_a_clear_error(raw: Any) -> None:
    with pytest.raises(InvalidError):
        load_workflow(raw)


def test_a_signal_inside_a_map_is_awaited_by_name_and_for_the_maps_timeout_by_default() -> None:
    raw = tasks(
        """
        s: {type: signal, signal: x}
        a: {type: map, items: [], do: {type: signal, signal: x}, timeout: 5m}
        b: {type: map, items: [], do: {type: signal, signal: y, timeout: 7d}, timeout: 5m}
        """
    )
    flow = compile_workflow(check(raw))
    assert dict(flow.signals) == {"x": (0, 1), "y": (2,)}
    limits = [task.listener and task.listener.wait_ms for task in flow.tasks]
    assert limits == [None, 300_000, 7 * 24 * 3_600_000]


def test_what_cannot_run_yet_is_refused_at_publish() -> None:
    assert unsupported(check(from_yaml(EVERYTHING))) == []
    raw = tasks("{a: {type: transform, output: 1, compensate: {type: durable, orchestration: x}}}")
    (found,) = unsupported(check(raw))
    assert (found.code, found.field) == ("NOT_YET_SUPPORTED", "$.tasks.a.compensate.type")


def test_an_orchestration_is_compiled_and_a_code_workflow_is_one_of_it() -> None:
    raw = tasks("{d: {type: durable, orchestration: x, version: 3, signals: [a, b], input: 1}}")
    flow = compiled(raw)
    (task,) = flow.tasks
    assert (task.orchestration, task.orchestration_version) == ("x", 3)
    assert task.retry.max_attempts == 1, "it tries again within itself"
    assert dict(flow.hears) == {"a": 0, "b": 0}
    assert (flow.takes("a"), flow.takes("c"), flow.hearer("c")) == (True, False, None)
    code = code_workflow("x", 2, {"type": "object"})
    assert (code.takes("anything"), code.hearer("anything")) == (True, 0)
    assert (code.tasks[0].id, code.tasks[0].orchestration_version) == ("main", 2)
    assert code.input_schema == {"type": "object"}


def test_deadlines_and_heartbeats_are_compiled() -> None:
    raw = tasks(
        """
        a: {type: activity, activity: orders.tidy, timeout: 1m, heartbeatTimeout: 10s, deadline: 1h}
        m:
          type: map
          items: []
          deadline: 2h
          do: {type: activity, activity: orders.tidy, heartbeatTimeout: 5s}
        w: {type: wait, duration: 1s, deadline: 3h}
        t: {type: transform, output: 1}
        """
    )
    a, m, w, t = compiled(raw).tasks
    assert (a.heartbeat_timeout_ms, a.deadline_ms) == (10_000, 3_600_000)
    assert m.do is not None
    assert (m.deadline_ms, m.do.deadline_ms, m.do.heartbeat_timeout_ms) == (7_200_000, None, 5_000)
    assert (w.deadline_ms, t.deadline_ms, t.heartbeat_timeout_ms) == (10_800_000, None, None)
    assert unsupported(check(raw)) == []
