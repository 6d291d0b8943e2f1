"""Each command against a scripted server: what it sends, shows, and returns."""

from __future__ import annotations

import json
from pathlib import Path

import cli_shapes as shapes
import pytest
from cli_fake_api import FakeApi, Weft, error

STARTED = {
    "id": "e1", "workflow": "census", "version": 3, "status": "PENDING", "created": True,
    "links": {},
}  # fmt: skip
PUBLISHED = {"name": "census", "version": 3, "created": True, "dryRun": False}


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    path = tmp_path / "workflow.yaml"
    path.write_bytes("# grüße\nname: census\ntasks: {}\n".encode())
    return path


# --- publish --------------------------------------------------------------------------------------


def test_publish_sends_the_file_as_it_is(api: FakeApi, weft: Weft, definition: Path) -> None:
    api.on("POST", "/v1/workflows", PUBLISHED, status=201)
    result = weft("publish", str(definition))
    assert (result.exit_code, result.stdout) == (0, "published census version 3\n")
    sent = api.last("POST")
    assert sent.body == definition.read_bytes()
    assert sent.headers["Content-Type"] == "application/yaml"
    assert sent.query == {}


def test_publish_of_what_is_there_says_unchanged(
    api: FakeApi, weft: Weft, definition: Path
) -> None:
    api.on("POST", "/v1/workflows", {**PUBLISHED, "created": False})
    assert weft("publish", str(definition)).stdout == "unchanged: census version 3\n"


def test_publish_dry_run_from_stdin_guesses_the_language(api: FakeApi, weft: Weft) -> None:
    api.on("POST", "/v1/workflows", {**PUBLISHED, "created": False, "dryRun": True})
    result = weft("publish", "-", "--dry-run", input=b'\n {"name": "census"}')
    assert result.exit_code == 0
    assert "would be published as census version 3" in result.stdout
    assert api.last("POST").query == {"dryRun": "true"}
    assert api.last("POST").headers["Content-Type"] == "application/json"


def test_publish_shows_every_finding_with_path_code_and_hint(
    api: FakeApi, weft: Weft, definition: Path
) -> None:
    details = [
        {"field": "$.tasks.a.needs[0]", "message": "unknown task 'chek'", "code": "UNKNOWN_NEED",
         "hint": "did you mean 'check'?"},
        {"field": "$.tasks", "message": "cycle a -> b -> a", "code": "CYCLE", "hint": ""},
    ]  # fmt: skip
    api.on("POST", "/v1/workflows", error("INVALID", "2 problems", details), status=422)
    result = weft("publish", str(definition))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "error INVALID: 2 problems",
        "  $.tasks.a.needs[0]: unknown task 'chek'  [UNKNOWN_NEED]",
        "    hint: did you mean 'check'?",
        "  $.tasks: cycle a -> b -> a  [CYCLE]",
        "  trace id: t-1",
    ]


def test_publish_of_a_missing_file_is_a_usage_error(weft: Weft, tmp_path: Path) -> None:
    result = weft("publish", str(tmp_path / "nothing.yaml"))
    assert result.exit_code == 2
    assert "No such file" in result.stderr


# --- start ----------------------------------------------------------------------------------------


def test_start_sends_input_version_tags_and_key(api: FakeApi, weft: Weft) -> None:
    api.on("POST", "/v1/workflows/census/start", STARTED, status=202)
    result = weft(
        "start", "census", "--input", '{"id": 9007199254740993, "x": 1.0}', "--version", "3",
        "--tag", "team=a", "--tag", "note=x=y", "--key", "order#7/8 é", "--priority", "high",
    )  # fmt: skip
    assert (result.exit_code, result.stdout) == (0, "started e1 (census version 3)\n")
    sent = api.last("POST")
    assert sent.json() == {
        "input": {"id": 9007199254740993, "x": 1.0},
        "version": 3,
        "tags": {"team": "a", "note": "x=y"},
        "priority": "high",
    }
    assert isinstance(sent.json()["input"]["x"], float)
    assert sent.headers["Idempotency-Key"] == "order#7/8 é"


def test_start_without_options_sends_an_empty_request(api: FakeApi, weft: Weft) -> None:
    api.on("POST", "/v1/workflows/census/start", {**STARTED, "created": False})
    result = weft("start", "census")
    assert result.stdout == "already started e1 (census version 3)\n"
    assert api.last("POST").json() == {}
    assert "Idempotency-Key" not in api.last("POST").headers


def test_start_reads_input_from_file_and_stdin(api: FakeApi, weft: Weft, tmp_path: Path) -> None:
    api.on("POST", "/v1/workflows/census/start", STARTED)
    path = tmp_path / "input.json"
    path.write_text('{"from": "file"}')
    weft("start", "census", "--input", f"@{path}")
    assert api.last("POST").json() == {"input": {"from": "file"}}
    weft("start", "census", "--input", "-", input='["stdin"]')
    assert api.last("POST").json() == {"input": ["stdin"]}
    weft("start", "census", "--input", "null")
    assert api.last("POST").json() == {"input": None}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--input", "{bad"], "line 1"),
        (["--input", '{"a": NaN}'], "$.a"),
        (["--input", '{"a": 1, "a": 2}'], "occurs twice"),
        (["--input", '{"a": 99999999999999999999}'], "$.a"),
        (["--input", "@/no/such/file"], "No such file"),
        (["--tag", "novalue"], "KEY=VALUE"),
        (["--tag", "a=1", "--tag", "a=2"], "given twice"),
        (["--key", "a\nX-Evil: 1"], "control characters"),
        (["--key", ""], "must not be empty"),
        (["--version", "0"], "--version"),
        (["--url", "ftp://x"], "http(s) URL"),
        (["--url", "http://[::1"], "--url"),
    ],
)
def test_start_mistakes_send_nothing_and_exit_2(
    api: FakeApi, weft: Weft, arguments: list[str], told: str
) -> None:
    result = weft("start", "census", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert api.requests == []


def test_start_of_an_unknown_workflow_exits_3(weft: Weft) -> None:
    result = weft("start", "nope")
    assert result.exit_code == 3
    assert result.stderr.startswith("error NOT_FOUND: no such thing")


def test_start_key_reused_exits_2_and_shows_the_code(api: FakeApi, weft: Weft) -> None:
    reused = error("IDEMPOTENCY_KEY_REUSED", "the key was used with another body")
    api.on("POST", "/v1/workflows/census/start", reused, status=409)
    result = weft("start", "census", "--key", "k")
    assert result.exit_code == 2
    assert "IDEMPOTENCY_KEY_REUSED" in result.stderr


# --- list, show, history, verify ------------------------------------------------------------------


def test_list_filters_and_pages_up_to_the_limit(api: FakeApi, weft: Weft) -> None:
    rows = [shapes.execution(f"e{n}", "COMPLETED") for n in range(250)]
    api.on("GET", "/v1/executions", shapes.page(*rows[:200], cursor="c1"), shapes.page(*rows[200:]))
    result = weft(
        "list", "--status", "completed", "--workflow", "census", "--tag", "a=b", "--limit", "250"
    )
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [
        row["id"] for row in rows
    ]
    first, second = api.requests
    filters = {"status": "COMPLETED", "workflow": "census", "tag": "a=b"}
    assert first.query == {**filters, "limit": "200"}
    assert second.query == {**filters, "limit": "50", "cursor": "c1"}


def test_list_passes_on_every_filter(api: FakeApi, weft: Weft) -> None:
    api.on("GET", "/v1/executions", shapes.page())
    by = ("--owner", "ada", "--parent", "e1", "--search", "order 7/é")
    when = ("--after", "2026-01-01T00:00:00+01:00", "--before", "2026-02-01T00:00:00Z")
    assert weft("list", *by, *when).exit_code == 0
    assert api.last("GET").query == {
        "owner": "ada",
        "parent": "e1",
        "search": "order 7/é",
        "createdAfter": "2026-01-01T00:00:00+01:00",
        "createdBefore": "2026-02-01T00:00:00Z",
        "limit": "20",
    }


def test_list_says_when_there_is_more_or_nothing(api: FakeApi, weft: Weft) -> None:
    api.on("GET", "/v1/executions", shapes.page(shapes.execution(), cursor="c"))
    # A full page has a cursor, also the last one: no promise that there is more.
    assert weft("list", "--limit", "1").stdout.endswith("There may be more; see --limit.\n")
    api.on("GET", "/v1/executions", shapes.page())
    assert weft("list").stdout == "No executions.\n"


def test_list_of_an_unknown_status_exits_2(weft: Weft) -> None:
    assert weft("list", "--status", "DONE").exit_code == 2


def test_show_draws_tasks_by_needs_with_states_and_errors(api: FakeApi, weft: Weft) -> None:
    api.on("GET", "/v1/executions/e1", shapes.execution(status="FAILED", error=shapes.failure()))
    tasks = [
        shapes.task("validate"),
        shapes.task(
            "charge", "DEAD_LETTERED", needs=["validate"], attempt=4, error=shapes.failure()
        ),
        shapes.task(
            "pack", "WAITING", needs=["validate"], type="map", ended_at=None,
            map={"count": 500, "queued": 32, "completed": 250, "failed": 1},
        ),
        shapes.task("ship", "SKIPPED", needs=["pack", "charge"], reason="upstream"),
    ]  # fmt: skip
    api.on("GET", "/v1/executions/e1/tasks", shapes.page(*tasks))
    result = weft("show", "e1")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    rows = {line.strip(" └├─│").split()[0]: line for line in lines[lines.index("") + 2 :]}
    assert rows["validate"].startswith("validate")
    assert rows["charge"].startswith("├─ charge")
    assert rows["pack"].startswith("└─ pack")
    assert rows["ship"].startswith("   └─ ship")
    assert "DEAD_LETTERED  4" in rows["charge"]
    assert "250 ms" in rows["charge"]
    assert "ConnectionError: refused" in rows["charge"]
    assert "250/500 items, 32 in flight, 1 failed" in rows["pack"]
    assert "needs charge; skipped: upstream" in rows["ship"]
    assert any(line.startswith("error") and "charge: ConnectionError" in line for line in lines)


def test_show_abbreviates_unless_full(api: FakeApi, weft: Weft) -> None:
    long = {"text": "x" * 5000}
    api.on("GET", "/v1/executions/e1", shapes.execution(output=long))
    api.on("GET", "/v1/executions/e1/tasks", shapes.page(shapes.task("a")))
    short = weft("show", "e1").stdout
    assert "x" * 100 in short
    assert "x" * 5000 not in short
    assert "--full" in short
    assert "x" * 5000 in weft("show", "e1", "--full").stdout


def test_history_shows_events_and_folds_maps_with_compact(api: FakeApi, weft: Weft) -> None:
    events = [
        shapes.event(1, "executionAccepted", tasks=3),
        shapes.event(2, "tasksQueued", tasks=["list"]),
        shapes.event(3, "mapStarted", task="count", count=40),
        shapes.event(4, "mapItemsQueued", task="count", start=0, count=32),
        shapes.event(5, "mapItemsCompleted", task="count", items=[0, 1, 2, 5, 7]),
        shapes.event(6, "mapItemsQueued", task="count", start=32, count=8),
        shapes.event(7, "taskFailed", task="count", failure=shapes.failure()),
        shapes.event(8, "executionFailed", failure={**shapes.failure(), "index": 7}),
        shapes.event(9, "executionCompleted", output={"json": "1", "bytes": 215}),
    ]
    api.on("GET", "/v1/executions/e1/history", shapes.page(*events))
    full = weft("history", "e1").stdout.splitlines()
    assert len(full) == 10
    assert "items=0-2,5,7" in full[5]
    assert "tasks=list" in full[2]
    assert full[7].endswith("task=count ConnectionError: refused")
    assert full[8].endswith("charge[7]: ConnectionError: refused")
    assert full[9].endswith("output=215 bytes")
    compact = weft("history", "e1", "--compact").stdout.splitlines()
    assert len(compact) == 8
    assert compact[4].startswith("4-6  +3.00 s … +5.00 s")
    assert "3 events: 40 items queued, 5 completed" in compact[4]


def test_verify_exits_0_or_1_with_the_problems(api: FakeApi, weft: Weft) -> None:
    report = {"execution": "e1", "ok": True, "events": 9, "commits": 5, "problems": []}
    api.on("GET", "/v1/executions/e1/verify", report)
    result = weft("verify", "e1")
    assert (result.exit_code, result.stdout) == (
        0, "verified: 9 events in 5 commits fold to the stored state\n",
    )  # fmt: skip
    broken = {**report, "ok": False, "problems": ["task b: folded QUEUED, stored COMPLETED"]}
    api.on("GET", "/v1/executions/e1/verify", broken)
    result = weft("verify", "e1")
    assert result.exit_code == 1
    assert "task b: folded QUEUED" in result.stdout
    assert json.loads(weft("verify", "e1", "--json").stdout) == broken
    assert weft("verify", "e1", "--json").exit_code == 1
