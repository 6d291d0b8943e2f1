"""Cancel with compensation, terminate and compensation's views over the real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from http_client import Client
from http_support import make_client

from orchestrator.engine import catalog, submit
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import FakeActivities, World

TENANT = "default"
UNDO = {"type": "activity", "activity": "work", "retry": retry(1)}


def work(call: ActivityCall) -> Any:
    if call.task in ("b", "a~undo") and call.input is None:
        raise ValueError(f"{call.task} is broken")
    return {"by": call.task}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path, FakeActivities(work=work)).open()
    saga = flow("saga", a=task("work", compensate=UNDO), b=task("work", "a", retry=retry(1)))
    await catalog.publish(made.engine, TENANT, saga)
    waiting = {"type": "wait", "needs": ["a"], "duration": "1h"}
    fine = {**UNDO, "input": 1}
    await catalog.publish(
        made.engine, TENANT, flow("wait", a=task("work", compensate=fine), w=waiting)
    )
    yield made
    await made.close()


@pytest.fixture
def api(world: World) -> Client:
    async def build() -> Any:
        return world.engine

    return make_client(EngineProvider(build))


async def started(world: World, name: str) -> str:
    found = await submit.start(world.engine, TENANT, name, None)
    await world.settle()
    return f"/v1/executions/{found.id}"


async def test_cancel_with_compensation_answers_compensating_and_ends_cancelled(
    world: World, api: Client
) -> None:
    own = await started(world, "wait")
    body = {"compensate": True, "reason": "withdrew"}
    for _ in range(2):
        answer = await api("POST", f"{own}/cancel", json=body)
        assert (answer.status, answer.json()["status"]) == (200, "COMPENSATING")
    assert answer.json()["compensation"] == {
        "status": "running",
        "tasks": 1,
        "done": 0,
        "failed": [],
        "left": [],
    }
    refused = await api("POST", f"{own}/pause")
    assert (refused.status, refused.json()["error"]["code"]) == (409, "CANNOT_PAUSE")
    await world.settle()
    view = (await api("GET", own)).json()
    assert (view["status"], view["compensation"]["status"]) == ("CANCELLED", "complete")
    listed = (await api("GET", f"{own}/tasks")).json()["items"]
    assert [(one["id"], one["compensates"]) for one in listed] == [
        ("a", None),
        ("w", None),
        ("a~undo", "a"),
    ]
    one = await api("GET", f"{own}/tasks/a~undo")
    assert (one.status, one.json()["output"]) == (200, {"by": "a~undo"})
    history = (await api("GET", f"{own}/history")).json()["items"]
    (begun,) = [event for event in history if event["type"] == "compensationStarted"]
    assert (begun["ending"], begun["reason"]) == ("CANCELLED", "withdrew")
    (done,) = [e for e in history if e["type"] == "taskCompleted" and e["task"] == "a"]
    assert done["undo"] == "a~undo"


async def test_terminate_ends_it_and_is_refused_after_another_end(
    world: World, api: Client
) -> None:
    own = await started(world, "wait")
    for _ in range(2):
        answer = await api("POST", f"{own}/terminate", json={"reason": "enough"})
        assert (answer.status, answer.json()["status"]) == (200, "CANCELLED")
        assert answer.json()["terminated"] is True
    assert answer.json()["compensation"]["status"] == "notRun"
    assert answer.json()["compensation"]["left"] == ["a~undo"]
    own = await started(world, "saga")
    refused = await api("POST", f"{own}/terminate")
    assert (refused.status, refused.json()["error"]["code"]) == (409, "CANNOT_TERMINATE")
    assert (await api("POST", "/v1/executions/nope/terminate")).status == 404


async def test_the_dead_letter_of_a_compensation_is_retried_by_its_id(
    world: World, api: Client
) -> None:
    own = await started(world, "saga")
    view = (await api("GET", own)).json()
    assert (view["status"], view["compensation"]["failed"]) == ("FAILED", ["a~undo"])
    letters = (await api("GET", "/v1/deadletters?task=a~undo")).json()["items"]
    (id,) = [letter["id"] for letter in letters]
    assert (await api("GET", f"/v1/deadletters/{id}")).json()["task"] == "a~undo"
    done = await api("POST", f"/v1/deadletters/{id}/retry", json={"input": 1})
    assert (done.status, done.json()["status"]) == (200, "RETRIED")
    await world.settle()
    assert (await api("GET", own)).json()["compensation"]["status"] == "complete"


async def test_what_was_compensated_is_not_retried(world: World, api: Client) -> None:
    own = await started(world, "saga")
    letters = (await api("GET", "/v1/deadletters?task=b")).json()["items"]
    for path in (f"{own}/retry", f"/v1/deadletters/{letters[0]['id']}/retry"):
        refused = await api("POST", path)
        assert refused.status == 409
        assert refused.json()["error"]["code"] == "ALREADY_COMPENSATED"
        assert "replay" in refused.json()["error"]["message"]
    bulk = await api("POST", "/v1/deadletters/bulk", json={"action": "retry", "filter": {}})
    assert bulk.status == 200
    assert [one["code"] for one in bulk.json()["refused"]] == ["ALREADY_COMPENSATED"]
    assert bulk.json()["done"] == 1  # the one of the compensation


async def test_cancel_refuses_what_it_does_not_know(world: World, api: Client) -> None:
    own = await started(world, "wait")
    bad = await api("POST", f"{own}/cancel", json={"compensat": True})
    assert bad.status == 422
    assert "compensate" in bad.json()["error"]["details"][0]["hint"]
    wrong = await api("POST", f"{own}/cancel", json={"compensate": "yes"})
    assert wrong.status == 422
    assert (await api("POST", f"{own}/terminate", json={"compensate": True})).status == 422
