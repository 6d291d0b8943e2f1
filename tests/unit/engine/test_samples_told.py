"""The samples that tell others: parcel-handover by events, payout by a webhook."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from orchestrator.domain import jsonvalues
from orchestrator.domain.parsing import parse_yaml
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import letters_list, triggers
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.ports import ActivityCall, Query, Where
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

SAMPLES = Path(__file__).parents[3] / "samples"
PARCEL: Any = json.loads((SAMPLES / "parcel-handover/parcel.json").read_text())


def read(name: str) -> Any:
    return parse_yaml((SAMPLES / name).read_bytes())


@pytest.mark.parametrize(("grams", "letters"), [(850, 1), (2_001, 0)])
async def test_a_parcel_is_announced_and_its_customer_written_to(
    make: MakeWorld, grams: int, letters: int
) -> None:
    world = await make()
    await world.publish(read("parcel-handover/letter.yaml"))
    await world.publish(read("parcel-handover/workflow.yaml"))
    await triggers.create(world.engine, TENANT, read("parcel-handover/trigger.yaml"))
    started = await world.start("parcel-handover", {**PARCEL, "grams": grams})
    await world.run_until_quiet()
    assert (await world.view(started.id)).output["event"] == f"{started.id}:announce"
    found = await started_by(world, "trigger:parcel-letters")
    assert len(found) == letters
    for id in found:
        text = "Dear ada@example.com, parcel P-17 goes by post."
        assert (await world.view(id)).output == text


async def started_by(world: World, owner: str) -> list[str]:
    query = Query(where=(Where("type", "=", "execution"),), limit=100)
    docs = await world.sqlite.query(EXECUTIONS, query)
    return [doc.id for doc in docs if doc.body["startedBy"] == owner]


async def test_the_receiver_is_told_of_every_end_once(make: MakeWorld) -> None:
    sample = runpy.run_path(str(SAMPLES / "payout/receiver.py"))
    app = sample["application"]("s3cret")
    books = app[sample["BOOKS"]]
    async with TestClient(TestServer(app)) as receiver:

        async def send(call: ActivityCall) -> Any:
            request: Any = call.input
            body = jsonvalues.dumps(request["body"])
            answer = await receiver.post("/payouts", data=body, headers=request["headers"])
            assert answer.status in (204, 503), await answer.text()
            answer.raise_for_status()
            return {"status": answer.status, "headers": {}, "body": None}

        world = await make(**{"weft.http": send})
        world.secrets.values[TENANT, "payout_hook"] = "s3cret"
        books.genuine.__func__.__globals__["time"] = world_time(world)
        await world.publish(read("payout/workflow.yaml"))
        good = await world.start("payout", {"account": "DE-1", "amount": 120.5})
        bad = await world.start("payout", {"account": "XX-9", "amount": 9})
        await world.run_until_quiet()
        refused = await receiver.post("/payouts", data=b"{}")
        assert refused.status == 401
    told = {entry["execution"]: entry for entry in books.entries.values()}
    assert set(told) == {good.id, bad.id}
    paid = {"to": "Ada Lovelace", "account": "DE-1", "paid": 120.5}
    assert (told[good.id]["status"], told[good.id]["output"]) == ("COMPLETED", paid)
    assert told[bad.id]["error"] == {"type": "EXPRESSION_FAILED", "task": "payee"}
    assert "output" not in told[bad.id]
    found, _ = await letters_list.page(world.engine, TENANT, LetterFilter(), limit=9, after=None)
    assert [letter.kind for letter in found] == ["task"]


def world_time(world: World) -> Any:
    """The receiver's clock is the world's."""

    class Time:
        @staticmethod
        def time() -> float:
            return world.clock.now() / 1000

    return Time
