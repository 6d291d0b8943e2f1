"""Schemathesis over the app's own OpenAPI document: generated requests, right ones and wrong ones,
to every operation over the real engine. No answer is a 5xx, and each is what the document says."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
import schemathesis.openapi
from http_client import Client, Got
from http_support import make_client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.core.transport import Response
from schemathesis.specs.openapi import checks
from test_http_real_engine import HELLO, Fakes

from orchestrator.adapters.local.sqlite_store import SqliteStore
from orchestrator.engine.core import Engine
from orchestrator.functions import http_operations, openapi
from orchestrator.functions.access import TENANT
from orchestrator.functions.provider import EngineProvider
from tests.support.bulks import registry
from tests.support.identities import DEVELOPMENT

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "3"))  # of each operation and kind of data
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
OPERATIONS = tuple(route.name for route in http_operations.operations())


class Ports(Fakes):
    """Payloads may be removed: `erase` is an operation, too."""

    async def delete(self, *args: str, **more: Any) -> None:
        self.kept.clear()


@dataclass
class App:
    """The routes over a real engine, called without a loop of the caller's."""

    runner: asyncio.Runner
    client: Client
    ids: dict[str, str] = field(default_factory=dict)

    def __call__(self, method: str, url: str, **more: Any) -> Got:
        return self.runner.run(self.client(method, url, **more))

    def furnish(self) -> None:
        """Something of each kind, under a known id: what was stopped or archived is there again."""
        assert self("POST", "/v1/workflows", json=HELLO).status in (200, 201)
        started = self("POST", "/v1/workflows/hello/start", json={"input": {"name": "x"}})
        schedule = {"name": "nightly", "workflow": "hello", "cron": "0 3 * * *", "timezone": "UTC"}
        self("POST", "/v1/schedules", json=schedule | {"input": {"name": "x"}})
        self(
            "POST", "/v1/triggers", json={"name": "t", "workflow": "hello", "match": {"type": "x"}}
        )
        self("POST", "/v1/triggers/t/resume", json={})
        event = {
            "specversion": "1.0",
            "id": started.json()["id"],
            "source": "s",
            "type": "x",
            "data": {},
        }
        media = {"Content-Type": "application/cloudevents+json"}
        sent = self("POST", "/v1/events", json=event, headers=media)
        self.ids = {
            "name": "hello",
            "id": started.json()["id"],
            "n": "1",
            "taskId": "greet",
            "schedule": "nightly",
            "triggerName": "t",
            "tenantId": "default",
            "letterId": sent.json()["items"][0]["deadLetters"][0],
        }


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    path: Path = tmp_path_factory.mktemp("fuzz") / "weft.db"
    ports: Any = Ports()

    async def build() -> Engine:
        store = SqliteStore(path, clock=ports)
        await store.open()
        return Engine(
            store=store,
            transport=ports,
            payloads=ports,
            secrets=ports,
            activities=ports,
            clock=ports,
            ids=ports,
            worker="test",
            authenticator=DEVELOPMENT,
            platform_tenant="default",
            code=registry(),
        )

    provider = EngineProvider(build)
    with asyncio.Runner() as runner:
        made = App(runner, make_client(provider))
        made.furnish()
        yield made
        runner.run(provider.close())


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    described = openapi.document(http_operations.operations())
    # Who may ask is for test_access_…; here everybody is the developer.
    described["components"]["securitySchemes"] = {}
    for operation in itertools.chain.from_iterable(x.values() for x in described["paths"].values()):
        del operation["security"]
        parameters = operation["parameters"]
        operation["parameters"] = [one for one in parameters if one["name"] != TENANT.name]
    schema = schemathesis.openapi.from_dict(described)
    found = [result.ok() for result in schema.get_all_operations()]
    return {one.definition.raw["operationId"]: one for one in found}


def test_every_operation_is_asked(operations: dict[str, Any]) -> None:
    assert set(operations) == set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_request_that_the_document_leads_to_is_a_5xx(
    app: App, operations: dict[str, Any], name: str
) -> None:
    asked = 0
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operations[name].as_strategy(generation_mode=mode))
        def ask(case: Case) -> None:
            nonlocal asked
            asked += 1
            if case.path_parameters and asked % 2:  # something that is there, every other time
                case.path_parameters = {
                    k: app.ids.get(k, v) for k, v in case.path_parameters.items()
                }
            send(app, case)

        app.furnish()
        try:
            ask()
        except Unsatisfiable:  # nothing about it can be wrong
            assert mode is GenerationMode.NEGATIVE
    assert asked


def send(app: App, case: Case) -> None:
    """One request, and what is to be true of its answer."""
    sent = case.as_transport_kwargs(base_url="http://weft.test")
    sent.pop("allow_redirects", None)
    prepared = requests.Request(**sent).prepare()
    body = prepared.body or b""
    assert prepared.method
    got = app(
        prepared.method,
        prepared.path_url,
        body=body.encode() if isinstance(body, str) else body,
        headers=prepared.headers,
    )
    assert got.status < 500, got.body
    assert got.headers["x-trace-id"]
    if got.status >= 400:
        assert got.error["code"]
        assert got.error["message"]
    headers = {name: [value] for name, value in got.headers.items()}
    if got.body or got.status != 204:
        headers["content-type"] = [got.media]
    answer = Response(
        status_code=got.status,
        headers=headers,
        content=got.body,
        request=prepared,
        elapsed=0.0,
        verify=False,
    )
    case.validate_response(answer, checks=CHECKS)
