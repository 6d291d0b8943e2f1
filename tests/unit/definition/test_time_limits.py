"""Where `deadline` and `heartbeatTimeout` may stand, and what says so."""

from __future__ import annotations

import pytest

from definition_helpers import problems, tasks  # isort: skip

ACTIVITY = "type: activity, activity: orders.tidy"


def test_a_deadline_inside_a_map_is_refused_with_the_place_where_it_belongs() -> None:
    raw = tasks(f"m: {{type: map, items: [1], do: {{{ACTIVITY}, deadline: 1m}}}}")
    (problem,) = problems(raw)
    assert (problem.field, problem.code) == ("$.tasks.m.do.deadline", "UNKNOWN_FIELD")
    assert "put it on the map" in problem.hint


def test_a_deadline_of_a_compensation_is_refused() -> None:
    raw = tasks(f"a: {{{ACTIVITY}, compensate: {{{ACTIVITY}, deadline: 1m}}}}")
    (problem,) = problems(raw)
    assert (problem.field, problem.code) == ("$.tasks.a.compensate.deadline", "UNKNOWN_FIELD")
    assert "`timeout`" in problem.hint


@pytest.mark.parametrize(
    ("task", "field", "hint"),
    [
        ("type: transform, output: 1, heartbeatTimeout: 1s", "", "only activities"),
        ("type: wait, duration: 1s, heartbeatTimeout: 1s", "", "only activities"),
        ("type: signal, signal: s, heartbeatTimeout: 1s", "", "only activities"),
        (f"type: map, items: [], heartbeatTimeout: 1s, do: {{{ACTIVITY}}}", "", "`do`"),
        (
            "type: map, items: [], do: {type: transform, output: 1, heartbeatTimeout: 1s}",
            "do.",
            "only activities",
        ),
    ],
)
def test_heartbeats_are_for_activities_only(task: str, field: str, hint: str) -> None:
    (problem,) = problems(tasks(f"a: {{{task}}}"))
    assert problem.field == f"$.tasks.a.{field}heartbeatTimeout"
    assert problem.code == "UNKNOWN_FIELD"
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("task", "defaults", "path"),
    [
        (f"{ACTIVITY}, timeout: 10s, heartbeatTimeout: 10s", "", "a"),
        (f"{ACTIVITY}, heartbeatTimeout: 5m", "", "a"),
        (f"{ACTIVITY}, heartbeatTimeout: 5s", "5s", "a"),
        (f"type: map, items: [], do: {{{ACTIVITY}, heartbeatTimeout: 6m}}", "", "a.do"),
        (
            f"type: map, items: [], timeout: 3s, do: {{{ACTIVITY}, heartbeatTimeout: 4s}}",
            "10m",
            "a.do",
        ),
    ],
)
def test_a_heartbeat_timeout_not_shorter_than_the_attempt_is_refused(
    task: str, defaults: str, path: str
) -> None:
    raw = tasks(f"a: {{{task}}}")
    if defaults:
        raw["defaults"] = {"timeout": defaults}
    (problem,) = problems(raw)
    assert (problem.field, problem.code) == (f"$.tasks.{path}.heartbeatTimeout", "BAD_HEARTBEAT")
    assert "not shorter than the timeout" in problem.message


def test_a_heartbeat_timeout_below_the_attempt_is_fine() -> None:
    raw = tasks(
        f"{{a: {{{ACTIVITY}, heartbeatTimeout: 299s}},"
        f" b: {{{ACTIVITY}, timeout: 10m, heartbeatTimeout: 6m, deadline: 1s}},"
        f" m: {{type: map, items: [], timeout: 10m, do: {{{ACTIVITY}, heartbeatTimeout: 6m}}}}}}"
    )
    assert problems(raw) == []
