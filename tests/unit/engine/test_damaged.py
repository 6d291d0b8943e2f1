"""Documents of `control` and `catalog` that somebody has damaged: who is hit, and who mends it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.egress import EgressModel
from orchestrator.domain.errors import UnavailableError
from orchestrator.domain.grant_model import GrantsModel
from orchestrator.domain.tenant_limits import LimitsModel
from orchestrator.domain.topology import CATALOG, CONTROL
from orchestrator.engine import control, egress, grants, tenant_limits
from orchestrator.engine.core import Engine
from orchestrator.ports import Query, Where
from tests.support.definitions import flow
from tests.support.world import TENANT
from tests.unit.engine.conftest import MakeWorld


@pytest.mark.parametrize(
    "damage",
    [
        {"holders": None},
        {"holders": [["x"]]},
        {"holders": [["x", 1, False, 2]]},
        {"waiting": 5},
        {"displaced": [["a"]]},
        {"version": "x"},
    ],
)
async def test_a_damaged_concurrency_group_begins_anew(
    make: MakeWorld, damage: dict[str, Any]
) -> None:
    """Nobody waits for ever, and nothing becomes a dead letter."""
    world = await make()
    waits = flow(w={"type": "wait", "duration": "1h"}) | {"concurrency": {"limit": 1}}
    await world.publish(waits)
    ids = [(await world.start("flow")).id for _ in range(3)]
    await world.settle()
    query = Query(where=(Where("type", "=", "place"),), limit=10)
    (found,) = await world.sqlite.query(CONTROL, query)
    body = {name: value for name, value in found.body.items() if not name.startswith("_")}
    body |= damage
    await world.sqlite.replace(CONTROL, (found.id,), body, if_match=found.etag)
    await control.act(world.engine, TENANT, ids[0], control.CANCEL, by="me")
    await world.settle()
    for _ in range(3):  # who waits asks again when the sweeper looks after it
        await world.clock.advance(3_700_000)
        await world.sweep()
        await world.settle()
    states = [(await world.view(id)).status.value for id in ids]
    assert states == ["CANCELLED", "COMPLETED", "COMPLETED"]
    letters = Query(where=(Where("type", "=", "deadletter"),), limit=10)
    assert await world.sqlite.query("executions", letters) == []


@pytest.mark.parametrize("text", ["{", "[5", "7", '"x"', 5, None])
@pytest.mark.parametrize("kind", ["limits", "egress", "grants"])
async def test_what_is_stored_for_a_tenant_names_its_mend(
    make: MakeWorld, kind: str, text: Any
) -> None:
    world = await make()
    body = {"id": kind, "type": kind, "tenantId": TENANT, "v": 1, kind: text, "revision": 4}
    body |= {"updatedAt": 1, "updatedBy": "x"}
    await world.sqlite.create(CATALOG, (TENANT,), body)
    engine = world.engine
    shows: dict[str, Any] = {
        "limits": tenant_limits.show,
        "egress": egress.show,
        "grants": grants.show,
    }
    with pytest.raises(UnavailableError) as caught:
        await shows[kind](engine, TENANT)
    assert f"PUT /v1/tenants/{TENANT}/{kind}" in caught.value.message
    assert "--replace" in caught.value.message
    await emptied(engine, kind)
    assert (await shows[kind](engine, TENANT))[1] == "5"


async def emptied(engine: Engine, kind: str) -> None:
    if kind == "limits":
        await tenant_limits.put(engine, TENANT, LimitsModel(), if_match=None, by="me")
    elif kind == "egress":
        await egress.put(engine, TENANT, EgressModel(), if_match=None, by="me")
    else:
        await grants.put(engine, TENANT, GrantsModel(grants=[]), if_match=None, by="me")


@pytest.mark.parametrize("kind", ["limits", "egress", "grants"])
async def test_what_is_stored_for_a_tenant_is_mended_whatever_is_missing(
    make: MakeWorld, kind: str
) -> None:
    world = await make()
    body = {"id": kind, "type": kind, "tenantId": TENANT, "v": 1}
    await world.sqlite.create(CATALOG, (TENANT,), body)
    await emptied(world.engine, kind)
    found = (await world.sqlite.read(CATALOG, (TENANT,), kind)).body
    assert (found["revision"], found["updatedBy"]) == (1, "me")
