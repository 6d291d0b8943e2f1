"""`weft verify` must find what it is there for: a history that does not lead to the state."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import documents, verify
from orchestrator.engine.views import VerifyReport
from tests.support.definitions import flow, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


async def _done(make: MakeWorld) -> tuple[World, str]:
    world = await make(noop=lambda call: call.item)
    do = task("noop")
    await world.publish(
        flow(m={"type": "map", "items": "${[1, 2, 3]}", "do": do}, z=task("noop", "m"))
    )
    started = await world.start("flow")
    await world.settle()
    await world.verified(started.id)
    return world, started.id


async def _verify(world: World, id: str) -> VerifyReport:
    return await verify.verify(world.engine, TENANT, id)


async def _change(world: World, execution: str, id: str, change: dict[str, Any]) -> None:
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, execution), id)
    await world.sqlite.replace(EXECUTIONS, (TENANT, execution), {**doc.body, **change})


@pytest.mark.parametrize("seq", [0, 1, 2])
async def test_a_missing_commit_is_found(make: MakeWorld, seq: int) -> None:
    world, id = await _done(make)
    await world.sqlite.delete(EXECUTIONS, (TENANT, id), documents.events_id(seq))
    report = await _verify(world, id)
    assert not report.ok
    assert report.problems == [f"commit {seq} is missing from the history"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("tasks", "CX"), ("tasks", "SC"), ("endedAt", 5), ("status", "FAILED"), ("acceptedAt", 1)],
)
async def test_a_state_that_differs_is_found_and_named(
    make: MakeWorld, field: str, value: Any
) -> None:
    world, id = await _done(make)
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, id), id)
    await _change(world, id, id, {"state": {**doc.body["state"], field: value}})
    report = await _verify(world, id)
    assert not report.ok
    assert field in report.problems[0]


async def test_a_count_of_a_map_that_differs_is_found(make: MakeWorld) -> None:
    world, id = await _done(make)
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, id), id)
    maps = {"0": {"count": 3, "failed": 3}}
    await _change(world, id, id, {"state": {**doc.body["state"], "maps": maps}})
    report = await _verify(world, id)
    assert not report.ok
    assert "maps" in report.problems[0]


async def test_an_event_that_cannot_be_read_or_cannot_be_is_found(make: MakeWorld) -> None:
    world, id = await _done(make)
    last = documents.events_id((await world.view(id)).seq)
    await _change(world, id, last, {"events": [{"type": "nonsense"}]})
    report = await _verify(world, id)
    assert not report.ok
    assert "cannot be read" in report.problems[0]
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, id), documents.events_id(1))
    await _change(world, id, last, {"events": doc.body["events"]})  # it starts a second time
    report = await _verify(world, id)
    assert not report.ok
    assert "impossible event" in report.problems[0]
