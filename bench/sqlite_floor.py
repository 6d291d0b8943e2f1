"""What the embedded adapters can do by themselves: the floor under the engine's figures.

    python -m bench.sqlite_floor [--thread]

A commit is one batch of replace + create + create in one partition, as the engine's are, and is
awaited until it is on disk. `--thread` sends every COMMIT to the thread (slow disks).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from orchestrator.adapters.local.sqlite_broker import SqliteBroker
from orchestrator.adapters.local.sqlite_store import SqliteStore
from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE
from orchestrator.ports import Create, OutMessage, Replace

SECONDS = 1.5


async def submitter(store: SqliteStore, number: int, until: float) -> int:
    partition = ("t", f"e{number}")
    keys = {"tenantId": "t", "executionId": partition[1]}
    body = {**keys, "id": partition[1], "type": "execution", "sweepAt": 1, "createdAt": number}
    etag = await store.create(EXECUTIONS, partition, body)
    done = 0
    while time.perf_counter() < until:
        etags = await store.batch(
            EXECUTIONS,
            partition,
            [
                Replace({**body, "seq": done, "tasks": "C" * 200}, etag),
                Create({**keys, "id": f"events:{done:010}", "type": "events", "events": "e" * 300}),
                Create(
                    {
                        **keys,
                        "id": f"outbox:{done}",
                        "type": "outbox",
                        "sweepAt": done,
                        "messages": [{"queue": "tasks-standard", "body": "m" * 150}] * 2,
                    }
                ),
            ],
        )
        etag = etags[0]
        done += 1
    return done


async def store_floor(folder: Path) -> None:
    inline = 0.0 if "--thread" in sys.argv else 0.002
    for concurrent in (1, 8, 30):
        store = SqliteStore(folder / f"store{concurrent}.db", inline_commit_s=inline)
        started = time.perf_counter()
        await store.open()
        opened = time.perf_counter() - started
        until = time.perf_counter() + SECONDS
        done = sum(await asyncio.gather(*(submitter(store, n, until) for n in range(concurrent))))
        print(
            f"store  {concurrent:3} submitters  {done / SECONDS:8,.0f} batches/s  "
            f"{SECONDS / done * 1e6:6.0f} us each   opened in {opened * 1000:.0f} ms"
        )
        await store.close()


async def broker_floor(folder: Path) -> None:
    for size in (1, 10, 50):
        broker = SqliteBroker(folder / f"broker{size}.db")
        await broker.open()
        done = 0
        started = time.perf_counter()
        while time.perf_counter() < started + SECONDS:
            await broker.send(
                [
                    OutMessage(
                        queue=ORCHESTRATION_QUEUE, body=b"m" * 120, message_id=f"m-{done + n:026}"
                    )
                    for n in range(size)
                ]
            )
            received = await broker.receive(ORCHESTRATION_QUEUE, size, 1000)
            await broker.complete_many(received)
            done += len(received)
        spent = time.perf_counter() - started
        print(
            f"broker {size:3} a batch     {done / spent:8,.0f} messages/s  "
            f"{spent / done * 1e6:6.0f} us to send, receive and complete"
        )
        await broker.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        await store_floor(Path(name))
        await broker_floor(Path(name))


if __name__ == "__main__":
    asyncio.run(main())
