"""Following an execution: its end decides the exit code, and nothing else touches it."""

from __future__ import annotations

import io
import json
from typing import Any

import cli_shapes as shapes
import pytest
from cli_fake_api import FakeApi, Weft, error
from rich.console import Console

from orchestrator.local import cli_watch
from orchestrator.local.cli_client import Client

STARTED = {"id": "e1", "workflow": "census", "version": 3, "status": "PENDING", "created": True}


def count_task(completed: int, status: str = "WAITING") -> dict[str, Any]:
    progress = {"count": 10, "queued": 2, "completed": completed, "failed": 0}
    return shapes.task("count", status, type="map", map=progress)


@pytest.fixture
def moving(api: FakeApi) -> FakeApi:
    """An execution seen four times: moving, moving, standing still, ended well."""
    done = shapes.execution(
        status="COMPLETED", output={"lines": 7}, progress={"total": 3, "completed": 3}
    )
    running = shapes.execution()
    api.on("GET", "/v1/executions/e1", running, running, running, done)
    api.on(
        "GET",
        "/v1/executions/e1/tasks",
        *[shapes.page(count_task(n)) for n in (0, 4, 4)],
        shapes.page(count_task(10, "COMPLETED")),
    )
    return api


def test_watch_prints_plain_lines_when_something_moved_then_the_outcome(
    moving: FakeApi, weft: Weft
) -> None:
    result = weft("watch", "e1")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "RUNNING 1/13: count WAITING 0/10 items, 2 in flight",
        "RUNNING 5/13: count WAITING 4/10 items, 2 in flight",
        "COMPLETED 13/13",
        "COMPLETED  e1  in 1.50 s",
        '  output: {"lines": 7}',
    ]


def test_watch_polls_with_wait(moving: FakeApi, weft: Weft) -> None:
    weft("watch", "e1")
    polls = [seen.query for seen in moving.requests if seen.path == "/v1/executions/e1"]
    assert polls == [{}, *[{"wait": "2000ms"}] * 3]


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED"])
def test_watch_ending_badly_exits_1_and_shows_the_error(
    api: FakeApi, weft: Weft, status: str
) -> None:
    cause = {"type": "OSError", "message": "no route"}
    ended = shapes.execution(status=status, error=shapes.failure(item=7, causes=[cause]))
    api.on("GET", "/v1/executions/e1", ended)
    api.on("GET", "/v1/executions/e1/tasks", shapes.page())
    result = weft("watch", "e1")
    assert result.exit_code == 1
    assert f"{status}  e1" in result.stdout
    assert "charge[7]: ConnectionError: refused" in result.stdout
    assert "caused by OSError: no route" in result.stdout
    as_json = weft("watch", "e1", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["status"] == status


def test_start_watch_ends_with_the_outcome_and_its_exit_code(api: FakeApi, weft: Weft) -> None:
    api.on("POST", "/v1/workflows/census/start", STARTED, status=202)
    api.on("GET", "/v1/executions/e1", shapes.execution(status="FAILED", error=shapes.failure()))
    api.on("GET", "/v1/executions/e1/tasks", shapes.page())
    result = weft("start", "census", "--watch")
    assert result.exit_code == 1
    assert result.stdout.startswith("started e1 (census version 3)\n")


def test_interrupt_leaves_the_execution_running_and_says_so(
    api: FakeApi, weft: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("GET", "/v1/executions/e1", shapes.execution())

    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "tasks", interrupted)
    result = weft("watch", "e1")
    assert result.exit_code == 130
    assert "e1 goes on" in result.stderr
    assert "weft watch e1" in result.stderr
    assert {seen.method for seen in api.requests} == {"GET"}


def test_server_that_goes_away_while_watching_exits_4_and_tells_how_to_go_on(
    api: FakeApi, weft: Weft
) -> None:
    busy = (503, error("UNAVAILABLE", "the store does not answer"))
    api.on("GET", "/v1/executions/e1", shapes.execution(), busy)
    api.on("GET", "/v1/executions/e1/tasks", shapes.page())
    result = weft("watch", "e1")
    assert result.exit_code == 4
    assert "the store does not answer" in result.stderr
    assert "weft watch e1" in result.stderr


def test_live_view_shows_bar_and_tasks_in_flight(
    moving: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()

    def terminal(*args: Any, **kwargs: Any) -> Console:
        return Console(file=screen, force_terminal=True, width=120, markup=False)

    monkeypatch.setattr(cli_watch, "console", terminal)
    with Client(moving.url) as client:
        assert cli_watch.watch(client, "e1") == 0
    shown = screen.getvalue()
    assert "5/13" in shown
    assert "13/13" in shown
    assert "4/10 items" in shown


def test_live_view_of_many_tasks_shows_few_and_counts_the_rest() -> None:
    tasks = [shapes.task(f"t{n}", "QUEUED", attempt=n) for n in range(15)]
    execution = shapes.execution(progress={"total": 9000, "queued": 9000})
    snapshot = cli_watch.Snapshot(execution, tasks)
    lines = [line.plain for line in cli_watch._flight_lines(snapshot)]
    assert len(lines) == cli_watch.SHOWN_TASKS + 2
    assert lines[2] == "  t2 QUEUED attempt 2"
    assert lines[-2:] == ["  … and 5 more", "  (only the first 15 tasks are shown)"]
