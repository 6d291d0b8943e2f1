"""Limits as they are written, stored, and remembered."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.domain.errors import PreconditionError
from orchestrator.domain.tenant_limits import LimitsModel, TenantLimits, read
from orchestrator.domain.topology import CATALOG, MAX_PAYLOAD_BYTES
from orchestrator.engine import audit_reads, tenant_limits
from orchestrator.engine.audit_reads import AuditFilter
from orchestrator.engine.core import Engine, Tunables
from orchestrator.engine.remembered import REMEMBERED_MS
from orchestrator.engine.tenant_limits import LimitBook
from orchestrator.ports import Throttled, Unavailable
from orchestrator.settings import load_settings
from tests.support.faults import FaultyStore, times
from tests.support.world import TENANT, World, quiesce

DEFAULTS = TenantLimits(open_executions=100, starts_per_second=5, starts_burst=50)


@pytest.fixture
async def world(make: Any) -> World:
    return await make(tunables=Tunables(limits=DEFAULTS), wrap_store=FaultyStore)


async def put(engine: Engine, if_match: str | None = None, by: str = "ann", **limits: Any) -> Any:
    return await tenant_limits.put(
        engine, TENANT, LimitsModel.model_validate(limits), if_match=if_match, by=by
    )


async def known(engine: Engine) -> TenantLimits:
    return await engine.part(LimitBook).of(TENANT)


@pytest.mark.parametrize(
    ("given", "open", "rate", "burst"),
    [
        ({}, 100, 5, 50),
        ({"openExecutions": 0}, 0, 5, 50),
        ({"openExecutions": None}, None, 5, 50),
        # A rate of its own: the default's burst goes with the default's rate.
        ({"startsPerSecond": 2.5}, 100, 2.5, 3),
        ({"startsPerSecond": 2, "startsBurst": 9}, 100, 2, 9),
        ({"startsBurst": 9}, 100, 5, 9),
        ({"startsPerSecond": None}, 100, None, 1),
        ({"startsPerSecond": 0.001}, 100, 0.001, 1),
    ],
)
def test_what_is_said_stands_over_the_defaults(
    given: dict[str, Any], open: int | None, rate: float | None, burst: int
) -> None:
    found = LimitsModel.model_validate(given).over(DEFAULTS)
    assert (found.open_executions, found.starts_per_second, found.burst) == (open, rate, burst)


@pytest.mark.parametrize(
    "given",
    [
        {"startsPerSecond": 0},
        {"startsPerSecond": math.inf},
        {"startsPerSecond": "5"},
        {"startsBurst": 0},
        {"openExecutions": -1},
        {"openExecutions": 1.5},
        {"openExecutions": True},
        {"concurrentTasks": 0},
        {"payloadBytes": 1023},
        {"payloadBytes": MAX_PAYLOAD_BYTES + 1},
        {"openExecution": 1},
    ],
)
def test_numbers_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LimitsModel.model_validate(given)


def test_what_newer_code_wrote_is_passed_over() -> None:
    stored = {"openExecutions": 3, "schedules": "many", "dreams": 4, "startsBurst": None}
    assert read(stored).stored() == {"openExecutions": 3, "startsBurst": None}


def test_the_settings_are_the_defaults() -> None:
    found = load_settings({}).tenant_limits
    assert (found.open_executions, found.starts_per_second) == (100_000, None)
    assert found.max_payload == MAX_PAYLOAD_BYTES
    given = {"WEFT_LIMIT_OPEN_EXECUTIONS": "none", "WEFT_LIMIT_STARTS_PER_SECOND": "2.5"}
    found = load_settings(given).tenant_limits
    assert (found.open_executions, found.starts_per_second, found.burst) == (None, 2.5, 3)


async def test_they_are_replaced_as_a_whole_and_audited(world: World) -> None:
    assert (await tenant_limits.show(world.engine, TENANT))[1] == "0"
    first, etag = await put(world.engine, openExecutions=3, schedules=None)
    assert (first.limits, etag) == ({"openExecutions": 3, "schedules": None}, "1")
    assert first.effective["openExecutions"] == 3
    assert first.effective["startsBurst"] == 50
    assert (await put(world.engine, openExecutions=3, schedules=None))[1] == "1"  # nothing changes
    second, etag = await put(world.engine, if_match="1", by="bob", schedules=4)
    assert (second.limits, second.updated_by, etag) == ({"schedules": 4}, "bob", "2")
    with pytest.raises(PreconditionError):
        await put(world.engine, if_match="1")
    assert await tenant_limits.show(world.engine, TENANT) == (second, "2")
    records, _ = await audit_reads.page(world.engine, TENANT, AuditFilter(), limit=10, after=None)
    assert [one.action for one in records] == ["limits.put"] * 2
    assert records[0].details == {
        "before": '{"openExecutions":3,"schedules":null}',
        "after": '{"schedules":4}',
    }


@pytest.mark.parametrize("if_match", ["1", None])
async def test_a_change_whose_answer_was_lost_is_done_and_audited_once(
    world: World, if_match: str | None
) -> None:
    await put(world.engine, openExecutions=3)
    store: Any = world.engine.store
    store.after = times(1, lambda: Unavailable("lost"), "replace")
    putting = asyncio.create_task(put(world.engine, if_match, "bob", openExecutions=4))
    while not putting.done():
        await quiesce()
        await world.clock.advance(1_000)
    shown, etag = await putting
    assert (shown.limits, etag) == ({"openExecutions": 4}, "2")
    records, _ = await audit_reads.page(world.engine, TENANT, AuditFilter(), limit=10, after=None)
    assert [(one.by, dict(one.details or {})["before"]) for one in records] == [
        ("bob", '{"openExecutions":3}'),
        ("ann", ""),
    ]


async def test_a_process_reads_them_once_a_second(world: World) -> None:
    other = world.another("other")
    assert await known(world.engine) == DEFAULTS
    await put(other, openExecutions=3)
    world.clock.jump(REMEMBERED_MS - 1)
    assert (await known(world.engine)).open_executions == 100
    assert (await known(other)).open_executions == 3  # who wrote them knows them at once
    world.clock.jump(1)
    store: Any = world.engine.store
    store.calls.clear()
    found = await asyncio.gather(*(known(world.engine) for _ in range(50)))
    assert {one.open_executions for one in found} == {3}
    assert store.calls == ["read_many"]
    await other.close()


async def test_trouble_in_reading_them_refuses_nobody(world: World) -> None:
    store: Any = world.engine.store
    store.before = times(1, lambda: Unavailable("away"), "read_many")
    assert await known(world.engine) == DEFAULTS
    store.before = lambda name, args: None
    await put(world.engine, openExecutions=3)
    assert (await known(world.engine)).open_executions == 3
    world.clock.jump(REMEMBERED_MS)
    store.before = times(1, lambda: Throttled("slow down"), "read_many")
    assert (await known(world.engine)).open_executions == 3  # the last that were known
    assert (await known(world.engine)).open_executions == 3
    assert store.calls.count("read_many") < 6
    assert world.engine.metrics.counters["weft_limits_trouble_total"] == 2


async def test_a_damaged_document_limits_as_the_defaults_do(world: World) -> None:
    await put(world.engine, openExecutions=3)
    doc = await world.sqlite.read(CATALOG, (TENANT,), tenant_limits.KIND)
    await world.sqlite.replace(CATALOG, (TENANT,), {**doc.body, "limits": "{no json"})
    fresh = world.another("fresh")
    assert await known(fresh) == DEFAULTS
    await fresh.close()
