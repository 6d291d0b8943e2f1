"""What can only be seen in the whole: edges, cycles, references; and every problem at once."""

import pytest

from orchestrator.domain.errors import InvalidError
from orchestrator.domain.nearest import NOT_LOADED, Nearest

from definition_helpers import check, found, from_yaml, problems, tasks  # isort: skip

STEP = "type: transform, output: 1"


def test_case_cycles_and_unknown_needs_are_all_reported_at_once() -> None:
    """CASES, Definition 1: the run would start and wait for ever."""
    raw = tasks(
        f"""
        a: {{{STEP}, needs: [c]}}
        b: {{{STEP}, needs: [a]}}
        c: {{{STEP}, needs: [b]}}
        d: {{{STEP}, needs: [d]}}
        e: {{{STEP}, needs: [chek]}}
        check: {{{STEP}}}
        """
    )
    with pytest.raises(InvalidError, match="3 problems") as caught:
        check(raw)
    cycle, self_need, unknown = sorted(caught.value.details, key=lambda item: item.code)
    assert (cycle.field, cycle.code) == ("$.tasks.a.needs", "CYCLE")
    assert cycle.message.endswith("a -> c -> b -> a")
    assert (self_need.field, self_need.code) == ("$.tasks.d.needs[0]", "SELF_NEED")
    assert (unknown.field, unknown.code) == ("$.tasks.e.needs[0]", "UNKNOWN_NEED")
    assert unknown.hint == 'did you mean "check"?'


@pytest.mark.parametrize(
    "task_id", ["a/b", "a\\b", "a?b", "a#b", "a b", "a\nb", "a\0", "", "1a", "é"]
)
def test_case_task_ids_with_slashes_or_control_characters_are_refused(task_id: str) -> None:
    """CASES, Store: ids with / \\ ? # are refused at write time, deep in a run."""
    raw = {"name": "w", "tasks": {task_id: {"type": "transform", "output": 1}}}
    (problem,) = problems(raw)
    assert problem.code == "BAD_TASK_ID"
    assert problem.field.startswith("$.tasks[")


def test_task_ids_may_have_63_characters_and_no_more() -> None:
    assert problems({"name": "w", "tasks": {"a" * 63: {"type": "transform", "output": 1}}}) == []
    assert problems({"name": "w", "tasks": {"a" * 64: {"type": "transform", "output": 1}}})


def test_what_is_behind_a_cycle_never_starts() -> None:
    raw = tasks(
        f"""
        free: {{{STEP}}}
        x: {{{STEP}, needs: [y]}}
        y: {{{STEP}, needs: [x, free]}}
        behind: {{{STEP}, needs: [x, free]}}
        far: {{{STEP}, needs: [behind]}}
        self: {{{STEP}, needs: [self]}}
        after: {{{STEP}, needs: [self]}}
        """
    )
    assert found(raw) == {
        ("$.tasks.x.needs", "CYCLE"),
        ("$.tasks.behind", "UNREACHABLE"),
        ("$.tasks.far", "UNREACHABLE"),
        ("$.tasks.self.needs[0]", "SELF_NEED"),
        ("$.tasks.after", "UNREACHABLE"),
    }


def test_duplicate_needs() -> None:
    assert found(tasks(f"{{a: {{{STEP}}}, b: {{{STEP}, needs: [a, a]}}}}")) == {
        ("$.tasks.b.needs[1]", "DUPLICATE_NEED")
    }


def test_asking_for_an_outcome_without_needs_never_runs() -> None:
    raw = tasks(f"{{a: {{{STEP}, runWhen: anyFailed}}, b: {{{STEP}, runWhen: allDone}}}}")
    assert found(raw) == {("$.tasks.a.runWhen", "UNREACHABLE")}


def test_unknown_activities_get_the_nearest_registered_name() -> None:
    raw = tasks(
        """
        a: {type: activity, activity: orders.valdate}
        b: {type: map, items: [], do: {type: activity, activity: Orders.Pack}}
        c: {type: activity, activity: orders.tidy, compensate: {type: activity, activity: zzz}}
        """
    )
    assert [(item.field, item.hint) for item in problems(raw)] == [
        ("$.tasks.a.activity", 'did you mean "orders.validate"?'),
        ("$.tasks.b.do.activity", 'did you mean "orders.pack"?'),
        ("$.tasks.c.compensate.activity", NOT_LOADED.format("activities")),
    ]
    assert problems(raw, activities=None) == []


DIAMOND = f"""
a: {{{STEP}}}
b: {{{STEP}, needs: [a]}}
c: {{{STEP}, needs: [b]}}
side: {{{STEP}}}
"""


@pytest.mark.parametrize(
    ("task", "path", "code"),
    [
        ("{type: transform, output: '${tasks.c.output + tasks.a.output}', needs: [c]}", "", ""),
        (
            "{type: transform, output: '${tasks.side.output}', needs: [c]}",
            ".output",
            "NOT_UPSTREAM",
        ),
        ("{type: transform, output: '${tasks.x.output}', needs: [c]}", ".output", "NOT_UPSTREAM"),
        ("{type: transform, output: '${tasks.sied.output}'}", ".output", "UNKNOWN_TASK"),
        (
            "{type: transform, output: {k: ['${tasks[input.t].output}']}}",
            ".output.k[0]",
            "DYNAMIC_TASK",
        ),
        ("{type: transform, output: {k: [1, '${1 +}']}}", ".output.k[1]", "BAD_EXPRESSION"),
        ("{type: transform, output: '${nput}'}", ".output", "UNKNOWN_NAME"),
        ("{type: transform, output: '${item}'}", ".output", "MISPLACED_NAME"),
        ("{type: transform, output: '${secrets.K}'}", ".output", "MISPLACED_NAME"),
        ("{type: activity, activity: orders.pack, input: '${secrets.K}'}", "", ""),
        ("{type: activity, activity: orders.pack, input: '${index}'}", ".input", "MISPLACED_NAME"),
        (
            "{type: activity, activity: orders.pack, when: '${secrets.K}'}",
            ".when",
            "MISPLACED_NAME",
        ),
        ("{type: http, request: {url: 'http://h/${secrets.K}'}}", "", ""),
        ("{type: http, request: {url: 'http://h/${secret.K}'}}", ".request.url", "UNKNOWN_NAME"),
        ("{type: wait, until: '${secrets.K}'}", ".until", "MISPLACED_NAME"),
        ("{type: wait, until: '${tasks.a.output}', needs: [a]}", "", ""),
        (
            "{type: map, items: '${secrets.K}', do: {type: transform, output: 1}}",
            ".items",
            "MISPLACED_NAME",
        ),
        (
            "{type: map, items: '${item}', do: {type: transform, output: 1}}",
            ".items",
            "MISPLACED_NAME",
        ),
        ("{type: map, items: [], do: {type: transform, output: '${[item, index]}'}}", "", ""),
        (
            "{type: map, items: [], do: {type: transform, output: '${secrets.K}'}}",
            ".do.output",
            "MISPLACED_NAME",
        ),
        (
            "{type: map, items: [], do: {type: http, request: {url: 'http://${secrets.K}'}}}",
            "",
            "",
        ),
        (
            "{type: map, items: [], do: {type: transform, output: '${tasks.side.output}'}}",
            ".do.output",
            "NOT_UPSTREAM",
        ),
        (
            "{type: wait, duration: 1s, compensate: {type: wait, until: '${tasks.x.output}'}}",
            "",
            "",
        ),
        ("{type: publish, event: {type: '${secrets.K}'}}", ".event.type", "MISPLACED_NAME"),
        ("{type: workflow, workflow: other, input: '${secrets.K}'}", ".input", "MISPLACED_NAME"),
    ],
)
def test_what_an_expression_may_name(task: str, path: str, code: str) -> None:
    raw = tasks(DIAMOND)
    raw["tasks"]["x"] = from_yaml(task)
    assert found(raw) == ({(f"$.tasks.x{path}", code)} if code else set())


def test_hints_of_expressions() -> None:
    raw = tasks(DIAMOND)
    raw["tasks"]["x"] = {"type": "transform", "output": "${[inputs, tasks.sid.output]}"}
    raw["tasks"]["y"] = {"type": "transform", "output": "${tasks.side.output}"}
    hints = {(item.field, item.code): item.hint for item in problems(raw)}
    assert hints == {
        ("$.tasks.x.output", "UNKNOWN_NAME"): 'did you mean "input"?',
        ("$.tasks.x.output", "UNKNOWN_TASK"): 'did you mean "side"?',
        ("$.tasks.y.output", "NOT_UPSTREAM"): 'add "side" to the needs of "y"',
    }


def test_the_output_of_the_workflow_may_read_every_task() -> None:
    raw = {**tasks(DIAMOND), "output": {"c": "${tasks.c.output}", "s": "${tasks.side.status}"}}
    assert problems(raw) == []
    raw["output"] = ["${secrets.K}", "${tasks.nope.output}", "${item}"]
    assert found(raw) == {
        ("$.output[0]", "MISPLACED_NAME"),
        ("$.output[1]", "UNKNOWN_TASK"),
        ("$.output[2]", "MISPLACED_NAME"),
    }


def test_one_fault_does_not_hide_another() -> None:
    raw = from_yaml(
        f"""
        name: Wrong
        nonsense: 1
        input: {{type: objekt}}
        timeout: soon
        tasks:
          a: {{{STEP}, needs: [b], tiemout: 1s}}
          b: {{{STEP}, needs: [a, zzz], when: "${{1 +}}"}}
          c: {{type: nothing, when: "${{oops}}"}}
          d: {{{STEP}, retry: {{maxAttempts: x}}}}
        output: "${{tasks.none.output}}"
        """
    )
    assert found(raw) == {
        ("$.name", "BAD_NAME"),
        ("$.nonsense", "UNKNOWN_FIELD"),
        ("$.input.type", "BAD_SCHEMA"),
        ("$.timeout", "BAD_DURATION"),
        ("$.tasks.a.tiemout", "UNKNOWN_FIELD"),
        ("$.tasks.a.needs", "CYCLE"),
        ("$.tasks.b.needs[1]", "UNKNOWN_NEED"),
        ("$.tasks.b.when", "BAD_EXPRESSION"),
        ("$.tasks.c.type", "UNKNOWN_TYPE"),
        ("$.tasks.c.when", "UNKNOWN_NAME"),
        ("$.tasks.d.retry.maxAttempts", "WRONG_TYPE"),
        ("$.output", "UNKNOWN_TASK"),
    }


def test_long_cycles_are_cut_in_the_middle() -> None:
    count = 10_000
    raw = {
        "name": "ring",
        "tasks": {
            f"t{i}": {"type": "transform", "output": 1, "needs": [f"t{(i + 1) % count}"]}
            for i in range(count)
        },
    }
    (problem,) = problems(raw)
    assert problem.code == "CYCLE"
    assert "t0 -> t1 ->" in problem.message
    assert "(9,980 more)" in problem.message
    assert problem.message.endswith("t9999 -> t0")


def test_hints_stop_when_they_would_cost_too_much() -> None:
    nearest = Nearest(budget=5)
    assert nearest.hint("tasc", ["task", "other"]) == 'did you mean "task"?'
    assert nearest.hint("tasc", ["task", "other"]) == 'did you mean "task"?'
    assert nearest.hint("tasc", ["task", "other"]) == ""


def test_more_than_10_000_tasks_are_refused() -> None:
    def raw(count: int) -> dict[str, object]:
        return {
            "name": "w",
            "tasks": {f"t{i}": {"type": "transform", "output": 1} for i in range(count)},
        }

    assert found(raw(10_001)) == {("$.tasks", "TOO_MANY_TASKS")}
    assert found({**raw(10_001), "nonsense": 1}) == {
        ("$.tasks", "TOO_MANY_TASKS"),
        ("$.nonsense", "UNKNOWN_FIELD"),
    }
    assert problems(raw(10_000)) == []


def test_more_than_60_maps_are_refused() -> None:
    """A commit that touches all of them would not fit into a batch: 120 of them were published
    once, and stayed PENDING for ever."""

    def raw(count: int) -> dict[str, object]:
        one = {"type": "map", "items": "${[1, 2]}", "do": {"type": "transform", "output": 1}}
        return {"name": "w", "tasks": {f"m{i}": one for i in range(count)}}

    assert found(raw(61)) == {("$.tasks", "TOO_MANY_MAPS")}
    assert problems(raw(60)) == []
