"""Values in the url of an http task stay data: they cannot choose another resource."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.engine import inspect
from orchestrator.ports import ActivityCall
from tests.support.world import TENANT
from tests.unit.engine.conftest import MakeWorld


def _charge(url: str) -> dict[str, Any]:
    request = {"method": "DELETE", "url": url, "headers": {"x-name": "${input.id}"}}
    return {"name": "flow", "tasks": {"a": {"type": "http", "request": request}}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", "https://pay.example/charges/7"),
        ("../admin?x=1#y", "https://pay.example/charges/..%2Fadmin%3Fx%3D1%23y"),
        (
            '"}], "x": "y\n{{x}}',
            "https://pay.example/charges/%22%7D%5D%2C%20%22x%22%3A%20%22y%0A%7B%7Bx%7D%7D",
        ),
    ],
)
async def test_values_pasted_into_a_url_are_encoded_and_elsewhere_byte_exact(
    make: MakeWorld, value: str, expected: str
) -> None:
    """argoproj/argo-workflows#6441: a quote breaks the text or rewrites the definition."""
    seen: list[Any] = []

    def http(call: ActivityCall) -> None:
        seen.append(call.input)

    world = await make(**{"weft.http": http})
    await world.publish(_charge("https://pay.example/charges/${input.id}"))
    await world.start("flow", {"id": value})
    await world.settle()
    assert seen[0]["url"] == expected
    assert seen[0]["headers"] == {"x-name": value}


async def test_an_empty_value_in_a_url_is_a_failure_that_names_field_and_expression(
    make: MakeWorld,
) -> None:
    world = await make(**{"weft.http": lambda call: None})
    await world.publish(_charge("https://pay.example/charges/${input.id}"))
    started = await world.start("flow", {"id": ""})
    await world.settle()
    task = await inspect.task(world.engine, TENANT, started.id, "a")
    assert task.error is not None
    assert task.error.type == "EXPRESSION_FAILED"
    assert task.error.field == "$.tasks.a.request.url"
    assert task.error.expression == "input.id"
    assert world.activities.calls == []


async def test_a_url_that_is_one_expression_is_taken_as_it_is(make: MakeWorld) -> None:
    seen: list[Any] = []

    def http(call: ActivityCall) -> None:
        seen.append(call.input)

    world = await make(**{"weft.http": http})
    await world.publish(_charge("${input.url}"))
    await world.start("flow", {"id": "x", "url": "https://a.example/b?c=d"})
    await world.settle()
    assert seen[0]["url"] == "https://a.example/b?c=d"
