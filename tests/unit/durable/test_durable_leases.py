"""Several processes on one file: who is late writes nothing, who is dead is replaced."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from orchestrator.local.durable import clients
from orchestrator.local.durable import events as ev
from orchestrator.local.durable.driver import Machine
from orchestrator.local.durable.grouping import Grouped
from orchestrator.local.durable.hub import LEASE_MS, Hub
from orchestrator.local.durable.protocol import drive
from orchestrator.local.durable.store import Claim, DurableStore, repeatable
from orchestrator.ports import StoreError
from tests.support.durable_app import CALLS, app
from tests.support.durable_hub import NOW, Run, start


@pytest.fixture
def world(tmp_path: Path) -> Run:
    return Run(app, tmp_path / "durable.db")


def commit(world: Run, claim: Claim) -> bool:
    function = world.hub.plain(claim.identity.name)
    assert function is not None
    machine = Machine(claim.identity, claim.history)
    turn = drive(machine.turn(claim.news, claim.held, NOW), function)
    return world.client.commit_turn(claim, turn, NOW, "fresh")


def test_a_turn_belongs_to_one_until_its_lease_ends(world: Run) -> None:
    start("chain", '"1"').act(world.client, NOW)
    (late,) = world.client.claim_turns("one", NOW, NOW + LEASE_MS, 9)
    assert world.client.claim_turns("two", NOW + LEASE_MS - 1, NOW, 9) == []
    (again,) = world.client.claim_turns("two", NOW + LEASE_MS, NOW + 2 * LEASE_MS, 9)
    assert not commit(world, late)
    assert world.history() == []
    assert commit(world, again)
    assert not commit(world, again)


def test_what_was_started_anew_meanwhile_is_not_touched(world: Run) -> None:
    start("chain", '"1"').act(world.client, NOW)
    (claim,) = world.client.claim_turns("one", NOW, NOW + LEASE_MS, 9)
    clients.terminate(world.client, "i", "", NOW)
    clients.start(world.client, "i", "fan", None, NOW, "other")
    assert not commit(world, claim)
    assert world.status().name == "fan"


def test_an_activity_is_recorded_by_who_has_it(world: Run) -> None:
    start("chain", '"1"').act(world.client, NOW)
    (claim,) = world.client.claim_turns("one", NOW, NOW + LEASE_MS, 9)
    commit(world, claim)
    (late,) = world.client.claim_calls("one", NOW, NOW + LEASE_MS, 9)
    world.client.renew([late], [], NOW + 2 * LEASE_MS)
    assert world.client.claim_calls("two", NOW + LEASE_MS, NOW, 9) == []
    world.client.release([late], [])
    (again,) = world.client.claim_calls("two", NOW, NOW + LEASE_MS, 9)
    done = ev.completed(ev.TASK_COMPLETED, NOW, again.task, "2")
    assert not world.client.finish_call(late, done)
    assert world.client.finish_call(again, done)
    assert not world.client.finish_call(again, done)
    (turn,) = world.client.claim_turns("x", NOW, NOW + LEASE_MS, 9)
    assert [event["Result"] for event in turn.news] == ["2"]


async def test_results_of_an_earlier_execution_find_nobody(world: Run) -> None:
    start("chain", '"1"').act(world.client, NOW)
    (claim,) = world.client.claim_turns("one", NOW, NOW + LEASE_MS, 9)
    commit(world, claim)
    (call,) = world.client.claim_calls("one", NOW, NOW + LEASE_MS, 9)
    clients.terminate(world.client, "i", "", NOW)
    clients.start(world.client, "i", "chain", '"5"', NOW, "other")
    world.client.finish_call(call, ev.completed(ev.TASK_COMPLETED, NOW, call.task, "2"))
    await world.go()
    assert world.seen()[1] == "40"


async def test_who_is_stopped_gives_back_what_it_had(world: Run) -> None:
    start("chain", '"1"').act(world.client, NOW)
    await world.hub.look()  # claimed, and not begun
    await world.hub.drain(0)
    assert world.client.next_due(NOW) == 0
    await world.go()
    assert world.seen()[:2] == ("Completed", "8")
    assert CALLS["double"] == 3


async def test_a_hub_hears_of_what_another_process_has_written(tmp_path: Path) -> None:
    """`run`, not `step`: it sleeps, and wakes by the file's counter of foreign commits."""
    world = Run(app, tmp_path / "durable.db")
    store = DurableStore(tmp_path / "durable.db")
    grouped = Grouped(store)
    hub = Hub(
        store,
        orchestrators=world.hub.orchestrators,
        activities=world.hub.activities,
        plain={},
        clock=world.clock,
        new_id=iter("abcdefghijklmnopqrstuvwxyz").__next__,
        call=grouped,
    )
    running = asyncio.create_task(hub.run())
    await asyncio.sleep(0)
    start("fan").act(world.client, NOW)
    async with asyncio.timeout(20):
        while True:
            if world.status().ended:
                break
            await asyncio.sleep(0.002)
    assert world.seen()[:2] == ("Completed", "12")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await hub.drain(1_000)
    await grouped.close()


async def test_calls_that_wait_together_are_one_commit_and_fail_alone(tmp_path: Path) -> None:
    store = DurableStore(tmp_path / "durable.db", durable=False)
    said: list[str] = []
    store.db.set_trace_callback(said.append)
    grouped = Grouped(store)

    def fails() -> None:
        with store.transaction() as db:
            db.execute("INSERT INTO timers VALUES ('lost', 'x', 0, 0)")
            raise ValueError("mine alone")

    jobs = [grouped(clients.start, store, f"i{n}", "fan", None, NOW, f"x{n}") for n in range(5)] + [
        grouped(fails)
    ]
    done = await asyncio.gather(*jobs, return_exceptions=True)
    assert done[:5] == [True] * 5
    assert isinstance(done[5], ValueError)
    assert [one.id for one in await grouped(clients.select, store, "1", [])] == [
        f"i{n}" for n in range(5)
    ]
    assert await grouped(store.next_due, NOW) == 0
    assert await grouped(store.fire_timers, NOW) == 0  # no trace of the one that failed
    await grouped.close()
    commits = [text for text in said if text == "COMMIT"]
    assert 1 <= len(commits) <= 2  # the first may have gone alone


@pytest.mark.parametrize("content", [b"no database at all", None], ids=["rubbish", "newer"])
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "durable.db"
    if content is None:
        store = DurableStore(path)
        store.db.execute("PRAGMA user_version=99")
        store.close()
    else:
        path.write_bytes(content * 100)
    with pytest.raises(StoreError, match=r"durable\.db cannot be opened: "):
        DurableStore(path)


async def test_who_waited_longest_has_the_next_turn(world: Run) -> None:
    for n, name in enumerate("zyx"):
        start("race", instance=name).act(world.client, NOW + n)
    (first,) = world.client.claim_turns("one", NOW + 9, NOW + LEASE_MS, 1)
    world.client.release([], [first])
    assert first.identity.instance == "z"
    commit(world, world.client.claim_turns("two", NOW + 9, NOW + LEASE_MS, 1)[0])  # at NOW
    clients.raise_event(world.client, "z", "Approval", "1", NOW + 9)
    with world.client.transaction() as db:
        db.execute("UPDATE instances SET updated = ? WHERE id = 'z'", (NOW + 5,))
    rest = [world.client.claim_turns(f"{n}", NOW + 9, NOW + LEASE_MS, 1)[0] for n in range(3)]
    assert [claim.identity.instance for claim in rest] == ["y", "x", "z"]


async def test_only_what_was_seen_outside_waits_for_the_disk(tmp_path: Path) -> None:
    store = DurableStore(tmp_path / "durable.db")
    levels: list[int] = []

    def level() -> None:
        with store.transaction() as db:
            levels.extend(db.execute("PRAGMA synchronous").fetchone())

    grouped = Grouped(store)
    normal, full = 1, 2
    await grouped(repeatable(level))
    await grouped(clients.start, store, "i", "fan", None, NOW, "x")
    level.repeatable = False  # type: ignore[attr-defined]
    await grouped(level)
    await grouped.close()
    assert levels == [normal, full]
    assert {name for name, one in vars(DurableStore).items() if getattr(one, "repeatable", 0)} == {
        "fire_timers",
        "claim_turns",
        "claim_calls",
        "renew",
        "next_due",
        "foreign_commits",
    }


async def test_a_hub_that_is_woken_as_it_is_stopped_does_stop(world: Run) -> None:
    running = asyncio.create_task(world.hub.run())
    for _ in range(20):  # it rests
        await asyncio.sleep(0)
    world.hub.wake()
    await asyncio.sleep(0)  # the event has woken its waiter, and that one has not gone on
    running.cancel()
    async with asyncio.timeout(20):
        await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()


def test_a_file_that_was_deleted_takes_no_more_work(world: Run, tmp_path: Path) -> None:
    """What was started then was gone when the platform stopped."""
    (tmp_path / "durable.db").unlink()
    with pytest.raises(sqlite3.OperationalError, match="was deleted or replaced"):
        start("chain", '"1"').act(world.client, NOW)
