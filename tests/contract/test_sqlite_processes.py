"""Several processes on one file, and processes that are killed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from contract_support import message

from orchestrator.adapters.local.sqlite_broker import SqliteBroker
from orchestrator.adapters.local.sqlite_store import SqliteStore
from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE, QUEUES

WORKER = Path(__file__).with_name("sqlite_worker.py")
PROCESSES = 3
TIMES = 40


async def start(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(WORKER),
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def finish(process: asyncio.subprocess.Process) -> None:
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


async def test_processes_lose_no_update_and_a_concurrent_change_reader_sees_all(
    tmp_path: Path,
) -> None:
    """They also create the file at the same moment, which must not fail as locked."""
    path = tmp_path / "weft.db"
    processes = [await start("count", path, f"p{n}", TIMES) for n in range(PROCESSES)]
    finishing = asyncio.ensure_future(asyncio.gather(*map(finish, processes)))
    expected = {f"p{process}:{n}" for process in range(PROCESSES) for n in range(TIMES)}
    seen: list[str] = []
    counter = 0
    async with opened(path) as store:
        cursor: str | None = None
        while True:
            last_round = finishing.done()
            page = await store.changes(EXECUTIONS, cursor, 7)
            cursor = page.cursor
            for document in page.documents:
                if document.id == "counter":
                    assert document.body["v"] >= counter, "an older version after a newer one"
                    counter = document.body["v"]
                else:
                    seen.append(document.id)
            if last_round and not page.documents:
                break
            await asyncio.sleep(0)
    await finishing
    assert counter == PROCESSES * TIMES
    assert len(seen) == len(expected)
    assert set(seen) == expected


@pytest.mark.parametrize("mode", ["inline", "threaded"])
async def test_kill_9_during_writes_keeps_every_acknowledged_write(
    tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "weft.db"
    acknowledged: set[tuple[str, str]] = set()
    process = await start("write", path, mode)
    assert process.stdout is not None
    for _ in range(60):
        execution, n = (await process.stdout.readline()).decode().split()
        acknowledged.add((execution, n))
    process.kill()
    rest, _ = await process.communicate()
    for line in rest.decode().splitlines(keepends=True):
        if line.endswith("\n"):
            execution, n = line.split()
            acknowledged.add((execution, n))
    async with opened(path) as store:
        page = await store.changes(EXECUTIONS, None, 100_000)
        found = {(document.body["executionId"], document.id) for document in page.documents}
        assert {
            (execution, f"{n}:{part}") for execution, n in acknowledged for part in "ab"
        } <= found
        for execution, id in found:  # and no half batch
            number = id.partition(":")[0]
            assert {(execution, f"{number}:a"), (execution, f"{number}:b")} <= found
        await store.create(EXECUTIONS, ("t", "e"), {"id": "x", "tenantId": "t", "executionId": "e"})
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


async def test_a_waiting_receiver_notices_messages_of_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "broker.db"
    broker = SqliteBroker(path)
    await broker.open()
    processes = [await start("send", path, f"p{n}", 20) for n in range(2)]
    finishing = asyncio.gather(*map(finish, processes))
    seen: list[str] = []
    while len(seen) < 40:
        messages = await broker.receive(ORCHESTRATION_QUEUE, 10, 30_000)
        seen += [received.message_id for received in messages]
        await broker.complete_many(messages)
    await finishing
    assert sorted(seen) == sorted(f"p{process}:{n}" for process in range(2) for n in range(20))
    await broker.close()


async def test_messages_of_a_killed_process_come_again_when_the_next_one_opens(
    tmp_path: Path,
) -> None:
    """Their locks would last for minutes. What living processes hold is left alone."""
    path = tmp_path / "broker.db"
    broker, next_one = SqliteBroker(path), SqliteBroker(path)
    await broker.open()
    await broker.send([message("ours"), message("theirs")])
    (ours,) = await broker.receive(ORCHESTRATION_QUEUE, 1, 0)
    process = await start("hold", path)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"theirs\n"
    await next_one.open()
    assert (await broker.counts(ORCHESTRATION_QUEUE)).locked == 2
    await next_one.close()
    process.kill()
    await process.wait()
    await next_one.open()
    (theirs,) = await broker.receive(ORCHESTRATION_QUEUE, 2, 10_000)
    assert (theirs.message_id, theirs.delivery_count) == ("theirs", 2)
    await broker.complete_many([ours, theirs])
    await next_one.close()
    await broker.close()


async def test_a_last_delivery_that_died_becomes_a_dead_letter(tmp_path: Path) -> None:
    """A message that kills its process must not do so for ever."""
    path = tmp_path / "broker.db"
    limit = QUEUES[ORCHESTRATION_QUEUE].max_delivery_count
    broker = SqliteBroker(path)
    await broker.open()
    await broker.send([message("poison")])
    for _ in range(limit - 1):
        (poison,) = await broker.receive(ORCHESTRATION_QUEUE, 1, 0)
        await broker.abandon(poison)
    await broker.close()
    process = await start("hold", path)
    assert process.stdout is not None
    await process.stdout.readline()
    process.kill()
    await process.wait()
    await broker.open()
    assert await broker.receive(ORCHESTRATION_QUEUE, 1, 0) == []
    assert (await broker.counts(ORCHESTRATION_QUEUE)).dead == 1
    await broker.close()
