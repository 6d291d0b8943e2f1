"""Executions that an older version left half-way are finished by this one, and everything else that
it stored is read. Fixtures: see `record.py`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.cloudevents import structured
from orchestrator.domain.status import TERMINAL_EXECUTION
from orchestrator.domain.topology import LEASES, SCHEMA_VERSION
from orchestrator.engine import (
    audit_reads,
    breakers_act,
    events,
    grants,
    letters_bulk,
    rebuild,
    reconcile,
    schedule,
    schedule_reads,
    signals,
    submit,
    triggers,
)
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import Unavailable
from tests.support.lists import listed, truth
from tests.support.world import TENANT, CountingIds, FakeActivities, World
from tests.upgrade.record import record

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.json"))
MINUTE = 60_000
OUTPUTS = {"chain": [1, 2, 3, 4, 5]}
EVENT = {
    "specversion": "1.0",
    "id": "e1",
    "source": "/shops/berlin",
    "type": "order.placed",
    "data": {"n": 4},
}
ACTIVITIES = ("noop", "flaky", "bad", "die", "weft.http")


class Old:
    """A world on the documents of an older version, at the time when it stopped. Its messages are
    gone with its broker: what is due is all in the documents."""

    def __init__(self, fixture: dict[str, Any], world: World) -> None:
        self.has: set[str] = set(fixture["has"])
        self.world = world
        self.fixture = fixture

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        """Documents of a type as they were."""
        every = (body for docs in self.fixture["containers"].values() for _, body in docs)
        return [body for body in every if body["type"] == kind]

    async def finish(self) -> None:
        """Long enough for everything to end but what waits for a person."""
        for _ in range(24):
            await self.world.run_until_quiet(limit_ms=5 * MINUTE)
            await self.world.clock.advance(5 * MINUTE)
            await self.world.sweep()


@pytest.fixture(params=FIXTURES, ids=lambda path: path.stem)
async def old(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Old]:
    fixture = json.loads(request.param.read_text("utf-8"))
    world = await _world(tmp_path, fixture)
    yield Old(fixture, world)
    await world.close()


async def _world(folder: Path, fixture: dict[str, Any]) -> World:
    world = World(folder, FakeActivities(**dict.fromkeys(ACTIVITIES, lambda call: call.input)))
    world.engine.ids = CountingIds("new")
    await world.open()
    for container, docs in fixture["containers"].items():
        for partition, body in docs:
            await world.sqlite.create(container, tuple(partition), body)
    await world.clock.advance(fixture["now"] - world.clock.now())
    return world


async def test_executions_that_older_code_began_are_finished_by_this_one(old: Old) -> None:
    world = old.world
    begun = {doc["id"]: doc for doc in old.bodies("execution")}
    assert sum(doc["status"] not in ("COMPLETED", "FAILED") for doc in begun.values()) >= 8
    await old.finish()
    for doc in old.bodies("execution"):
        if doc["workflow"] == "asks" and (await world.view(doc["id"])).status == "RUNNING":
            await signals.send(world.engine, TENANT, doc["id"], "go", 5)
    wish = Wish(action=Action.RETRY, by="op")
    await letters_bulk.bulk(world.engine, TENANT, LetterFilter(), wish, limit=100)
    await old.finish()
    for id, doc in begun.items():
        view = await world.view(id)
        # What had been undone cannot be taken up again.
        expected = "FAILED" if doc["workflow"] == "undone" else "COMPLETED"
        assert view.status == expected, (doc["workflow"], view)
        assert view.output == OUTPUTS.get(doc["workflow"])
        await world.verified(id)
    await rebuild.visibility(world.engine)
    report = await reconcile.reconcile(world.engine, every=True, settle_ms=0)
    assert report.gaps == 0, report.found
    assert set(await listed(world)) >= set(begun)
    assert all(row["status"] in TERMINAL_EXECUTION for row in (await truth(world)).values())


async def test_definitions_stay_executable_and_new_ones_may_follow(old: Old) -> None:
    world = old.world
    [(version, text)] = {
        (doc["version"], doc["definition"])
        for doc in old.bodies("version")
        if doc["name"] == "chain"
    }
    changed = {**json.loads(text), "description": "newer"}
    assert await world.publish(changed) == version + 1
    pinned = await submit.start(world.engine, TENANT, "chain", {"n": 3}, version=version)
    latest = await world.start("chain", {"n": 3})
    assert (pinned.version, latest.version) == (version, version + 1)
    await old.finish()
    for id in (pinned.id, latest.id):
        assert (await world.view(id)).output == OUTPUTS["chain"]


async def test_what_is_beside_executions_is_read_and_goes_on(old: Old) -> None:
    world = old.world
    engine = world.engine
    if "schedule" in old.has:
        [due] = [doc["dueAt"] for doc in old.bodies("schedule")]
        await world.clock.advance(due + 1_000 - world.clock.now())
        started = 0
        for _ in range(10):  # the old leader may still be there, and is waited for
            started += (await schedule.run_due(engine)).started
            await world.clock.advance(5_000)
        assert started == 1
        assert (await schedule_reads.get(engine, TENANT, "s")).counts["started"] == 1
    if "trigger" in old.has:
        assert (await triggers.show(engine, TENANT, "t")).view.name == "t"
        event = structured(EVENT)
        [receipt] = await events.receive(engine, TENANT, [event])
        assert len(receipt.executions) == 1
    if "breaker" in old.has:
        assert (await breakers_act.show(engine, TENANT, "pay.example")).by == "op"
        await breakers_act.close(engine, TENANT, "pay.example", by="op")
    if "grants" in old.has:
        [grant] = (await grants.show(engine, TENANT))[0].grants
        assert grant.role == "operator"
    assert (await audit_reads.verify(engine, TENANT)).ok


def test_every_stored_document_says_its_schema_version() -> None:
    """What this code writes, and what is in the fixtures. The feed's leases are the extension's."""
    latest = asyncio.run(record("now"))
    assert {"grants", "notification", "auditHead", "lease"} <= set(_kinds(latest))
    for fixture in (latest, *(json.loads(path.read_text("utf-8")) for path in FIXTURES)):
        for container, docs in fixture["containers"].items():
            without = [body["type"] for _, body in docs if body.get("v") != SCHEMA_VERSION]
            assert container == LEASES or without == []


def _kinds(fixture: dict[str, Any]) -> list[str]:
    return [body["type"] for docs in fixture["containers"].values() for _, body in docs]


ALONE = ("execution", "items", "map", "outbox", "schedule", "signal", "task", "version", "workflow")
"""Types without which nothing goes on; of the others no one hides another."""
TYPES = set(_kinds(json.loads(FIXTURES[-1].read_text("utf-8")))) - {"lease"}
"""The scheduler's lease is taken over, whoever wrote it, or nobody could lead after a rollback: its
fields stay as they are in all versions."""


@pytest.mark.parametrize("kinds", [{one} for one in ALONE] + [TYPES - {*ALONE}], ids=min)
async def test_old_code_keeps_its_hands_off_what_newer_code_wrote(
    tmp_path: Path, kinds: set[str]
) -> None:
    """A deployment is rolled back: documents of the newer schema are neither changed nor removed,
    however long this code works beside them."""
    fixture = json.loads(FIXTURES[-1].read_text("utf-8"))
    newer = {}
    for container, docs in fixture["containers"].items():
        for partition, body in docs:
            if body["type"] in kinds:
                body["v"] = SCHEMA_VERSION + 1
                newer[container, *partition, body["id"]] = body
    world = await _world(tmp_path, fixture)
    for _ in range(2):
        await world.clock.advance(20 * MINUTE)
        await world.sweep()
    with contextlib.suppress(Unavailable):  # its workflow is newer: send the event again later
        await events.receive(world.engine, TENANT, [structured(EVENT)])
    for _ in range(10):
        await schedule.run_due(world.engine)
        await world.clock.advance(5_000)
    await rebuild.visibility(world.engine)
    await reconcile.reconcile(world.engine, settle_ms=0)
    for key, body in newer.items():
        container, *partition, id = key
        found = await world.sqlite.read(container, tuple(partition), id)
        assert found.body == body
    await world.close()


async def test_old_code_keeps_the_fields_that_it_does_not_know(tmp_path: Path) -> None:
    """Additive changes need no new schema version because of this: what a later version added is
    still there after this one has replaced the document."""
    fixture = json.loads(FIXTURES[-1].read_text("utf-8"))
    marked = []
    for container, docs in fixture["containers"].items():
        for partition, body in docs:
            if body["type"] in ("execution", "task", "signal", "schedule"):
                body["later"] = {"n": 1}
                marked.append((container, tuple(partition), body))
    world = await _world(tmp_path, fixture)
    await Old(fixture, world).finish()
    for _ in range(10):
        await schedule.run_due(world.engine)
        await world.clock.advance(5_000)
    changed = set()
    for container, partition, body in marked:
        found = (await world.sqlite.read(container, partition, body["id"])).body
        assert found.get("later") == {"n": 1}, (body["type"], found)
        changed |= {body["type"]} if found != body else set()
    assert changed == {"execution", "task", "signal", "schedule"}
    await world.close()
