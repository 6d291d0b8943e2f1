"""A process's memory of secrets, and what an attempt does with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.failure import Failure
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import letters_act, letters_list
from orchestrator.engine.core import Tunables
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.engine.secret_book import FRESH_MS, KEEP_MISSING_MS, SecretBook
from orchestrator.ports import ActivityCall, ActivityFailed, SecretNotFound, Throttled
from tests.support.world import TENANT, FakeActivities, World

TTL = 60_000
KEY = (TENANT, "KEY")


class CountingSecrets:
    """Secrets that count how often they are asked, and wait until they may answer."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], str] = {}
        self.asked = 0
        self.fault: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def get(self, tenant: str, name: str) -> str:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        if (tenant, name) not in self.values:
            raise SecretNotFound("no such secret")
        return self.values[tenant, name]


class Seen:
    """An activity that keeps what it was given and fails as it is told."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.failure: Failure | None = None

    def __call__(self, call: ActivityCall) -> Any:
        self.inputs.append(call.input)
        if self.failure is not None:
            raise ActivityFailed(self.failure)
        return {"echo": call.input}


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def secrets() -> CountingSecrets:
    return CountingSecrets()


@pytest.fixture
async def world(tmp_path: Path, seen: Seen, secrets: CountingSecrets) -> AsyncIterator[World]:
    world = World(tmp_path, FakeActivities(work=seen), tunables=Tunables(secrets_ttl_ms=TTL))
    world.secrets = world.engine.secrets = secrets  # type: ignore[assignment]
    await world.open()
    yield world
    await world.close()


def book(world: World) -> SecretBook:
    return world.engine.part(SecretBook)


async def test_a_value_is_asked_for_once_in_its_time_and_rotation_is_noticed(
    world: World, secrets: CountingSecrets
) -> None:
    secrets.values[KEY] = "old"
    assert {*await asyncio.gather(*(book(world).get(*KEY) for _ in range(50)))} == {"old"}
    assert secrets.asked == 1
    secrets.values[KEY] = "new"
    await world.clock.advance(TTL - 1)
    assert await book(world).get(*KEY) == "old"
    await world.clock.advance(1)
    assert await book(world).get(*KEY) == "new"
    assert secrets.asked == 2


async def test_one_tenants_value_is_never_anothers(world: World, secrets: CountingSecrets) -> None:
    secrets.values |= {KEY: "ours", ("other", "KEY"): "theirs"}
    assert [await book(world).get(t, "KEY") for t in (TENANT, "other")] == ["ours", "theirs"]
    with pytest.raises(SecretNotFound):
        await book(world).get("third", "KEY")


async def test_a_missing_secret_is_remembered_briefly_and_a_fault_not_at_all(
    world: World, secrets: CountingSecrets
) -> None:
    for _ in range(3):
        with pytest.raises(SecretNotFound):
            await book(world).get(*KEY)
    assert secrets.asked == 1
    await world.clock.advance(KEEP_MISSING_MS)
    secrets.fault = Throttled("busy")
    with pytest.raises(Throttled):
        await book(world).get(*KEY)
    secrets.fault, secrets.values[KEY] = None, "value"
    assert await book(world).get(*KEY) == "value"


async def test_one_who_gives_up_does_not_take_the_others_answer(
    world: World, secrets: CountingSecrets
) -> None:
    secrets.values[KEY], secrets.gate = "value", asyncio.Event()
    impatient = asyncio.create_task(book(world).get(*KEY))
    patient = asyncio.create_task(book(world).get(*KEY))
    await asyncio.sleep(0)
    impatient.cancel()
    secrets.gate.set()
    assert await patient == "value"
    assert secrets.asked == 1


def definition(**task: Any) -> dict[str, Any]:
    work = {"type": "activity", "activity": "work", "input": {"key": "${secrets.KEY}"}, **task}
    return {"name": "flow", "onFailure": "continue", "tasks": {"a": work}}


REFUSED = Failure(type="HttpClientError", message="GET x: 401 Unauthorized", retryable=False)


async def test_after_a_401_the_next_attempt_reads_the_secret_afresh(
    world: World, secrets: CountingSecrets, seen: Seen
) -> None:
    secrets.values[KEY] = "old-value"
    await book(world).get(*KEY)
    await world.clock.advance(FRESH_MS)
    await world.publish(definition())
    secrets.values[KEY], seen.failure = "new-value", REFUSED
    id = (await world.start("flow")).id
    await world.settle()
    seen.failure = None
    await world.run_until_quiet()
    assert [given["key"] for given in seen.inputs] == ["old-value", "new-value"]
    assert (await world.statuses(id))["a"] == "COMPLETED"


async def test_a_401_with_an_unchanged_secret_stays_final_and_does_not_load_the_vault(
    world: World, secrets: CountingSecrets, seen: Seen
) -> None:
    secrets.values[KEY], seen.failure = "the-value", REFUSED
    await world.publish(definition())
    ids = [(await world.start("flow")).id for _ in range(20)]
    await world.run_until_quiet()
    assert {(await world.statuses(id))["a"] for id in ids} == {"DEAD_LETTERED"}
    assert len(seen.inputs) == 20
    assert secrets.asked == 1


async def test_an_edited_input_keeps_the_mask_and_the_worker_fills_it_in(
    world: World, secrets: CountingSecrets, seen: Seen
) -> None:
    secrets.values[KEY], seen.failure = "s3cr3t-Ω/+=", REFUSED
    given = {"auth": ["Bearer ${secrets.KEY}"], "amount": 1}
    await world.publish(definition(input=given))
    id = (await world.start("flow")).id
    await world.run_until_quiet()
    found, _ = await letters_list.page(world.engine, TENANT, LetterFilter(), limit=9, after=None)
    letter = await letters_list.show(world.engine, TENANT, found[0].id)
    assert letter.input == {"auth": ["Bearer ***"], "amount": 1}
    seen.failure = None
    edited = {**letter.input, "amount": 2}
    wish = Wish(action=Action.RETRY, by="o", reason="", value=edited, edited=True)
    await letters_act.act(world.engine, TENANT, letter.id, wish)
    await world.run_until_quiet()
    assert seen.inputs[-1] == {"auth": ["Bearer s3cr3t-Ω/+="], "amount": 2}
    docs = await world.sqlite.read_many(EXECUTIONS, (TENANT, id), [id, "task:a", "dead:a:1"])
    stored = json.dumps([doc.body for doc in docs.values()], ensure_ascii=False)
    assert "Bearer ***" in stored
    assert "s3cr3t" not in stored
