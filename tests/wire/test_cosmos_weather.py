"""The service is busy, slow, moved or gone: what the store says, and how often it asked.

Waits are recorded instead of slept where the service's wish would be long.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.adapters.azure.cosmos_store import CosmosStore
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.ports import (
    Conflict,
    Create,
    NotFound,
    PreconditionFailed,
    Query,
    Replace,
    StoreError,
    Throttled,
    TooLarge,
    Unavailable,
)
from tests.wire.cosmos import CosmosServer
from tests.wire.cosmos.opening import wire_store

E1 = ("t", "e1")


def doc(id: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "tenantId": "t", "executionId": "e1", **fields}


class Weather:
    """A server, a store on it that does not really sleep, and the waits it asked for."""

    def __init__(self, server: CosmosServer, store: CosmosStore, waits: list[float]) -> None:
        self.server, self.store, self.waits = server, store, waits

    def asked(self, kind: str) -> int:
        return self.server.counters.requests[kind]


@pytest.fixture
async def weather() -> AsyncIterator[Weather]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with wire_store(sleep=sleep, request_timeout_s=0.2) as (server, store):
        await store.create(EXECUTIONS, E1, doc("there", v=1))
        await store.query(EXECUTIONS, Query())  # the SDK's maps are warm
        server.counters.clear()
        yield Weather(server, store, waits)


async def call(store: CosmosStore, kind: str) -> Any:
    """One operation whose HTTP request is of this kind."""
    match kind:
        case "read":
            return await store.read(EXECUTIONS, E1, "there")
        case "create":
            return await store.create(EXECUTIONS, E1, doc("new"))
        case "upsert":
            return await store.upsert(EXECUTIONS, E1, doc("new"))
        case "replace":
            return await store.replace(EXECUTIONS, E1, doc("there", v=2))
        case "delete":
            return await store.delete(EXECUTIONS, E1, "there")
        case "batch":
            return await store.batch(EXECUTIONS, E1, [Create(doc("new"))])
        case "query":
            return await store.query(EXECUTIONS, Query(partition=E1))
        case _:
            return await store.changes(EXECUTIONS, None, 10)


WRITES = ["create", "upsert", "replace", "delete", "batch"]
ALL = ["read", *WRITES, "query", "feed"]


@pytest.mark.parametrize("kind", ALL)
async def test_throttling_within_the_budget_is_waited_for_as_told(
    weather: Weather, kind: str
) -> None:
    weather.server.faults.add(kind, status=429, retry_after_ms=500, times=3)
    await call(weather.store, kind)
    assert weather.waits == [0.5, 0.5, 0.5]
    assert weather.store.meter.throttled.total() == 3
    assert weather.server.counters.statuses[f"{kind} 429"] == 3


@pytest.mark.parametrize("kind", ALL)
async def test_throttling_beyond_the_budget_is_a_clear_error_and_sdk_retries_do_not_multiply_it(
    weather: Weather, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """3,000 ms at 700 ms each: 4 waits, 5 requests. The SDK alone would have sent 10 for each."""
    weather.server.faults.add(kind, status=429, retry_after_ms=700, times=1_000)
    with caplog.at_level(logging.WARNING), pytest.raises(Throttled) as caught:
        await call(weather.store, kind)
    assert caught.value.retry_after_ms == 700
    assert weather.waits == [0.7] * 4
    assert weather.asked(kind) == 5
    [record] = [one for one in caplog.records if one.name.startswith("orchestrator")]
    assert record.__dict__["action"] == "store.throttled"


async def test_a_wait_longer_than_the_budget_is_not_begun(weather: Weather) -> None:
    weather.server.faults.add("create", status=429, retry_after_ms=60_000)
    with pytest.raises(Throttled) as caught:
        await call(weather.store, "create")
    assert (weather.waits, caught.value.retry_after_ms) == ([], 60_000)


async def test_throttling_without_a_wish_backs_off(weather: Weather) -> None:
    weather.server.faults.add("read", status=429, times=3)
    await call(weather.store, "read")
    assert weather.waits == [0.1, 0.1, 0.1]


@pytest.mark.parametrize("kind", ["create", "batch", "replace"])
async def test_449_is_tried_again_because_nothing_was_written(weather: Weather, kind: str) -> None:
    weather.server.faults.add(kind, status=449, times=5)
    await call(weather.store, kind)
    assert weather.waits == [0.01, 0.01, 0.01, 0.01, 0.016]
    assert weather.asked(kind) == 6


@pytest.mark.parametrize("status", [408, 500, 503])
@pytest.mark.parametrize("kind", WRITES)
async def test_an_unclear_write_is_unavailable_and_never_sent_twice(
    weather: Weather, kind: str, status: int
) -> None:
    """The SDK sends a write again after 503; its author would be told 409 about his own write."""
    weather.server.faults.add(kind, status=status, applied=True)
    with pytest.raises(Unavailable):
        await call(weather.store, kind)
    assert weather.asked(kind) == 1
    left = {found.id for found in await weather.store.query(EXECUTIONS, Query(partition=E1))}
    assert left == {"delete": set(), "replace": {"there"}}.get(kind, {"there", "new"})


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("kind", WRITES)
async def test_an_answer_lost_with_the_connection_is_unavailable_and_not_sent_twice(
    weather: Weather, kind: str, applied: bool
) -> None:
    """azure-core calls a connection closed before the answer a request that was not sent."""
    weather.server.faults.add(kind, drop=True, applied=applied)
    with pytest.raises(Unavailable):
        await call(weather.store, kind)
    assert weather.asked(kind) == 1
    if applied and kind == "create":
        with pytest.raises(Conflict):
            await call(weather.store, kind)
    else:
        await weather.store.upsert(EXECUTIONS, E1, doc("there"))


@pytest.mark.parametrize("kind", ["read", "create", "batch", "query"])
async def test_a_request_that_is_never_answered_times_out(weather: Weather, kind: str) -> None:
    weather.server.faults.add(kind, hang=True)
    with pytest.raises(Unavailable):
        await call(weather.store, kind)
    assert weather.asked(kind) <= 1  # what hangs is counted when it ends
    await call(weather.store, kind)


async def test_a_read_answered_503_is_unavailable_after_one_more_try_of_the_sdk(
    weather: Weather,
) -> None:
    """In another region, if the account has one. A query would be tried four times."""
    weather.server.faults.add("read", status=503, times=2)
    with pytest.raises(Unavailable):
        await call(weather.store, "read")
    assert weather.asked("read") == 2
    await call(weather.store, "read")


@pytest.mark.parametrize("kind", ["read", "query", "feed"])
async def test_a_read_whose_connection_broke_is_sent_once_more(weather: Weather, kind: str) -> None:
    weather.server.faults.add(kind, drop=True)
    await call(weather.store, kind)
    weather.server.faults.add(kind, drop=True, times=2)
    with pytest.raises(Unavailable):
        await call(weather.store, kind)


async def test_a_service_that_is_gone_is_unavailable(weather: Weather) -> None:
    await weather.server.stop()
    for kind in ("read", "create", "batch"):
        with pytest.raises(Unavailable):
            await call(weather.store, kind)
    await weather.server.start()
    assert (await weather.store.read(EXECUTIONS, E1, "there")).body["v"] == 1


@pytest.mark.parametrize("kind", ["read", "create", "batch", "query"])
async def test_a_range_that_moved_is_asked_again_with_a_fresh_map(
    weather: Weather, kind: str
) -> None:
    """410/1002: not served, so even a write may be repeated."""
    weather.server.faults.add(kind, status=410, sub_status=1002)
    await call(weather.store, kind)
    assert weather.asked(kind) == 2
    assert weather.asked("pkranges") >= 1


async def test_a_range_that_keeps_moving_is_unavailable(weather: Weather) -> None:
    weather.server.faults.add("create", status=410, sub_status=1002, times=100)
    with pytest.raises(Unavailable):
        await call(weather.store, "create")


@pytest.mark.parametrize(
    ("kind", "status", "sub_status", "error"),
    [
        ("create", 410, 21005, Unavailable),  # gone, and not known to be unserved
        ("read", 404, 1002, Unavailable),  # a lagging replica is no missing document
        ("read", 404, 0, NotFound),
        ("create", 403, 1014, TooLarge),  # the partition is full
        ("create", 403, 0, StoreError),
        ("read", 401, 0, StoreError),
        ("batch", 413, 0, TooLarge),
        ("create", 418, 0, StoreError),
    ],
)
async def test_statuses_become_port_errors(
    weather: Weather, kind: str, status: int, sub_status: int, error: type[StoreError]
) -> None:
    weather.server.faults.add(kind, status=status, sub_status=sub_status, times=3)
    with pytest.raises(StoreError) as caught:
        await call(weather.store, kind)
    assert type(caught.value) is error
    assert caught.value.__cause__ is not None
    assert f"{kind} {EXECUTIONS}" in str(caught.value)


async def test_a_missing_container_is_not_a_missing_document() -> None:
    async with wire_store() as (server, _):
        server.account.create("empty")
        store = CosmosStore(server.endpoint, "empty", "a2V5")
        await store.open()
        for operation in ("read", "create", "query", "batch"):
            with pytest.raises(StoreError, match="does not exist") as caught:
                await call(store, operation)
            assert not isinstance(caught.value, NotFound)
        await store.close()


async def test_a_stale_read_is_found_out_by_its_etag(weather: Weather) -> None:
    """Another process's write not seen yet: deciding on it fails with 412, never overwrites."""
    store = weather.store
    await store.replace(EXECUTIONS, E1, doc("there", v=2))
    weather.server.faults.add("read", stale=True)
    old = await store.read(EXECUTIONS, E1, "there")
    assert old.body["v"] == 1
    with pytest.raises(PreconditionFailed):
        await store.batch(EXECUTIONS, E1, [Replace(doc("there", v=9), old.etag)])
    assert (await store.read(EXECUTIONS, E1, "there")).body["v"] == 2


async def test_a_refused_change_page_skips_nothing(weather: Weather) -> None:
    """Azure/azure-sdk-for-java#43701, on the wire: 429 and lost answers between and in pages."""
    for n in range(20):
        await weather.store.create(EXECUTIONS, ("t", f"x{n}"), {**doc("d"), "executionId": f"x{n}"})
    weather.server.faults.add("feed", status=410, sub_status=0, times=100)
    weather.server.faults.add("feed", status=429, retry_after_ms=9_000, times=100)
    seen: list[str] = []
    cursor: str | None = None
    failures = 0
    while True:
        rules = weather.server.faults.rules
        rules[0].skip, rules[0].times = 1, int(failures % 3 == 0)
        rules[1].skip, rules[1].times = 0, int(failures % 3 == 1)
        try:
            page = await weather.store.changes(EXECUTIONS, cursor, 3)
        except (Throttled, Unavailable):
            failures += 1
            continue
        cursor = page.cursor
        seen += [found.body["executionId"] for found in page.documents]
        failures += 1
        if not page.documents:
            break
    assert failures > 8
    assert sorted(seen) == sorted(["e1", *(f"x{n}" for n in range(20))])
