"""A process of its own for the tests of shared files: `python sqlite_worker.py MODE PATH ARGS…`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from contract_support import doc, message

from orchestrator.adapters.local.sqlite_broker import SqliteBroker
from orchestrator.adapters.local.sqlite_store import SqliteStore
from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE
from orchestrator.ports import Conflict, Create, PreconditionFailed, Replace

SHARED = ("t", "shared")


async def count(path: Path, name: str, times: str) -> None:
    """Increment a shared counter under ETag, each time with a document of its own."""
    store = SqliteStore(path)
    await store.open()
    with contextlib.suppress(Conflict):
        await store.create(EXECUTIONS, SHARED, doc("shared", "counter", v=0))
    for n in range(int(times)):
        while True:
            counter = await store.read(EXECUTIONS, SHARED, "counter")
            body = doc("shared", "counter", v=counter.body["v"] + 1)
            own = doc("shared", f"{name}:{n}")
            try:
                await store.batch(EXECUTIONS, SHARED, [Replace(body, counter.etag), Create(own)])
            except PreconditionFailed:
                continue
            break
    await store.close()


async def write(path: Path, threaded: str) -> None:
    """Write until killed, a line per acknowledged batch."""
    store = SqliteStore(path, inline_commit_s=0 if threaded == "threaded" else 1)
    await store.open()

    async def writer(number: int) -> None:
        execution = f"e{number}"
        for n in range(10**9):
            bodies = [doc(execution, f"{n}:{part}", x="y" * 500) for part in "ab"]
            await store.batch(EXECUTIONS, ("t", execution), [Create(body) for body in bodies])
            sys.stdout.write(f"{execution} {n}\n")
            sys.stdout.flush()

    await asyncio.gather(*(writer(number) for number in range(8)))


async def send(path: Path, name: str, times: str) -> None:
    """Send messages, one at a time."""
    broker = SqliteBroker(path)
    await broker.open()
    for n in range(int(times)):
        await broker.send([message(f"{name}:{n}")])
    await broker.close()


async def hold(path: Path) -> None:
    """Receive a message and keep it until killed."""
    broker = SqliteBroker(path)
    await broker.open()
    (held,) = await broker.receive(ORCHESTRATION_QUEUE, 1, 10_000)
    sys.stdout.write(f"{held.message_id}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    mode, file, *arguments = sys.argv[1:]
    asyncio.run(
        {"count": count, "write": write, "send": send, "hold": hold}[mode](Path(file), *arguments)
    )
