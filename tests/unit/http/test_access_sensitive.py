"""Sensitive data and egress lists over HTTP: who sees what, and who may change it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from access_support import ACME, BETA, Place, place

from orchestrator.domain.failure import Failure
from orchestrator.engine import letters_list
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.ports import ActivityCall, ActivityFailed

EGRESS = f"/v1/tenants/{ACME}/egress"
SSN = "ssn-078-05-1120"
S = {"type": "string", "x-sensitive": True}
DEFINITION: dict[str, Any] = {
    "name": "billing-secret",
    "onFailure": "continue",
    "input": {"type": "object", "properties": {"ssn": S, "name": {"type": "string"}}},
    "tasks": {
        "copy": {"type": "transform", "output": {"who": "${input}", "t": "no. ${input.ssn}"}},
        "each": {
            "type": "map",
            "items": "${[input.ssn]}",
            "do": {"type": "transform", "output": {"v": "${item}"}},
        },
        "broken": {
            "type": "activity",
            "activity": "broken",
            "input": {"a": ["${input.ssn}"], "name": "${input.name}"},
            "retry": {"maxAttempts": 1},
            "continueOnError": True,
        },
    },
    "output": {"all": "${tasks.copy.output}", "n": 1},
}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Place]:
    made = await place(tmp_path)
    yield made
    await made.world.close()


async def run(here: Place) -> str:
    """An execution with sensitive data everywhere, a dead letter among it."""

    def broken(call: ActivityCall) -> None:
        given: Any = call.input
        raise ActivityFailed(Failure(type="E", message=f"bad number {given['a'][0]}"))

    here.world.activities.functions["broken"] = broken
    got = await here.ask("root", "POST", "/v1/workflows", json=DEFINITION)
    assert got.status in (200, 201), got.body
    given = {"input": {"ssn": SSN, "name": "Ann"}}
    got = await here.ask("root", "POST", "/v1/workflows/billing-secret/start", json=given)
    await here.world.run_until_quiet()
    id: str = got.json()["id"]
    return id


async def answers(here: Place, who: str, id: str) -> dict[str, Any]:
    found, _ = await letters_list.page(
        here.world.engine, ACME, LetterFilter(workflow="billing-secret"), limit=9, after=None
    )
    base = f"/v1/executions/{id}"
    paths = {
        "execution": base,
        "copy": f"{base}/tasks/copy",
        "each": f"{base}/tasks/each",
        "item": f"{base}/tasks/each?item=0",
        "broken": f"{base}/tasks/broken",
        "history": f"{base}/history?limit=100",
        "tasks": f"{base}/tasks?limit=100",
        "letter": f"/v1/deadletters/{found[0].id}",
        "letters": "/v1/deadletters",
        "signals": f"{base}/signals",
    }
    told: dict[str, Any] = {}
    for name, path in paths.items():
        got = await here.ask(who, "GET", path)
        assert got.status == 200, (path, got.body)
        told[name] = got.json()
    return told


async def test_who_may_only_read_sees_no_sensitive_field_anywhere(here: Place) -> None:
    id = await run(here)
    for who in ("only-read", "reader", "all-but-operate"):
        told = await answers(here, who, id)
        assert not [name for name, one in told.items() if SSN in json.dumps(one)], who
        assert told["execution"]["input"] == {"ssn": "***", "name": "Ann"}
        all = {"who": {"ssn": "***", "name": "Ann"}, "t": "***"}
        assert told["execution"]["output"] == {"all": all, "n": 1}
        assert told["copy"]["output"] == all
        assert told["item"]["output"] == {"v": "***"}
        assert told["letter"]["input"] == {"a": ["***"], "name": "Ann"}


async def test_who_may_operate_the_execution_sees_it(here: Place) -> None:
    id = await run(here)
    for who in ("root", "billing"):
        told = await answers(here, who, id)
        assert told["execution"]["input"]["ssn"] == SSN
        assert told["copy"]["output"]["t"] == f"no. {SSN}"
        assert told["item"]["output"] == {"v": SSN}
        assert SSN in json.dumps(told["history"])
        assert told["letter"]["input"]["a"] == [SSN]
    # What an activity says of it in words is masked for all: it stands in logs, too.
    assert told["broken"]["error"]["message"] == "bad number ***"


@pytest.mark.parametrize(("who", "sees"), [("only-read", False), ("root", True), ("billing", True)])
async def test_the_data_of_an_event_that_failed_is_for_operators(
    here: Place, who: str, sees: bool
) -> None:
    """Which part of it is sensitive only a start would have told."""
    await run(here)
    trigger = {
        "name": "failing",
        "workflow": "billing-secret",
        "match": {"type": "x.made"},
        "input": {"ssn": "${event.data.ssn}"},
    }
    assert (await here.ask("root", "POST", "/v1/triggers", json=trigger)).status == 201
    event = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "x.made"}
    sent = event | {"data": {"ssn": [SSN]}}
    headers = {"Content-Type": "application/cloudevents+json"}
    await here.ask("root", "POST", "/v1/events", json=sent, headers=headers)
    wanted = LetterFilter(error_type="INPUT_INVALID")
    found, _ = await letters_list.page(here.world.engine, ACME, wanted, limit=9, after=None)
    got = (await here.ask(who, "GET", f"/v1/deadletters/{found[0].id}")).json()
    assert (SSN in str(got)) is sees
    assert event.items() <= got["event"].items()


async def test_a_finding_about_a_sensitive_field_does_not_repeat_it(here: Place) -> None:
    await run(here)
    given = {"input": {"ssn": [SSN]}}
    got = await here.ask("root", "POST", "/v1/workflows/billing-secret/start", json=given)
    assert got.status == 422
    assert SSN not in str(got.body)
    assert "$.input.ssn" in str(got.body)


@pytest.mark.parametrize(
    ("who", "tenant", "get", "put"),
    [
        ("root", ACME, 200, 403),  # a tenant's own administrator does not open its gates
        ("only-operate", ACME, 200, 403),
        ("only-read", ACME, 403, 403),
        ("root", BETA, 404, 404),
        ("platform", ACME, 200, 200),
        ("platform", BETA, 200, 200),
        ("platform-viewer", ACME, 404, 404),
    ],
)
async def test_who_sees_and_who_sets_egress_lists(
    here: Place, who: str, tenant: str, get: int, put: int
) -> None:
    url = f"/v1/tenants/{tenant}/egress"
    assert (await here.ask(who, "GET", url)).status == get
    assert (await here.ask(who, "PUT", url, json={"onlyHosts": ["a.example"]})).status == put


async def test_the_lists_reach_http_tasks_within_a_second_and_only_of_their_tenant(
    here: Place,
) -> None:
    calls: list[ActivityCall] = []
    here.world.activities.functions["weft.http"] = calls.append
    request = {"method": "GET", "url": "https://a.example/"}
    workflow = {"name": "caller", "tasks": {"a": {"type": "http", "request": request}}}
    for who in ("root", "beta"):
        await here.ask(who, "POST", "/v1/workflows", json=workflow)
        await here.ask(who, "POST", "/v1/workflows/caller/start", json={})
    await here.world.run_until_quiet()
    lists = {"onlyHosts": ["B.example"], "networks": ["10.1.0.0/16"]}
    got = await here.ask("platform", "PUT", EGRESS, json=lists)
    assert (got.headers["etag"], got.json()["onlyHosts"]) == ('"1"', ["b.example"])
    here.world.clock.jump(1_000)
    for who in ("root", "beta"):
        await here.ask(who, "POST", "/v1/workflows/caller/start", json={})
    await here.world.run_until_quiet()
    seen = {(call.tenant, call.egress.names("a.example"), call.egress.networks) for call in calls}
    assert seen == {
        (ACME, True, ()),
        (BETA, True, ()),
        (ACME, False, ("10.1.0.0/16",)),
    }
    record = (await here.ask("root", "GET", "/v1/audit?action=egress.put")).json()["items"][0]
    assert (record["by"], record["resource"]) == ("pat", "egress:tenant")
    wrong = await here.ask("platform", "PUT", EGRESS, json={"onlyHosts": ["https://x"]})
    assert wrong.status == 422
