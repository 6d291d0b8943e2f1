"""Change feed and timers: what moves on although a function raised, and what fires once."""

from __future__ import annotations

import asyncio
from typing import Any

import azure.functions as func
import pytest
from azure.functions.timer import TimerRequest
from host_fakes import FakeClock, FakeStore, local_host, settle

from orchestrator.local.host.feed_listener import BUSY_DOCUMENTS, BUSY_MS
from orchestrator.local.host.host import FEED, TIMER, WORKER_ROLES
from orchestrator.ports import BadCursor, Unavailable

START = 1_800_000_000_000  # on a quarter of a minute


def feed_app(seen: list[Any], errors: list[Exception]) -> func.FunctionApp:
    app = func.FunctionApp()

    @app.cosmos_db_trigger(
        arg_name="documents",
        connection="Cosmos",
        database_name="db",
        container_name="executions",
        lease_container_prefix="relay",
    )
    async def relay(documents: func.DocumentList) -> None:
        seen.append(documents)
        if errors:
            raise errors.pop(0)

    return app


def ids(seen: list[Any]) -> list[list[str]]:
    return [[document["id"] for document in documents] for documents in seen]


async def test_checkpoint_moves_although_the_function_raised() -> None:
    """Like the real change-feed trigger: those documents never come again."""
    clock, store, seen = FakeClock(START), FakeStore(), []
    store.log = [{"id": "a"}, {"id": "b"}]
    app = feed_app(seen, [RuntimeError("once")])
    host = local_host(app, store=store, clock=clock, roles=frozenset({FEED}), feed_page=500)
    await host.start()
    await settle()
    store.log += [{"id": "c"}]
    await clock.advance(1000)
    await host.stop()
    assert ids(seen) == [["a", "b"], ["c"]]
    assert store.leases["relay.executions"]["cursor"] == "3"


async def test_the_place_is_kept_between_runs() -> None:
    clock, store, seen = FakeClock(START), FakeStore(), []
    store.log = [{"id": "a"}]
    for _ in range(2):
        host = local_host(feed_app(seen, []), store=store, clock=clock, roles=frozenset({FEED}))
        await host.start()
        await settle()
        await host.stop()
        store.log += [{"id": "b"}]
    assert ids(seen) == [["a"], ["b"]]


async def test_full_pages_follow_each_other_without_waiting() -> None:
    clock, store, seen = FakeClock(START), FakeStore(), []
    store.log = [{"id": str(n)} for n in range(5)]
    host = local_host(
        feed_app(seen, []), store=store, clock=clock, roles=frozenset({FEED}), feed_page=2
    )
    await host.start()
    await settle()
    await host.stop()
    assert ids(seen) == [["0", "1"], ["2", "3"], ["4"]]


async def test_a_busy_feed_is_looked_at_less_often() -> None:
    """An execution that changes all the time is shown once a second, not at every look."""
    clock, store, seen = FakeClock(START), FakeStore(), []
    app = feed_app(seen, [])
    host = local_host(
        app, store=store, clock=clock, roles=frozenset({FEED}), feed_page=150, feed_poll_ms=250
    )
    store.log = [{"id": "a"}]
    await host.start()
    await settle()
    store.log += [{"id": str(n)} for n in range(BUSY_DOCUMENTS)]
    await clock.advance(250)
    assert [len(page) for page in ids(seen)] == [1, 150, BUSY_DOCUMENTS - 150]
    store.log += [{"id": "b"}]
    await clock.advance(BUSY_MS - 1)
    assert len(seen) == 3
    await clock.advance(1)
    assert ids(seen)[3:] == [["b"]]
    store.log += [{"id": "c"}]
    await clock.advance(250)
    await host.stop()
    assert ids(seen)[4:] == [["c"]]


async def test_two_functions_on_one_feed_have_a_place_each() -> None:
    """The relay and the projection: a batch that fails in one comes to the other all the same."""
    clock, store, seen = FakeClock(START), FakeStore(), []
    store.log = [{"id": "a"}]
    app, failing = feed_app(seen, []), []

    @app.cosmos_db_trigger(
        arg_name="documents",
        connection="Cosmos",
        database_name="db",
        container_name="executions",
        lease_container_prefix="visibility",
    )
    async def other(documents: func.DocumentList) -> None:
        failing.append(documents)
        raise RuntimeError("always")

    store.leases["visibility.executions"] = {"id": "visibility.executions", "cursor": "1"}
    host = local_host(app, store=store, clock=clock, roles=frozenset({FEED}))
    await host.start()
    await settle()
    store.log += [{"id": "b"}]
    await clock.advance(1000)
    await host.stop()
    assert (ids(seen), ids(failing)) == ([["a"], ["b"]], [["b"]])
    assert {lease["cursor"] for lease in store.leases.values()} == {"2"}


async def test_documents_are_real_and_carry_their_etag() -> None:
    clock, store, seen = FakeClock(START), FakeStore(), []
    store.log = [{"id": "a", "type": "outbox"}]
    host = local_host(feed_app(seen, []), store=store, clock=clock, roles=frozenset({FEED}))
    await host.start()
    await settle()
    await host.stop()
    (documents,) = seen
    assert type(documents) is func.DocumentList
    assert type(documents[0]) is func.Document
    assert documents[0].to_dict() == {"id": "a", "type": "outbox", "_etag": "ea"}
    assert store.log == [{"id": "a", "type": "outbox"}]  # the store's own body is left alone


async def test_a_store_that_fails_is_tried_again() -> None:
    clock, store, seen = FakeClock(START), FakeStore(), []
    store.log, store.fail = [{"id": "a"}], [Unavailable("down"), Unavailable("down")]
    host = local_host(feed_app(seen, []), store=store, clock=clock, roles=frozenset({FEED}))
    await host.start()
    await clock.advance(5000)
    await host.stop()
    assert ids(seen) == [["a"]]


async def test_a_lease_of_another_store_starts_from_the_beginning() -> None:
    clock, store, seen = FakeClock(START), FakeStore(), []
    store.log, store.fail = [{"id": "a"}], [BadCursor("not mine")]
    store.leases["relay.executions"] = {"id": "relay.executions", "cursor": "77"}
    host = local_host(feed_app(seen, []), store=store, clock=clock, roles=frozenset({FEED}))
    await host.start()
    await settle()
    await host.stop()
    assert ids(seen) == [["a"]]


def timer_app(calls: list[Any], *, startup: bool = False) -> func.FunctionApp:
    app = func.FunctionApp()

    @app.timer_trigger(arg_name="timer", schedule="*/15 * * * * *", run_on_startup=startup)
    async def sweeper(timer: func.TimerRequest) -> None:
        calls.append(timer)

    return app


async def test_a_timer_fires_once_per_due_time() -> None:
    clock, calls = FakeClock(START + 1), []
    host = local_host(timer_app(calls), clock=clock, roles=frozenset({TIMER}))
    await host.start()
    await clock.advance(14_998)
    assert calls == []
    await clock.advance(1)
    assert len(calls) == 1
    for _ in range(300):
        await clock.advance(200)
    await host.stop()
    assert len(calls) == 5
    assert type(calls[0]) is TimerRequest
    assert not calls[0].past_due
    assert calls[0].schedule_status["Next"] == "2027-01-15T08:00:30+00:00"


async def test_a_clock_that_is_set_back_does_not_fire_a_due_time_again() -> None:
    clock = FakeClock(START + 14_000)

    class SetsBack(list[Any]):
        def append(self, item: Any) -> None:
            super().append(item)
            clock._now -= 10_000

    calls = SetsBack()
    host = local_host(timer_app(calls), clock=clock, roles=frozenset({TIMER}))
    await host.start()
    for _ in range(11):
        await clock.advance(1_000)
    assert len(calls) == 1  # 10 s later the same due time is there once more
    for _ in range(15):
        await clock.advance(1_000)
    assert len(calls) == 2
    await host.stop()


async def test_a_clock_that_is_set_back_by_an_hour_does_not_stop_the_timers_for_one() -> None:
    clock = FakeClock(START + 14_000)

    class SetsBackOnce(list[Any]):
        def append(self, item: Any) -> None:
            clock._now -= 0 if self else 3_600_000
            super().append(item)

    calls = SetsBackOnce()
    host = local_host(timer_app(calls), clock=clock, roles=frozenset({TIMER}))
    await host.start()
    await clock.advance(1_000)  # to where it is by the clock: an hour goes by once more
    assert len(calls) == 1 + 3_600 // 15
    await host.stop()


async def test_due_times_during_a_long_call_are_passed_over() -> None:
    clock, calls = FakeClock(START + 1), []
    release = asyncio.Event()
    app = func.FunctionApp()

    @app.timer_trigger(arg_name="timer", schedule="*/15 * * * * *")
    async def slow(timer: func.TimerRequest) -> None:
        calls.append(timer)
        await release.wait()

    host = local_host(app, clock=clock, roles=frozenset({TIMER}))
    await host.start()
    await clock.advance(70_000)
    assert len(calls) == 1
    release.set()
    await clock.advance(5_000)
    assert len(calls) == 2
    assert not calls[1].past_due
    await host.stop()


async def test_run_on_startup_and_a_failing_timer_goes_on() -> None:
    clock, calls = FakeClock(START + 1), []

    class Failing(list[Any]):
        def append(self, item: Any) -> None:
            super().append(item)
            raise RuntimeError("always")

    calls = Failing()
    host = local_host(timer_app(calls, startup=True), clock=clock, roles=frozenset({TIMER}))
    await host.start()
    await settle()
    assert len(calls) == 1
    await clock.advance(30_000)
    assert len(calls) == 3
    await host.stop()


@pytest.mark.parametrize("kind", ["feed", "timer"])
async def test_only_one_of_several_processes_runs_feed_and_timers(kind: str) -> None:
    clock, store, seen = FakeClock(START), FakeStore(), []
    store.log = [{"id": "a"}]
    app = feed_app(seen, []) if kind == "feed" else timer_app(seen)
    host = local_host(app, store=store, clock=clock, roles=WORKER_ROLES - {"http"})
    await host.start()
    await clock.advance(60_000)
    await host.stop()
    assert seen == []
