"""What only the SQLite broker must prove: its file may vanish or break, and nothing stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from contract_support import ManualClock, message

from orchestrator.adapters.local.sqlite_broker import SqliteBroker
from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, ORCHESTRATION_QUEUE, QUEUES
from orchestrator.ports import MessageLockLost, TransportError

QUEUE = ORCHESTRATION_QUEUE
FOREVER_MS = 50_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker.db"


@asynccontextmanager
async def opened(path: Path, **arguments: object) -> AsyncIterator[SqliteBroker]:
    broker = SqliteBroker(path, **arguments)  # type: ignore[arg-type]
    await broker.open()
    yield broker
    await broker.close()


def delete_all(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def delete_database_only(path: Path) -> None:
    """Its log stays behind and must not be replayed into the new file."""
    path.unlink()


def replace_by_another(path: Path) -> None:
    delete_all(path)
    path.write_bytes(b"")


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(b"garbage!" * 4096)


@pytest.mark.parametrize("delete", [delete_all, delete_database_only, replace_by_another])
async def test_broker_file_deleted_while_open(path: Path, delete: Callable[[Path], None]) -> None:
    """Two brokers, as in two processes: both notice, meet in the new file, and nobody crashes."""
    async with opened(path) as one, opened(path) as two:
        for round in range(3):
            await one.send([message(f"locked{round}"), message(f"lost{round}")])
            (locked,) = await two.receive(QUEUE, 1, FOREVER_MS)
            waiting = asyncio.ensure_future(two.receive(QUEUE + DEAD_LETTER_SUFFIX, 1, FOREVER_MS))
            await asyncio.sleep(0)
            delete(path)
            with pytest.raises(MessageLockLost):
                await two.complete(locked)
            assert await one.receive(QUEUE, 10, 0) == []
            await one.send([message(f"lost{round}")])  # no duplicate: that memory is gone too
            (received,) = await two.receive(QUEUE, 10, FOREVER_MS)
            assert received.message_id == f"lost{round}"
            await two.dead_letter(received, "r", "d")
            assert len(await waiting) == 1


async def test_a_waiting_receiver_moves_on_to_the_new_file(path: Path) -> None:
    async with opened(path) as one, opened(path) as two:
        waiting = asyncio.ensure_future(two.receive(QUEUE, 1, FOREVER_MS))
        await asyncio.sleep(0)
        delete_all(path)
        await one.send([message("a")])
        assert [received.message_id for received in await waiting] == ["a"]


async def test_deleted_under_load_everything_sent_afterwards_arrives(path: Path) -> None:
    """Senders that send again what was not seen, as the sweeper does, get everything through."""
    seen: set[str] = set()
    wanted = {f"m{n}" for n in range(200)}

    async def receive(broker: SqliteBroker) -> None:
        while seen != wanted:
            messages = await broker.receive(QUEUE, 10, 5)
            seen.update(received.message_id.partition("/")[0] for received in messages)
            try:
                await broker.complete_many(messages)
            except MessageLockLost:
                continue

    async with opened(path) as one, opened(path) as two:
        receivers = [asyncio.ensure_future(receive(broker)) for broker in (one, two)]
        attempt = 0
        while seen != wanted:
            attempt += 1
            for id in sorted(wanted - seen):
                await (one if attempt % 2 else two).send([message(f"{id}/{attempt}")])
            if attempt <= 3:
                delete_all(path)
            await asyncio.sleep(0)
        await asyncio.gather(*receivers)


@pytest.mark.parametrize("while_open", [True, False])
async def test_a_damaged_file_is_replaced(path: Path, while_open: bool) -> None:
    async with AsyncExitStack() as stack:
        if while_open:
            broker = await stack.enter_async_context(opened(path))
            await broker.send([message(f"m{n}", body=b"x" * 5000) for n in range(50)])
            delete_all(path)
        fill_with_garbage(path)
        if not while_open:
            broker = await stack.enter_async_context(opened(path))
        await broker.send([message("a")])
        assert [one.message_id for one in await broker.receive(QUEUE, 10, 0)] == ["a"]


async def test_damage_inside_the_open_file_heals_after_one_error(path: Path) -> None:
    broker = SqliteBroker(path)
    await broker.open()
    await broker.send([message(f"m{n}", body=b"x" * 5000) for n in range(50)])
    await broker.close()
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(2048)
        file.write(b"\xff" * (size - 2048))
    async with opened(path) as broker:
        for attempt in range(5):
            try:
                await broker.send([message("a")])
                received = await broker.receive(QUEUE, 10, 0)
            except TransportError:
                assert attempt < 3
                continue
            break
        assert [one.message_id for one in received] == ["a"]


async def test_outdated_message_ids_are_forgotten(path: Path, clock: ManualClock) -> None:
    window = QUEUES[QUEUE].duplicate_window_seconds
    async with opened(path, clock=clock) as broker:
        for generation in range(5):
            for n in range(0, 2000, 200):
                await broker.send([message(f"{generation}:{n + m}") for m in range(200)])
            clock.advance(seconds=2 * window)
        db = broker._file.connection()
        ((kept,),) = db.execute("SELECT count(*) FROM seen").fetchall()
        assert kept < 5000  # of 10,000; twice as many are dropped as come


async def test_messages_may_expire_into_the_dead_letter_queue(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock=clock, message_ttl_ms=10_000) as broker:
        await broker.send([message("a"), message("s", due_at=clock.now() + 5_000), message("b")])
        (held,) = await broker.receive(QUEUE, 1, 0)
        clock.advance(seconds=11)
        await broker.complete(held)  # a locked message does not expire
        assert [one.message_id for one in await broker.receive(QUEUE, 10, 0)] == ["s"]
        (dead,) = await broker.receive(QUEUE + DEAD_LETTER_SUFFIX, 10, 0)
        assert (dead.message_id, dead.properties["DeadLetterReason"]) == (
            "b",
            "TTLExpiredException",
        )


async def test_closing_wakes_receivers_with_nothing_and_ends_sending(path: Path) -> None:
    async with opened(path) as broker:
        waiting = asyncio.ensure_future(broker.receive(QUEUE, 1, FOREVER_MS))
        await asyncio.sleep(0)
        sending = asyncio.ensure_future(broker.send([message("a")]))
        await asyncio.sleep(0)
    assert await waiting in ([],) or (await waiting)[0].message_id == "a"
    await sending
    with pytest.raises(TransportError):
        await broker.send([message("b")])
    assert await broker.receive(QUEUE, 1, FOREVER_MS) == []


async def test_the_oldest_message_is_one_that_could_be_received(path: Path) -> None:
    """Neither one that is due later nor one that somebody works on; an expired lock counts from
    its end, and dead letters are nobody's backlog."""
    clock = ManualClock()
    async with opened(path, clock=clock) as broker:
        begin = clock.now()
        assert await broker.oldest() == {}
        await broker.send([message("later", due_at=begin + 5_000), message("first")])
        clock.advance(seconds=1)
        await broker.send([message("second")])
        assert await broker.oldest() == {QUEUE: begin}
        [first] = await broker.receive(QUEUE, 1, 0)
        assert await broker.oldest() == {QUEUE: begin + 1_000}
        [second] = await broker.receive(QUEUE, 1, 0)
        await broker.dead_letter(second, "r", "d")
        assert await broker.oldest() == {}
        clock.advance(seconds=4)
        assert await broker.oldest() == {QUEUE: begin + 5_000}
        clock.time = first.locked_until
        await broker.complete((await broker.receive(QUEUE, 1, 0))[0])
        assert await broker.oldest() == {QUEUE: first.locked_until}
        await broker.ping()
    with pytest.raises(TransportError):
        await broker.ping()
