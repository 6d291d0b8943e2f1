"""What the command line tells besides what was asked: origins, next steps, who decided what."""

from __future__ import annotations

import io
from typing import Any

import cli_shapes as shapes
import pytest
from cli_fake_api import FakeApi, Weft

from orchestrator.local.cli_faults import console
from orchestrator.local.cli_render import emit
from orchestrator.local.cli_schedules_render import next_lines

LETTER: dict[str, Any] = {
    "id": "e1~pay~2", "kind": "task", "status": "OPEN", "reason": "attemptsExhausted",
    "execution": "e1", "trigger": None, "workflow": "orders", "version": 3, "task": "pay",
    "item": None, "createdAt": "2026-11-30T12:00:00.000Z", "error": None, "attempts": [],
}  # fmt: skip
RESOLVED = {"action": "retry", "by": "eve", "at": "2026-11-30T11:00:00.000Z", "reason": ""}
EVENT = {"trigger": "big-orders", "id": "7", "source": "/shop", "type": "order.placed"}


def show(api: FakeApi, weft: Weft, **more: Any) -> list[str]:
    """The words of each line of `weft show`, joined by single spaces."""
    api.on("GET", "/v1/executions/e1", shapes.execution(**more))
    api.on("GET", "/v1/executions/e1/tasks", shapes.page(shapes.task("a")))
    return [" ".join(line.split()) for line in weft("show", "e1").stdout.splitlines()]


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({"started_by": "eve"}, ["started by eve"]),
        (
            {"started_by": "trigger:big-orders", "event": EVENT},
            ["trigger big-orders", "event 7 of /shop, type order.placed"],
        ),
        (
            {"schedule": "nightly", "scheduled_for": shapes.AT},
            ["schedule nightly, for 2026-11-30 12:00:00 UTC"],
        ),
        ({"schedule": "nightly"}, ["schedule nightly, by hand"]),
        ({"replay_of": "e0", "replay_from": "pack"}, ["replay of e0, from pack"]),
        (
            {"parent": "p1", "parent_task": "ship", "parent_item": 3},
            ["child of p1, task ship[3]"],
        ),
    ],
)
def test_show_says_what_started_an_execution(
    api: FakeApi, weft: Weft, more: dict[str, Any], lines: list[str]
) -> None:
    shown = show(api, weft, **more)
    assert [line for line in lines if line not in shown] == []


def test_what_failed_for_good_names_the_command_that_lists_it(api: FakeApi, weft: Weft) -> None:
    step = "weft deadletters list --execution e1"
    dead = {"total": 1, "dead_lettered": 1}
    assert f"see {step}" in show(api, weft, status="FAILED", progress=dead)
    watched = weft("watch", "e1")
    assert watched.exit_code == 1
    assert step in watched.stdout
    assert step not in "\n".join(show(api, weft, status="COMPLETED"))
    assert step not in weft("watch", "e1").stdout


def test_a_cause_that_repeats_its_cause_is_shown_once(api: FakeApi, weft: Weft) -> None:
    cause = {"type": "ConnectError", "message": "refused"}
    lines = show(api, weft, status="FAILED", error=shapes.failure(causes=[cause, cause]))
    assert lines.count("caused by ConnectError: refused") == 1


def test_a_decision_says_by_whom_and_when(api: FakeApi, weft: Weft) -> None:
    """Asked again, the first decision is the answer: it must not look like a new one."""
    done = {**LETTER, "status": "RETRIED", "resolved": RESOLVED}
    api.on("POST", "/v1/deadletters/e1~pay~2/retry", done)
    said = weft("deadletters", "retry", "e1~pay~2").stdout
    assert said == "e1~pay~2  RETRIED by eve at 2026-11-30 11:00:00 UTC\n"


def test_letters_of_maps_and_notifications_say_what_they_are(api: FakeApi, weft: Weft) -> None:
    api.on("GET", "/v1/deadletters/e1~pay~2", {**LETTER, "kind": "item", "tolerated": True})
    assert "OPEN (tolerated by its map)" in weft("deadletters", "show", "e1~pay~2").stdout
    letter = {**LETTER, "kind": "notification", "task": None}
    api.on("GET", "/v1/deadletters/e1~pay~2", letter)
    assert "notification" in weft("deadletters", "show", "e1~pay~2").stdout
    api.on("GET", "/v1/deadletters", shapes.page(letter))
    assert "(notification)" in weft("deadletters", "list").stdout


def test_a_history_leaves_out_what_is_empty(api: FakeApi, weft: Weft) -> None:
    event = shapes.event(1, "tasksReopened", by="eve", tasks=["a"], items=[], reason="")
    api.on("GET", "/v1/executions/e1/history", shapes.page(event))
    assert weft("history", "e1").stdout.splitlines()[1].endswith("by=eve tasks=a")


def test_local_fire_times_have_no_fractions() -> None:
    fire = {"at": "2026-11-30T12:00:00.349Z", "local": "2026-11-30T13:00:00.349000+01:00"}
    out = console(stream := io.StringIO())
    emit(out, next_lines([fire]))
    assert "2026-11-30T13:00:00+01:00" in stream.getvalue()
