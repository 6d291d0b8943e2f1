"""Health, the API's description, the page, and what the worker and the host demand of routes."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
import typing
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

import azure.functions as func
import pytest
from http_client import Client
from http_support import ENGINE, UseCases, make_client
from openapi_spec_validator import validate

from orchestrator.domain import errors, validation
from orchestrator.engine import views
from orchestrator.functions import http_api, http_operations, http_workflows, openapi
from orchestrator.functions.provider import EngineProvider

# --- health ---------------------------------------------------------------------------------------


@pytest.fixture
def broken(use_cases: UseCases) -> Client:
    async def build() -> Any:
        raise RuntimeError("AccountKey=s3cret")

    return make_client(EngineProvider(build))


async def test_live_is_200_even_without_an_engine(broken: Client) -> None:
    got = await broken("GET", "/live")
    assert (got.status, got.json()["status"]) == (200, "ok")


@pytest.mark.parametrize("path", ["/ready", "/startup", "/health"])
async def test_without_an_engine_it_is_503(broken: Client, path: str) -> None:
    got = await broken("GET", path)
    assert (got.status, got.json()["status"]) == (503, "down")
    assert got.json()["checks"]["engine"]["ok"] is False
    assert b"s3cret" not in got.body


@pytest.mark.parametrize("path", ["/ready", "/startup", "/health", "/live"])
async def test_with_a_healthy_engine_it_is_200(client: Client, path: str) -> None:
    got = await client("GET", path)
    assert (got.status, got.json()["status"]) == (200, "ok")


@pytest.mark.parametrize(
    ("status", "path", "expected"),
    [
        ("down", "/ready", 503),
        ("down", "/health", 503),
        ("down", "/startup", 200),
        ("down", "/live", 200),
        ("degraded", "/ready", 200),
        ("degraded", "/health", 200),
    ],
)
async def test_health_of_the_dependencies(
    client: Client, use_cases: UseCases, status: str, path: str, expected: int
) -> None:
    store = views.Check(ok=False, detail="no answer")
    use_cases.answers["recent"] = views.HealthView(status=status, checks={"store": store})
    assert (await client("GET", path)).status == expected


async def test_other_routes_are_503_without_an_engine_and_do_not_leak(broken: Client) -> None:
    got = await broken("GET", "/v1/executions")
    assert (got.status, got.error["code"]) == (503, "ENGINE_UNAVAILABLE")
    assert b"s3cret" not in got.body


async def test_metrics_are_text_that_prometheus_reads(client: Client) -> None:
    got = await client("GET", "/metrics")
    assert got.status == 200
    assert got.media == "text/plain; version=0.0.4"
    assert b"\nweft_commits_total 0\n" in got.body


# --- provider -------------------------------------------------------------------------------------


class Built:
    """An engine that can be closed."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_concurrent_first_calls_build_once() -> None:
    gate = asyncio.Event()
    builds = 0

    async def build() -> Any:
        nonlocal builds
        builds += 1
        await gate.wait()
        return Built()

    provider = EngineProvider(build)
    calls = [asyncio.create_task(provider.get()) for _ in range(20)]
    await asyncio.sleep(0)
    calls[0].cancel()  # a caller who gives up does not take the others' engine along
    await asyncio.sleep(0)
    assert not provider.ready
    gate.set()
    engines = await asyncio.gather(*calls[1:])
    assert calls[0].cancelled()
    assert builds == 1
    assert len({id(engine) for engine in engines}) == 1
    assert await provider.get() is engines[0]


async def test_failed_build_is_shared_and_tried_again() -> None:
    results: list[Any] = [RuntimeError("no"), ENGINE]
    builds = 0

    async def build() -> Any:
        nonlocal builds
        builds += 1
        await asyncio.sleep(0)
        result = results[builds - 1]
        if isinstance(result, Exception):
            raise result
        return result

    provider = EngineProvider(build)
    failed = await asyncio.gather(provider.get(), provider.get(), return_exceptions=True)
    assert builds == 1
    for failure in failed:
        assert isinstance(failure, errors.UnavailableError)
        assert "RuntimeError" in failure.message
        assert isinstance(failure.__cause__, RuntimeError)
    assert await provider.get() is ENGINE


async def test_close_closes_once_and_refuses_to_build_again() -> None:
    engine = Built()

    async def build() -> Any:
        return engine

    provider = EngineProvider(build)
    await provider.get()
    await provider.close()
    await provider.close()
    assert engine.closed == 1
    with pytest.raises(errors.UnavailableError):
        await provider.get()


async def test_close_waits_for_a_running_build_and_closes_its_engine() -> None:
    engine, gate = Built(), asyncio.Event()

    async def build() -> Any:
        await gate.wait()
        return engine

    provider = EngineProvider(build)
    call = asyncio.create_task(provider.get())
    await asyncio.sleep(0)
    closing = asyncio.create_task(provider.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    await call
    assert engine.closed == 1


def test_nothing_is_built_when_the_blueprints_are() -> None:
    async def build() -> Any:
        raise AssertionError("built at import time")

    make_client(EngineProvider(build))


# --- description ----------------------------------------------------------------------------------


async def test_openapi_document_is_valid(client: Client) -> None:
    document = (await client("GET", "/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    validate(document)


async def test_every_http_function_is_in_the_openapi_document_and_vice_versa(
    client: Client,
) -> None:
    document = (await client("GET", "/openapi.json")).json()
    described = {
        (method.upper(), path, operation["operationId"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    bound = {
        (method, f"/{one.route}", one.name)
        for one in client.bound
        if not one.catches_all
        for method in one.methods
    }
    assert described == bound


def test_every_module_of_routes_is_part_of_the_api() -> None:
    folder = Path(http_api.__file__).parent
    modules = {
        path.stem
        for path in folder.glob("http_*.py")
        if "\nROUTES: Final = Routes(" in path.read_text(encoding="utf-8")
    }
    assert len(modules) > 15
    listed = {vars(module)["ROUTES"] for module in _modules(modules)}
    assert listed == {*http_api.TABLES, http_operations.ROUTES}


def _modules(names: set[str]) -> list[ModuleType]:
    return [importlib.import_module(f"orchestrator.functions.{name}") for name in names]


async def test_every_reference_in_the_openapi_document_resolves(client: Client) -> None:
    document = (await client("GET", "/openapi.json")).json()
    references: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                references.append(node["$ref"])
            for part in node.values():
                walk(part)
        elif isinstance(node, list):
            for part in node:
                walk(part)

    walk(document)
    assert len(references) > 50
    assert "#/$defs" not in str(document)
    for reference in references:
        if reference.startswith("#"):
            node = document
            for part in reference[2:].split("/"):
                node = node[part.replace("~1", "/").replace("~0", "~")]


def test_the_example_of_a_definition_is_one() -> None:
    found = validation.validate(http_workflows.EXAMPLE, activities=frozenset())
    assert found.definition.name == "hello"


async def test_openapi_has_the_shapes_of_the_wire(client: Client) -> None:
    document = (await client("GET", "/openapi.json")).json()
    schemas = document["components"]["schemas"]
    assert {"WorkflowDefinition", "StartRequest", "ExecutionSummaryPage", "ErrorEnvelope"} <= set(
        schemas
    )
    assert schemas["ExecutionSummary"]["properties"]["createdAt"]["format"] == "date-time"
    assert schemas["ExecutionSummary"]["properties"]["createdAt"]["type"] == "string"
    assert schemas["StartRequest"]["additionalProperties"] is False
    publish = document["paths"]["/v1/workflows"]["post"]
    assert set(publish["requestBody"]["content"]) >= {"application/json", "application/yaml"}
    assert set(publish["responses"]) == {
        *("200", "201", "400", "401", "403", "409", "413", "415", "422", "429", "500", "503")
    }


def test_every_status_that_a_route_names_is_described() -> None:
    described = openapi.document([])["components"]["responses"]
    for route in http_operations.operations():
        assert {str(status) for status in route.errors} <= set(described)


async def test_docs_page_is_self_contained_and_lists_every_endpoint(client: Client) -> None:
    got = await client("GET", "/docs")
    page = got.body.decode()
    assert got.media == "text/html"
    assert not re.search(r"https?://|src=|@import|url\(", page)
    before_scripts = page.split("<script>")[0]
    for route in http_operations.operations():
        assert f"/{route.path}</code>" in before_scripts
        assert escape(route.summary) in before_scripts
    assert "<!-- operations -->" not in page
    assert "default-src 'none'" in got.headers["content-security-policy"]
    assert "script-src 'sha256-" in got.headers["content-security-policy"]


# --- what the worker and the host demand ----------------------------------------------------------


def test_triggers_are_what_the_worker_accepts(client: Client) -> None:
    for one in client.bound:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", one.name)
        assert inspect.iscoroutinefunction(one.handler)
        assert list(inspect.signature(one.handler).parameters) == ["req"]
        hints = typing.get_type_hints(one.handler)
        assert hints == {"req": func.HttpRequest, "return": func.HttpResponse}


def test_no_two_routes_overlap_but_the_last_that_catches_all(client: Client) -> None:
    """The host picks by name, not by how specific a route is, so nothing may depend on that."""
    caught = [one for one in client.bound if one.catches_all]
    assert [one.name for one in caught] == ["zz_unmatched"]
    assert client.bound[-1] is caught[0]
    shapes = [
        (method, re.sub(r"{\w+}", "x", one.route))
        for one in client.bound
        if not one.catches_all
        for method in one.methods
    ]
    for method, path in shapes:
        hits = [
            one.name
            for one in client.bound
            if method in one.methods
            and not one.catches_all
            and re.fullmatch(re.sub(r"{\w+}", "[^/]+", one.route), path)
        ]
        assert len(hits) == 1, f"{method} {path}: {hits}"
