"""The routes over the real engine and a real SQLite file; only the queue is left out."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from http_client import Client
from http_support import make_client
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from orchestrator.adapters.local.sqlite_store import SqliteStore
from orchestrator.adapters.telemetry.otel import OtelTracer
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import health, project
from orchestrator.engine.core import Engine
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports import ActivityCall, OutMessage, PayloadNotFound, SecretNotFound
from tests.support.identities import DEVELOPMENT, Fixed, admin

HELLO = {
    "name": "hello",
    "input": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
    },
    "tasks": {"greet": {"type": "transform", "output": "${'Hello ' + input.name}"}},
}


class Fakes:
    """Every other port. Time stands still, so that all executions have the same createdAt."""

    def __init__(self) -> None:
        self.sent: list[OutMessage] = []
        self.kept: dict[str, bytes] = {}
        self.counter = itertools.count()

    def now(self) -> int:
        return 1_767_225_600_000

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(0)

    def new(self) -> str:
        # Not in the order of creation, so that nothing can lean on that.
        return f"id-{next(self.counter) * 7919 % 100_003:06}"

    async def send(self, messages: Sequence[OutMessage]) -> None:
        self.sent += messages

    async def close(self) -> None:
        pass

    async def put(self, tenant: str, execution: str, name: str, data: bytes) -> str:
        self.kept[f"{tenant}/{execution}/{name}"] = data
        return f"{tenant}/{execution}/{name}"

    async def delete(self, *args: str, **more: Any) -> None:
        raise AssertionError("nothing is removed here")

    async def get(self, *ref: str) -> Any:
        if len(ref) != 1:
            raise SecretNotFound(ref[-1])
        if ref[0] not in self.kept:
            raise PayloadNotFound(ref[0])
        return self.kept[ref[0]]

    def names(self) -> frozenset[str]:
        return frozenset()

    def dependency(self, activity: str) -> str | None:
        return None

    async def run(self, call: ActivityCall) -> Any:
        raise AssertionError("nothing runs here")

    def stuck(self) -> int:
        return 0


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    fakes: Any = Fakes()
    store = SqliteStore(tmp_path / "weft.db", clock=fakes)
    await store.open()
    made = Engine(
        store=store,
        transport=fakes,
        payloads=fakes,
        secrets=fakes,
        activities=fakes,
        clock=fakes,
        ids=fakes,
        worker="test",
        authenticator=DEVELOPMENT,
    )
    yield made
    await made.close()


@pytest.fixture
async def real(engine: Engine) -> Client:
    async def build() -> Engine:
        return engine

    client = make_client(EngineProvider(build))
    assert (await client("POST", "/v1/workflows", json=HELLO)).status == 201
    return client


async def listed(client: Client, engine: Engine, url: str = "/v1/executions") -> Any:
    """A list once it has caught up with the executions, as the change feed makes it."""
    page = await engine.store.changes(EXECUTIONS, None, 10_000)
    await project.project_documents(engine, [doc.body for doc in page.documents])
    return await client("GET", url)


async def start(client: Client, key: str | None = None, **body: Any) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    body.setdefault("input", {"name": "Ada"})
    return await client("POST", "/v1/workflows/hello/start", json=body, headers=headers)


async def test_cursor_holds_more_than_a_time_equal_times_are_neither_skipped_nor_repeated(
    real: Client, engine: Engine
) -> None:
    """250 executions with one createdAt, pages of 100, with starts and status changes between."""
    first: list[str] = []
    for number in range(250):
        first.append((await start(real, tags={"n": str(number)})).json()["id"])

    seen: list[str] = []
    path = "/v1/executions?limit=100&workflow=hello"
    url, pages = path, 0
    while True:
        page = (await listed(real, engine, url)).json()
        pages += 1
        seen += [item["id"] for item in page["items"]]
        if page["nextCursor"] is None:
            break
        url = f"{path}&cursor={page['nextCursor']}"
        await start(real)
        for changed in (first[0], first[120], first[249]):
            await _set_status(engine, changed, "RUNNING")
    assert pages == 3
    assert len(seen) == len(set(seen))
    assert set(first) <= set(seen)


async def _set_status(engine: Engine, id: str, status: str) -> None:
    found = await engine.store.read(EXECUTIONS, ("default", id), id)
    state = {**found.body["state"], "seq": found.body["state"]["seq"] + 1, "status": status}
    body = {**found.body, "status": status, "state": state}
    await engine.store.replace(EXECUTIONS, ("default", id), body, if_match=found.etag)


async def test_20_concurrent_starts_with_one_key_give_one_execution(
    real: Client, engine: Engine
) -> None:
    answers = await asyncio.gather(*(start(real, key="k") for _ in range(20)))
    assert {got.status for got in answers} <= {200, 202}
    assert [got.status for got in answers].count(202) == 1
    assert len({got.headers["location"] for got in answers}) == 1
    assert len((await listed(real, engine)).json()["items"]) == 1


async def test_idempotency_key_reused_with_another_body_is_409(real: Client) -> None:
    one = await start(real, key="k", input={"name": "Ada", "n": 1})
    same = await start(real, key="k", input={"n": 1, "name": "Ada"})
    other = await start(real, key="k", input={"name": "Bob", "n": 1})
    assert (one.status, same.status) == (202, 200)
    assert one.headers["location"] == same.headers["location"]
    assert (other.status, other.error["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_input_that_fails_its_schema_is_422_with_all_failures(real: Client) -> None:
    got = await start(real, input={"n": "x"})
    assert got.status == 422
    assert len(got.error["details"]) == 2
    assert {detail["field"] for detail in got.error["details"]} == {"$.input", "$.input.n"}


@pytest.mark.parametrize("body", [b"", b'{"input": []}', b'{"input": "x"}', b'{"input": false}'])
async def test_input_schema_is_not_skipped_for_absent_or_non_object_input(
    real: Client, body: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    got = await real("POST", "/v1/workflows/hello/start", body=body, headers=headers)
    assert got.status == 422
    assert got.error["details"]
    hints = [detail["hint"] for detail in got.error["details"] if detail["field"] == "$.input"]
    assert ("there was no input" in hints[0]) is (body == b"")


async def test_bad_definition_is_422_with_every_finding_and_nothing_is_stored(
    real: Client,
) -> None:
    bad = {"name": "bad", "tasks": {"d": {"type": "transform", "needs": ["d", "chek"]}}}
    got = await real("POST", "/v1/workflows", json=bad)
    assert got.status == 422
    assert len(got.error["details"]) >= 2
    assert all(detail["code"] for detail in got.error["details"])
    assert (await real("GET", "/v1/workflows/bad")).status == 404


async def test_life_of_a_definition(real: Client) -> None:
    again = await real("POST", "/v1/workflows", json=HELLO)
    assert (again.status, again.json()["version"]) == (200, 1)
    changed = {**HELLO, "description": "again"}
    dry = await real("POST", "/v1/workflows?dryRun=true", json=changed)
    assert (dry.status, dry.json()["dryRun"]) == (200, True)
    second = await real("POST", "/v1/workflows", json=changed)
    assert second.headers["location"] == "/v1/workflows/hello/versions/2"
    assert (await real("GET", "/v1/workflows/hello/versions/1")).json()["definition"] == HELLO
    versions = (await real("GET", "/v1/workflows/hello/versions")).json()["items"]
    assert [item["version"] for item in versions] == [1, 2]
    assert (await real("GET", "/v1/workflows/hello/versions/3")).status == 404
    assert (await start(real, version=3)).status == 404
    assert (await real("DELETE", "/v1/workflows/hello")).status == 204
    refused = await start(real)
    assert (refused.status, refused.error["code"]) == (409, "WORKFLOW_ARCHIVED")
    assert (await real("DELETE", "/v1/workflows/nope")).status == 404


async def test_an_execution_from_every_side(real: Client) -> None:
    started = await start(real, tags={"region": "north"})
    where = started.headers["location"]
    view = (await real("GET", f"{where}?wait=1s")).json()
    assert (view["status"], view["input"], view["startedBy"]) == (
        *("PENDING", {"name": "Ada"}, "developer"),
    )
    tasks = (await real("GET", f"{where}/tasks")).json()["items"]
    assert [(task["id"], task["status"]) for task in tasks] == [("greet", "PENDING")]
    assert (await real("GET", f"{where}/tasks/greet")).json()["attempts"] == []
    history = (await real("GET", f"{where}/history")).json()["items"]
    assert [event["type"] for event in history] == ["executionAccepted"]
    assert (await real("GET", f"{where}/verify")).json()["ok"] is True
    for missing in ("/v1/executions/nope", f"{where}/tasks/nope", f"{where}/tasks/greet?item=0"):
        assert (await real("GET", missing)).status == 404
    for link in started.json()["links"].values():
        assert (await real("GET", link)).status == 200


async def test_filters(real: Client, engine: Engine) -> None:
    id = (await start(real, key="order 7/é")).json()["id"]
    for query, expected in (
        ("status=PENDING", [id]),
        ("status=COMPLETED", []),
        ("workflow=nope", []),
        ("createdAfter=2026-01-01T00:00:00Z", [id]),
        ("createdAfter=2026-01-01T00:00:00.001Z", []),
        ("createdBefore=2026-01-01T00:00:00Z", []),
        ("owner=developer", [id]),
        ("owner=someone@example.com", []),
        (f"parent={id}", []),
        (f"search={id[:12]}", [id]),
        (f"search={id[1:]}", []),
        (f"search={quote('order 7/é')}", [id]),
        ("status=PENDING&workflow=hello&createdBefore=2026-01-01T00:00:00.001Z", [id]),
    ):
        got = await listed(real, engine, f"/v1/executions?{query}")
        assert got.status == 200, query
        assert [item["id"] for item in got.json()["items"]] == expected, query


async def test_filter_by_tag(real: Client, engine: Engine) -> None:
    tags = {"region": "north", "app.kubernetes.io-name": "a=b '\"", "_": ""}
    north = (await start(real, tags=tags)).json()["id"]
    await start(real, tags={"region": "south"})
    for tag, expected in (
        ("region=north", [north]),
        ("app.kubernetes.io-name=a=b '\"", [north]),
        ("_=", [north]),
        ("region=east", []),
        ("regio=north", []),
    ):
        got = await listed(real, engine, f"/v1/executions?tag={quote(tag)}")
        assert got.status == 200, tag
        assert [item["id"] for item in got.json()["items"]] == expected, tag
    assert (await start(real, tags={"a=b": "x"})).status == 422


async def test_other_tenants_see_nothing(real: Client, engine: Engine) -> None:
    where = (await start(real)).headers["location"]
    assert len((await listed(real, engine)).json()["items"]) == 1
    engine.authenticator = Fixed(admin("other"))
    assert (await real("GET", where)).status == 404
    assert (await real("GET", "/v1/executions")).json()["items"] == []
    assert (await real("GET", "/v1/workflows")).json()["items"] == []
    assert (await start(real)).status == 404


async def test_ready_with_a_store_that_answers_and_without(
    real: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "KEEP_S", 0)
    assert (await real("GET", "/ready")).status == 200
    await engine.store.close()
    assert (await real("GET", "/ready")).status == 503
    assert (await real("GET", "/live")).status == 200


async def test_a_request_is_a_span_under_its_callers_trace_and_over_what_it_starts(
    real: Client, engine: Engine
) -> None:
    """Answers name the trace that was recorded; open routes make no spans."""
    exporter = InMemorySpanExporter()
    engine.tracer = OtelTracer(SimpleSpanProcessor(exporter))
    caller = f"00-{'a' * 32}-{'b' * 16}-01"
    got = await real(
        "POST",
        "/v1/workflows/hello/start",
        headers={"traceparent": caller},
        json={"input": {"name": "Ada"}},
    )
    assert (got.status, got.headers["x-trace-id"]) == (202, "a" * 32)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    request, begun = spans["POST /v1/workflows/{name}/start"], spans["start"]
    assert request.parent is not None
    assert begun.parent is not None
    assert request.context is not None
    assert f"{request.parent.span_id:016x}" == "b" * 16
    assert begun.parent.span_id == request.context.span_id
    exporter.clear()
    got = await real("GET", "/v1/executions/none")
    [span] = exporter.get_finished_spans()
    assert span.context is not None
    assert got.error["traceId"] == f"{span.context.trace_id:032x}"
    assert dict(span.attributes or {})["http.response.status_code"] == 404
    assert span.status.is_ok or span.status.is_unset  # a refusal is an answer
    exporter.clear()
    await real("GET", "/health")
    assert not exporter.get_finished_spans()


async def test_answers_are_counted_by_status_and_timed_by_operation(
    real: Client, engine: Engine
) -> None:
    before = engine.metrics.value("weft_http_requests_total", "404")
    await real("GET", "/v1/executions/none")
    assert engine.metrics.value("weft_http_requests_total", "404") == before + 1
    assert engine.metrics.value("weft_http_request_duration_seconds", "get_execution") == 1


async def test_pause_resume_and_cancel(real: Client) -> None:
    own = f"/v1/executions/{(await start(real)).json()['id']}"
    paused = await real("POST", f"{own}/pause", json={"reason": "deploy"})
    assert (paused.status, paused.json()["status"]) == (200, "PAUSED")
    assert (await real("POST", f"{own}/pause")).status == 200
    assert (await real("POST", f"{own}/resume")).json()["status"] == "RUNNING"
    assert (await real("POST", f"{own}/cancel")).json()["status"] == "CANCELLED"
    refused = await real("POST", f"{own}/pause")
    assert refused.status == 409
    assert refused.json()["error"]["code"] == "CANNOT_PAUSE"
    assert (await real("POST", f"{own}/cancel")).status == 200
    assert (await real("POST", "/v1/executions/nope/cancel")).status == 404
    bad = await real("POST", f"{own}/cancel", json={"reson": "typo"})
    assert bad.status == 422
    assert "reason" in bad.json()["error"]["details"][0]["hint"]
