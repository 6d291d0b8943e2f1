"""Health: each dependency by itself, what waits, and that asking is no load."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from orchestrator.domain.topology import ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine import health, levels
from orchestrator.engine.incoming import Incoming
from orchestrator.ports import Unavailable
from tests.support.definitions import flow
from tests.support.world import START, World
from tests.unit.engine.conftest import MakeWorld

MINUTE = 60_000


class Dependency:
    """Answers as the test says."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Exception | None = None
        self.hanging = False

    async def ping(self) -> None:
        self.asked += 1
        if self.hanging:
            await asyncio.Event().wait()
        if self.answer is not None:
            raise self.answer


@pytest.fixture
async def world(make: MakeWorld) -> World:
    return await make()


@pytest.fixture
def broker(world: World) -> Dependency:
    found = Dependency()
    world.engine.probes = {"broker": found, "payloads": Dependency()}
    return found


async def test_each_dependency_has_its_answer_and_latency(world: World, broker: Dependency) -> None:
    view = await health.check(world.engine)
    assert view.status == "ok"
    assert set(view.checks) >= {"store", "broker", "payloads", "backlog", "activities"}
    for name in ("store", "broker", "payloads"):
        assert view.checks[name].ok
        assert view.checks[name].latency_ms is not None


async def test_a_dependency_that_fails_degrades_and_its_words_are_not_shown(
    world: World, broker: Dependency
) -> None:
    """Its error may name hosts, accounts or keys; its neighbours are asked all the same."""
    broker.answer = Unavailable("Endpoint=sb://secret.example;SharedAccessKey=abc")
    view = await health.check(world.engine)
    assert view.status == "degraded"
    assert (view.checks["broker"].ok, view.checks["broker"].detail) == (False, "Unavailable")
    assert view.checks["payloads"].ok
    assert view.checks["store"].ok


async def test_a_dependency_that_hangs_is_not_waited_for(
    world: World, broker: Dependency, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROBE_S", 0.01)
    broker.hanging = True
    view = await health.check(world.engine)
    assert (view.status, view.checks["broker"].detail) == ("degraded", "no answer within 0.01 s")


async def test_only_a_store_that_does_not_answer_is_down(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: object) -> object:
        raise Unavailable("away")

    monkeypatch.setattr(world.engine.store, "read_many", away)
    assert (await health.check(world.engine)).status == "down"


async def test_many_who_ask_at_once_are_one_question(world: World, broker: Dependency) -> None:
    views = await asyncio.gather(*(health.recent(world.engine) for _ in range(50)))
    assert broker.asked == 1
    assert all(view is views[0] for view in views)
    assert await health.recent(world.engine) is views[0]


async def test_who_gives_up_does_not_take_the_answer_of_the_others(
    world: World, broker: Dependency, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROBE_S", 0.02)
    broker.hanging = True
    first = asyncio.create_task(health.recent(world.engine))
    second = asyncio.create_task(health.recent(world.engine))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).status == "degraded"


async def test_an_answer_is_asked_for_again_when_it_is_old(
    world: World, broker: Dependency, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "KEEP_S", 0)
    await health.recent(world.engine)
    broker.answer = OSError()
    assert (await health.recent(world.engine)).status == "degraded"


async def test_an_outbox_that_nobody_sends_shows_its_age_and_degrades(world: World) -> None:
    """From its commit on; the sweeper has a minute and the alert three."""
    await world.publish(flow("f", w={"type": "wait", "duration": "1h"}))
    world.transport.failing = True
    await world.start("f")
    await world.clock.advance(90_000)
    view = await health.check(world.engine)
    assert view.status == "ok"
    assert (view.checks["backlog"].seconds or {})["outbox"] == 90
    assert world.engine.metrics.value("weft_outbox_age_seconds") == 90
    await world.clock.advance(5 * MINUTE)
    view = await health.check(world.engine)
    assert view.status == "degraded"
    assert view.checks["backlog"].detail == (
        "messages wait unsent for 390 s; an execution is overdue for 330 s"
    )
    world.transport.failing = False
    await world.sweep()
    assert (await health.check(world.engine)).status == "ok"
    assert world.engine.metrics.value("weft_outbox_age_seconds") == 0


async def test_the_wait_of_received_messages_is_kept_for_one_to_two_minutes(world: World) -> None:
    """Without a broker that knows: the longest wait of a window, so that one quick message does
    not hide a backlog."""
    engine, name = world.engine, f"{levels.QUEUE_OLDEST}{{{TASKS_STANDARD_QUEUE}}}"
    world.clock.jump(-(START % levels.WINDOW_MS))  # at the begin of a window
    for waited in (40_000, 1_000):
        one = Incoming(body=b"", enqueued_at=world.clock.now() - waited)
        levels.heard(engine, TASKS_STANDARD_QUEUE, [Incoming(body=b""), one])
    shown = engine.metrics.value("weft_queue_oldest_seconds", TASKS_STANDARD_QUEUE)
    assert shown == 40  # told at once: the sweeper may be another process's
    for passed, expected in ((0, 40_000), (MINUTE, 40_000), (MINUTE, 0), (9 * MINUTE, 0)):
        world.clock.jump(passed)
        assert (await levels.refresh(engine))[name] == expected
        shown = engine.metrics.value("weft_queue_oldest_seconds", TASKS_STANDARD_QUEUE)
        assert shown == expected / 1000


async def test_a_broker_that_knows_is_asked_and_an_empty_queue_falls_to_zero(world: World) -> None:
    class Broker:
        since: Mapping[str, int] = {ORCHESTRATION_QUEUE: START - 6 * MINUTE}

        async def oldest(self) -> Mapping[str, int]:
            return self.since

    engine = world.engine
    engine.backlog = Broker()
    view = await health.check(engine)
    assert view.checks["backlog"].seconds == {
        "outbox": 0,
        "overdue": 0,
        f"queue {ORCHESTRATION_QUEUE}": 360,
    }
    assert view.status == "degraded"
    engine.backlog.since = {}
    assert (await health.check(engine)).status == "ok"
    assert engine.metrics.value("weft_queue_oldest_seconds", ORCHESTRATION_QUEUE) == 0
