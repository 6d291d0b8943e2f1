"""What a receiver may answer to a notification, through the real http activity."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from activities.context import Context
from activities.egress import EgressPolicy
from activities.failures import failure_of
from activities.http import HttpActivity
from activities.http_request import HttpRequest
from orchestrator.engine import letters_list
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.ports import ActivityCall, ActivityFailed
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


async def notified(make: MakeWorld, activity: HttpActivity, url: str) -> World:
    """A world in which an execution has ended and `url` was told, as far as it would have it."""

    async def send(call: ActivityCall) -> Any:
        request = HttpRequest.model_validate(call.input)
        try:
            return await activity.run(request, Context(call, now=lambda: call.last_heartbeat_at))
        except Exception as error:
            raise ActivityFailed(failure_of(error)) from error

    world = await make(**{"weft.http": send, "work": lambda call: call.input})
    notify = [{"on": ["completed"], "webhook": {"url": url}}]
    definition = flow(a=task("work"), defaults={"retry": retry(3)})
    await world.publish({**definition, "notify": notify})
    await world.start("flow")
    await world.run_until_quiet()
    await activity.close()
    return world


async def letters(world: World) -> list[Any]:
    found, _ = await letters_list.page(world.engine, TENANT, LetterFilter(), limit=9, after=None)
    return found


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_does_not_count_as_delivered(
    make: MakeWorld, status: int
) -> None:
    """A POST that is redirected becomes a GET without a body, or a request without its signature:
    the page behind would answer 200, and nobody would have been told."""
    seen: list[str] = []

    def receive(request: httpx.Request) -> httpx.Response:
        seen.append(f"{request.method} {request.url}")
        if request.url.host == "old.example":
            there = {"location": "https://new.example/login"}
            return httpx.Response(status, headers=there, stream=httpx.ByteStream(b"moved"))
        return httpx.Response(200, stream=httpx.ByteStream(b""))

    activity = HttpActivity(policy=EgressPolicy(), transport=httpx.MockTransport(receive))
    world = await notified(make, activity, "https://old.example/hook")
    assert seen == ["POST https://old.example/hook"]
    [letter] = await letters(world)
    assert (letter.kind, letter.error.type) == ("notification", "HttpRedirectRefused")
    assert str(status) in letter.error.message


@pytest.mark.parametrize("body", [b"OK", b"{not json", b"\xff\xfe", b""])
async def test_any_2xx_is_success_whatever_its_body(make: MakeWorld, body: bytes) -> None:
    def receive(request: httpx.Request) -> httpx.Response:
        stream = httpx.ByteStream(body)
        return httpx.Response(202, headers={"content-type": "application/json"}, stream=stream)

    activity = HttpActivity(policy=EgressPolicy(), transport=httpx.MockTransport(receive))
    assert await letters(await notified(make, activity, "https://hooks.example/")) == []


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/x", "http://2852039166/", "http://127.0.0.1/", "http://[::]/"]
)
async def test_case_egress_the_rules_for_addresses_hold_for_webhooks(
    make: MakeWorld, url: str
) -> None:
    world = await notified(make, HttpActivity(policy=EgressPolicy()), url)
    [letter] = await letters(world)
    assert (letter.error.type, letter.attempt) == ("EgressRefused", 1)
