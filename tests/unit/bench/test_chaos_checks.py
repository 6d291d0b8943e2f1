"""The checks behind `make chaos` find what they are for: planted violations, one by one.

The soak itself takes a minute and real processes; what would make it worthless is a check that
never fails.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bench import chaos_checks
from bench.chaos_checks import Findings, check, check_broker
from bench.chaos_load import LOADS, Load
from orchestrator.adapters.local.sqlite_broker import SqliteBroker
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.ports import ActivityCall, OutMessage
from tests.support.world import TENANT, FakeActivities, World

FLAKY = next(load for load in LOADS if load.name == "chaos-flaky")
DOOMED = next(load for load in LOADS if load.name == "chaos-doomed")


def flaky(call: ActivityCall) -> Any:
    if call.attempt <= 2:
        raise ValueError("again")
    return call.input


def broken(call: ActivityCall) -> Any:
    raise ValueError("never")


async def run(folder: Path) -> tuple[World, dict[str, tuple[str, Load]]]:
    """Two executions that have ended, as a soak leaves them."""
    activities = {"chaos.flaky": flaky, "chaos.broken": broken, "chaos.step": lambda call: 2}
    fakes = FakeActivities()
    fakes.functions |= activities
    world = await World(folder, fakes).open()
    accepted: dict[str, tuple[str, Load]] = {}
    for load in (FLAKY, DOOMED):
        await world.publish(load.definition)
        accepted[load.name] = ((await world.start(load.name, key=load.name)).id, load)
    await world.run_until_quiet()
    return world, accepted


async def change(world: World, partition: tuple[str, str], id: str, **fields: Any) -> None:
    body = (await world.sqlite.read(EXECUTIONS, partition, id)).body
    await world.sqlite.upsert(EXECUTIONS, partition, {**body, **fields})


async def lose(world: World, id: str) -> None:
    await world.sqlite.delete(EXECUTIONS, (TENANT, id), id)


async def double(world: World, id: str) -> None:
    body = (await world.sqlite.read(EXECUTIONS, (TENANT, id), id)).body
    await world.sqlite.create(
        EXECUTIONS, (TENANT, "other"), {**body, "id": "other", "executionId": "other"}
    )


async def spoil_history(world: World, id: str) -> None:
    await world.sqlite.delete(EXECUTIONS, (TENANT, id), "events:0000000001")


async def leave_outbox(world: World, id: str) -> None:
    body = {"id": "outbox:x", "type": "outbox", "tenantId": TENANT, "executionId": id, "v": 1}
    await world.sqlite.create(EXECUTIONS, (TENANT, id), body)


async def leave_lease(world: World, id: str) -> None:
    await change(world, (TENANT, id), "task:t", status="RUNNING", lease={"until": 1})


async def succeed_twice(world: World, id: str) -> None:
    body = (await world.sqlite.read(EXECUTIONS, (TENANT, id), "task:t")).body
    twice = [*body["attempts"], {**body["attempts"][-1], "attempt": body["attempt"] + 1}]
    await change(world, (TENANT, id), "task:t", attempts=twice)


async def fail_wrongly(world: World, id: str) -> None:
    await change(world, (TENANT, id), "task:t", status="DEAD_LETTERED")


async def record_twice(world: World, id: str) -> None:
    for seq in (1, 2, 3):
        body = (await world.sqlite.read(EXECUTIONS, (TENANT, id), f"events:{seq:010}")).body
        if any(event["type"] == "taskCompleted" for event in body["events"]):
            await change(world, (TENANT, id), body["id"], events=body["events"] * 2)
            return
    raise AssertionError("no result in the history")


PLANTED: dict[Callable[[World, str], Awaitable[None]], set[str]] = {
    lose: {"accepted starts exist"},
    double: {"no execution that nobody started", "one execution for each key"},
    spoil_history: {"history folds to the state"},
    leave_outbox: {"no outbox left"},
    leave_lease: {"no lease left", "no task left open"},
    succeed_twice: {"one successful attempt at most"},
    fail_wrongly: {"only what must fail failed", "every dead task has its letter"},
    record_twice: {"each result is recorded once", "history folds to the state"},
}


async def found(world: World, accepted: dict[str, tuple[str, Load]]) -> set[str]:
    return set((await check(world.engine, accepted, [])).wrong)


@pytest.fixture(autouse=True)
def tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos_checks, "TENANT", TENANT)


async def test_what_a_soak_leaves_behind_passes(tmp_path: Path) -> None:
    world, accepted = await run(tmp_path)
    try:
        report = await check(world.engine, accepted, [])
        assert report.wrong == {}
        assert report.looked["every execution ended as it must"] == 2
        assert report.looked["every dead task has its letter"] == 1
    finally:
        await world.close()


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
async def test_a_planted_violation_is_found(
    plant: Callable[[World, str], Awaitable[None]], tmp_path: Path
) -> None:
    world, accepted = await run(tmp_path)
    try:
        await plant(world, accepted["chaos-flaky"][0])
        assert PLANTED[plant] <= await found(world, accepted)
    finally:
        await world.close()


async def test_another_end_than_the_expected_one_is_found(tmp_path: Path) -> None:
    world, accepted = await run(tmp_path)
    try:
        accepted["chaos-flaky"] = (accepted["chaos-flaky"][0], DOOMED)
        assert "every execution ended as it must" in await found(world, accepted)
    finally:
        await world.close()


async def test_messages_that_are_left_in_the_broker_are_found(tmp_path: Path) -> None:
    file = tmp_path / "broker.db"
    broker = SqliteBroker(file)
    await broker.open()
    await broker.send([OutMessage(queue="tasks-standard", body=b"{}", message_id="m1")])
    await broker.close()
    report = Findings()
    check_broker(report, file)
    assert set(report.wrong) == {"no message left"}
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE messages SET queue = queue || '/$DeadLetterQueue'")
    report = Findings()
    check_broker(report, file)
    assert set(report.wrong) == {"no message left", "no message was dead-lettered"}
