"""What the routes ask of the use cases, and what they answer."""

from __future__ import annotations

import pytest
from http_client import Client
from http_support import ENGINE, EXECUTION, UseCases

from orchestrator.domain.errors import ConflictError, NotFoundError
from orchestrator.domain.priority import Priority
from orchestrator.domain.status import ExecutionStatus, TaskStatus
from orchestrator.engine import views
from orchestrator.ports import PayloadNotFound
from tests.support.identities import Doors, admin

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


# --- workflows ------------------------------------------------------------------------------------


async def test_publish_of_new_content_is_201_with_location(
    client: Client, use_cases: UseCases
) -> None:
    got = await client("POST", "/v1/workflows", json={"name": "hello"})
    assert got.status == 201
    assert got.headers["location"] == "/v1/workflows/hello/versions/1"
    assert got.json() == {"name": "hello", "version": 1, "created": True, "dryRun": False}
    assert use_cases.last == (
        "publish",
        ("default", {"name": "hello"}),
        {"dry_run": False, "by": "developer"},
    )


async def test_publish_of_known_content_is_200(client: Client, use_cases: UseCases) -> None:
    use_cases.answers["publish"] = views.PublishResult(name="hello", version=4, created=False)
    got = await client("POST", "/v1/workflows", json={})
    assert got.status == 200
    assert "location" not in got.headers


async def test_dry_run_is_200(client: Client, use_cases: UseCases) -> None:
    use_cases.answers["publish"] = views.PublishResult(
        name="hello", version=5, created=False, dry_run=True
    )
    got = await client("POST", "/v1/workflows?dryRun=true", json={})
    assert got.status == 200
    assert got.json()["dryRun"] is True
    assert use_cases.last[2]["dry_run"] is True


async def test_yaml_and_json_give_the_same_definition(client: Client, use_cases: UseCases) -> None:
    yaml = {"Content-Type": "application/yaml"}
    await client("POST", "/v1/workflows", body=b"name: a\ntasks: {on: {n: 1}}\n", headers=yaml)
    await client("POST", "/v1/workflows", json={"name": "a", "tasks": {"on": {"n": 1}}})
    assert use_cases.asked[0] == use_cases.asked[1]


async def test_archive_is_204_without_a_body(client: Client, use_cases: UseCases) -> None:
    use_cases.answers["archive"] = None
    got = await client("DELETE", "/v1/workflows/hello")
    assert (got.status, got.body) == (204, b"")
    assert use_cases.last == ("archive", ("default", "hello"), {"by": "developer"})


async def test_a_version_with_its_definition(client: Client, use_cases: UseCases) -> None:
    definition = {"name": "hello", "tasks": {"z": {}, "a": {"big": 2**63 - 1}}}
    use_cases.answers["version"] = views.VersionView(
        name="hello", version=2, hash="h", published_at=1_767_225_600_123, definition=definition
    )
    got = await client("GET", "/v1/workflows/hello/versions/2")
    assert got.json()["definition"] == definition
    assert list(got.json()["definition"]["tasks"]) == ["z", "a"]
    assert got.json()["publishedAt"] == "2026-01-01T00:00:00.123Z"
    assert use_cases.last[1] == ("default", "hello", 2)


@pytest.mark.parametrize(
    ("use_case", "path"),
    [
        ("workflow", "/v1/workflows/nope"),
        ("versions", "/v1/workflows/nope/versions"),
        ("version", "/v1/workflows/nope/versions/7"),
        ("execution", "/v1/executions/nope"),
        ("task", "/v1/executions/e-1/tasks/nope"),
    ],
)
async def test_unknown_workflow_version_execution_or_task_is_404(
    client: Client, use_cases: UseCases, use_case: str, path: str
) -> None:
    use_cases.answers[use_case] = NotFoundError("no such thing", code="NOPE_NOT_FOUND")
    got = await client("GET", path)
    assert (got.status, got.error["code"]) == (404, "NOPE_NOT_FOUND")


# --- start ----------------------------------------------------------------------------------------


async def test_start_is_202_with_location(client: Client, use_cases: UseCases) -> None:
    got = await client(
        "POST",
        "/v1/workflows/hello/start",
        json={"input": {"a": 1}, "version": 3, "tags": {"region": "north"}, "priority": "high"},
        headers={"Idempotency-Key": "order#7/8 é", "traceparent": PARENT},
    )
    assert got.status == 202
    assert got.headers["location"] == "/v1/executions/e-1"
    assert got.json()["created"] is True
    assert use_cases.last == (
        "start",
        ("default", "hello", {"a": 1}),
        {
            "key": "order#7/8 é",
            "version": 3,
            "tags": {"region": "north"},
            "traceparent": PARENT,
            "started_by": "developer",
            "priority": Priority.HIGH,
        },
    )


async def test_start_with_an_empty_body_has_null_input(client: Client, use_cases: UseCases) -> None:
    got = await client("POST", "/v1/workflows/hello/start")
    assert got.status == 202
    assert use_cases.last[1] == ("default", "hello", None)
    assert use_cases.last[2]["key"] is None
    assert use_cases.last[2]["version"] is None


async def test_repeated_start_is_200_with_the_same_location(
    client: Client, use_cases: UseCases
) -> None:
    first = await client("POST", "/v1/workflows/hello/start", headers={"Idempotency-Key": "k"})
    use_cases.answers["start"] = use_cases.answers["start"].model_copy(update={"created": False})
    again = await client("POST", "/v1/workflows/hello/start", headers={"X-Idempotency-Key": "k"})
    assert (first.status, again.status) == (202, 200)
    assert first.headers["location"] == again.headers["location"]
    assert use_cases.asked[0][2]["key"] == use_cases.asked[1][2]["key"] == "k"


async def test_idempotency_key_under_both_names_with_one_value(
    client: Client, use_cases: UseCases
) -> None:
    both = {"Idempotency-Key": "k", "X-Idempotency-Key": "k"}
    assert (await client("POST", "/v1/workflows/hello/start", headers=both)).status == 202
    assert use_cases.last[2]["key"] == "k"


async def test_idempotency_key_of_255_characters(client: Client, use_cases: UseCases) -> None:
    got = await client("POST", "/v1/workflows/h/start", headers={"Idempotency-Key": "x" * 255})
    assert got.status == 202


async def test_reused_key_with_another_body_is_409(client: Client, use_cases: UseCases) -> None:
    use_cases.answers["start"] = ConflictError("used before", code="IDEMPOTENCY_KEY_REUSED")
    got = await client("POST", "/v1/workflows/hello/start", headers={"Idempotency-Key": "k"})
    assert (got.status, got.error["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


# --- executions -----------------------------------------------------------------------------------


async def test_filters_reach_the_use_case(client: Client, use_cases: UseCases) -> None:
    got = await client(
        "GET",
        "/v1/executions?status=RUNNING&workflow=hello&tag=a=b=c&limit=200"
        "&createdAfter=2026-01-01T01:00:00.123%2B01:00&createdBefore=2026-01-02T00:00:00Z"
        "&owner=Ada%20L.%20%3Ca@b%3E&parent=e-0&search=order%207/8%20%C3%A9",
    )
    assert got.status == 200
    assert got.json()["nextCursor"] is None
    assert got.json()["items"][0]["createdAt"] == "2026-01-01T00:00:00.123Z"
    _, (tenant, wanted), more = use_cases.last
    assert tenant == "default"
    assert wanted.status is ExecutionStatus.RUNNING
    assert (wanted.workflow, wanted.tag) == ("hello", ("a", "b=c"))
    assert (wanted.created_after, wanted.created_before) == (1_767_225_600_123, 1_767_312_000_000)
    assert (wanted.owner, wanted.parent, wanted.search) == ("Ada L. <a@b>", "e-0", "order 7/8 é")
    assert more == {"limit": 200, "after": None}


async def test_a_payload_that_is_gone_is_503_and_told(
    client: Client, use_cases: UseCases, caplog: pytest.LogCaptureFixture
) -> None:
    use_cases.answers["execution"] = PayloadNotFound("no payload 7a")
    got = await client("GET", "/v1/executions/e-1")
    assert (got.status, got.error["code"]) == (503, "PAYLOAD_NOT_FOUND")
    assert "no payload 7a" in caplog.text


@pytest.mark.parametrize(
    ("text", "days"),
    [("0001-01-01T00:00:00%2B14:00", -719_163), ("9999-12-31T23:59:59-23:00", 2_932_897)],
)
async def test_times_at_the_edges_of_the_calendar_are_times(
    client: Client, use_cases: UseCases, text: str, days: int
) -> None:
    """In UTC they are of a year before the first or after the last that Python knows."""
    got = await client("GET", f"/v1/executions?createdAfter={text}")
    assert got.status == 200
    _, (_, wanted), _ = use_cases.last
    assert wanted.created_after // 86_400_000 == days


async def test_limit_is_50_unless_said(client: Client, use_cases: UseCases) -> None:
    await client("GET", "/v1/executions")
    assert use_cases.last[2]["limit"] == 50


@pytest.mark.parametrize(
    ("wait", "ms"), [("30s", 30_000), ("200s", 200_000), ("PT1M", 60_000), ("0s", 0)]
)
async def test_wait_is_passed_on_in_milliseconds(
    client: Client, use_cases: UseCases, wait: str, ms: int
) -> None:
    got = await client("GET", f"/v1/executions/e-1?wait={wait}")
    assert got.status == 200
    assert use_cases.last[:2] == ("execution", ("default", "e-1"))
    assert use_cases.last[2]["wait_ms"] == ms
    assert got.json()["input"] == {"a": [1.5, "ü"]}


async def test_task_with_and_without_item(client: Client, use_cases: UseCases) -> None:
    use_cases.answers["task"] = views.TaskView(
        id="pack",
        type="map",
        status=TaskStatus.RUNNING,
        run_when="allSucceeded",
        timeout_ms=1000,
        retry=views.RetryView(
            max_attempts=1,
            initial_interval_ms=1,
            backoff_coefficient=2.0,
            max_interval_ms=1,
            jitter="full",
        ),
    )
    got = await client("GET", "/v1/executions/e-1/tasks/pack%20it?item=3")
    assert got.json()["retry"]["maxAttempts"] == 1
    assert use_cases.last[:2] == ("task", ("default", "e-1", "pack it"))
    assert use_cases.last[2]["item"] == 3
    await client("GET", "/v1/executions/e-1/tasks/pack")
    assert use_cases.last[2]["item"] is None


async def test_history_shows_what_each_event_has(client: Client, use_cases: UseCases) -> None:
    event = views.HistoryEvent.model_validate(
        {"seq": 1, "type": "TasksQueued", "at": "2026-01-01T00:00:00.000Z", "tasks": ["a"]}
    )
    use_cases.answers["history"] = ([event], None)
    got = await client("GET", "/v1/executions/e-1/history")
    assert got.json()["items"] == [
        {"seq": 1, "type": "TasksQueued", "at": "2026-01-01T00:00:00.000Z", "tasks": ["a"]}
    ]


async def test_verify_is_200_also_when_something_is_wrong(
    client: Client, use_cases: UseCases
) -> None:
    use_cases.answers["verify"] = views.VerifyReport(
        execution="e-1", ok=False, events=3, commits=2, problems=["seq 1 is missing"]
    )
    got = await client("GET", "/v1/executions/e-1/verify")
    assert (got.status, got.json()["ok"]) == (200, False)


# --- cursors over the routes ----------------------------------------------------------------------


async def test_cursor_leads_to_the_next_page_also_with_another_limit(
    client: Client, use_cases: UseCases
) -> None:
    item = views.ExecutionSummary(**EXECUTION)
    use_cases.answers["executions"] = ([item], (1_767_225_600_123, "e-1"))
    first = await client("GET", "/v1/executions?status=FAILED&limit=1")
    cursor = first.json()["nextCursor"]
    use_cases.answers["executions"] = ([], None)
    got = await client("GET", f"/v1/executions?limit=7&cursor={cursor}&status=FAILED")
    assert got.status == 200
    assert use_cases.last[2] == {"limit": 7, "after": (1_767_225_600_123, "e-1")}


@pytest.mark.parametrize(
    "other",
    [
        "/v1/executions",
        "/v1/executions?status=RUNNING",
        "/v1/executions?status=FAILED&workflow=hello",
        "/v1/workflows",
        "/v1/executions/e-1/tasks",
    ],
)
async def test_cursor_of_another_filter_or_route_is_400(
    client: Client, use_cases: UseCases, other: str
) -> None:
    item = views.ExecutionSummary(**EXECUTION)
    use_cases.answers["executions"] = ([item], (1, "e-1"))
    cursor = (await client("GET", "/v1/executions?status=FAILED")).json()["nextCursor"]
    asked = len(use_cases.asked)
    got = await client("GET", f"{other}{'&' if '?' in other else '?'}cursor={cursor}")
    assert (got.status, got.error["code"]) == (400, "INVALID_CURSOR")
    assert len(use_cases.asked) == asked


async def test_cursor_of_another_execution_is_400(client: Client, use_cases: UseCases) -> None:
    use_cases.answers["tasks"] = ([], (5,))
    cursor = (await client("GET", "/v1/executions/e-1/tasks")).json()["nextCursor"]
    assert (await client("GET", f"/v1/executions/e-1/tasks?cursor={cursor}")).status == 200
    assert (await client("GET", f"/v1/executions/e-2/tasks?cursor={cursor}")).status == 400


async def test_cursor_of_another_tenant_is_400(
    client: Client, use_cases: UseCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_cases.answers["executions"] = ([], (1, "e-1"))
    cursor = (await client("GET", "/v1/executions")).json()["nextCursor"]
    monkeypatch.setattr(ENGINE, "authenticator", Doors(eve=admin("other")))
    got = await client("GET", f"/v1/executions?cursor={cursor}", headers={"as": "eve"})
    assert (got.status, got.error["code"]) == (400, "INVALID_CURSOR")


# --- every answer ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/executions", 200),
        ("GET", "/v1/executions?limit=0", 400),
        ("GET", "/v1/nope", 404),
        ("PUT", "/v1/workflows", 405),
        ("GET", "/live", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/docs", 200),
    ],
)
async def test_every_answer_has_a_trace_id_and_is_not_cached(
    client: Client, method: str, path: str, status: int
) -> None:
    got = await client(method, path)
    assert got.status == status
    assert len(got.headers["x-trace-id"]) == 32
    assert got.headers["cache-control"] == "no-store"
    if status >= 400:
        assert got.error["traceId"] == got.headers["x-trace-id"]
        assert got.media == "application/json"


async def test_trace_id_is_that_of_the_caller(client: Client) -> None:
    got = await client("GET", "/v1/executions?limit=0", headers={"traceparent": PARENT})
    assert got.headers["x-trace-id"] == got.error["traceId"] == TRACE


@pytest.mark.parametrize(
    "given",
    [
        "",
        "nonsense",
        f"00-{TRACE}-b7ad6b7169203331",
        f"ff-{TRACE}-b7ad6b7169203331-01",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-b7ad6b7169203331-01",
        PARENT + "\n00",
    ],
)
async def test_malformed_traceparent_is_not_passed_on(
    client: Client, use_cases: UseCases, given: str
) -> None:
    got = await client("POST", "/v1/workflows/hello/start", headers={"traceparent": given})
    assert got.status == 202
    assert use_cases.last[2]["traceparent"] == ""
    assert got.headers["x-trace-id"] != TRACE
