"""The ports of one process, with everything that can go wrong at them.

Every call takes a little virtual time, so that other processes run in between, and asks the plan
whether a fault happens here. What a fault may do is what the port's contract allows: `Throttled`
has written nothing, `Unavailable` may have, a replica lags but never behind what this client wrote
or saw itself (session consistency).
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.domain.jsontypes import Json
from orchestrator.ports import (
    ActivityCall,
    ChangePage,
    Document,
    Operation,
    OutMessage,
    Partition,
    PayloadNotFound,
    Query,
    SecretNotFound,
    Throttled,
    TransportError,
    Unavailable,
)
from tests.simulation.faults import Fault
from tests.simulation.loop import sleep

if TYPE_CHECKING:
    from tests.simulation.process import Worker
    from tests.simulation.world import World

SHOP = "shop"
SHOP_ACTIVITY = "sim.shop"
"""As `sim.work`, but it calls a dependency, which may be down."""
START = 1_800_000_000_000


class SimClock:
    """A process's wall clock: the world's time, a skew of its own, and jumps."""

    def __init__(self, world: World, skew_ms: int = 0) -> None:
        self._world = world
        self.skew_ms = skew_ms

    def now(self) -> int:
        """Epoch milliseconds as this process sees them."""
        return self._world.now() + self.skew_ms

    async def sleep(self, ms: int) -> None:
        """Virtual time: spans are right, however wrong the wall clock is."""
        await sleep(max(0, ms) / 1000)


class SimIds:
    """Ids that name their process and incarnation."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0

    def new(self) -> str:
        """Unique in the run."""
        self._count += 1
        return f"{self._prefix}-{self._count:05}"


class Port:
    """What every port of a process has: a way there and back, on which it may die."""

    def __init__(self, world: World, worker: Worker) -> None:
        self._world = world
        self._worker = worker

    async def _hop(self) -> None:
        """The way there or back: a moment in which others run."""
        roll = self._world.rng.random()
        await sleep(0 if roll < 0.3 else roll * 0.02)

    async def _before(self, fault: Fault | None) -> None:
        await self._hop()
        if fault is not None and fault.kind == "slowBefore":
            await sleep(fault.size / 1000)
        if fault is not None and fault.kind == "crashBefore":
            await self._worker.crash()

    async def _after(self, fault: Fault | None) -> None:
        if fault is not None and fault.kind == "crashAfter":
            await self._worker.crash()
        await self._hop()
        if fault is not None and fault.kind == "slowAfter":
            await sleep(fault.size / 1000)


def _refuse(fault: Fault | None) -> None:
    if fault is None:
        return
    if fault.kind == "throttled":
        raise Throttled("simulated", retry_after_ms=fault.size)
    if fault.kind == "unavailable":
        raise Unavailable("simulated, not applied")


class SimStore(Port):
    """`DocumentStore` as one process sees it."""

    def __init__(self, world: World, worker: Worker) -> None:
        super().__init__(world, worker)
        self._seen: dict[Partition, int] = {}  # the session: newest commit known, by partition

    async def _write(
        self, op: str, partition: Partition, work: Callable[[], Awaitable[Any]]
    ) -> Any:
        fault = self._world.plan.at(f"{self._worker.name}.{op}", self._world.chances.writes)
        await self._before(fault)
        self._down()
        _refuse(fault)
        self._world.writing = self._worker.name
        result = await work()
        lsn = self._world.store.lsn
        if fault is not None and fault.kind == "answerLost":
            await self._hop()
            raise Unavailable("simulated, applied")
        await self._after(fault)
        self._seen[partition] = max(lsn, self._seen.get(partition, 0))
        return result

    async def _read(
        self, op: str, partition: Partition | None, work: Callable[[int | None], Awaitable[Any]]
    ) -> Any:
        fault = self._world.plan.at(f"{self._worker.name}.{op}", self._world.chances.reads)
        await self._before(fault)
        self._down()
        _refuse(fault)
        lsn: int | None = None
        if fault is not None and fault.kind == "stale":
            lsn = self._world.store.lsn_at(self._world.now() - fault.size)
            seen = self._seen.values() if partition is None else [self._seen.get(partition, 0)]
            lsn = max(lsn, *seen, 0)
        if partition is not None:
            self._seen[partition] = self._world.store.lsn if lsn is None else lsn
        result = await work(lsn)
        await self._after(fault)
        return result

    def _down(self) -> None:
        if self._world.now() < self._world.store_down_until:
            if self._world.rng.random() < 0.5:
                raise Throttled("simulated outage", retry_after_ms=500)
            raise Unavailable("simulated outage")

    async def read(self, container: str, partition: Partition, id: str) -> Document:
        """See the port."""
        store = self._world.store
        return await self._read(
            "read", partition, lambda lsn: store.read(container, partition, id, lsn=lsn)
        )

    async def read_many(
        self, container: str, partition: Partition, ids: Sequence[str]
    ) -> dict[str, Document]:
        """See the port."""
        store = self._world.store
        return await self._read(
            "readMany", partition, lambda lsn: store.read_many(container, partition, ids, lsn=lsn)
        )

    async def query(self, container: str, query: Query) -> list[Document]:
        """See the port."""
        store, partition = self._world.store, query.partition
        return await self._read(
            "query", partition, lambda lsn: store.query(container, query, lsn=lsn)
        )

    async def count(self, container: str, query: Query) -> int:
        """See the port."""
        store, partition = self._world.store, query.partition
        return await self._read(
            "count", partition, lambda lsn: store.count(container, query, lsn=lsn)
        )

    async def changes(self, container: str, cursor: str | None, limit: int) -> ChangePage:
        """See the port."""
        store = self._world.store
        return await self._read("changes", None, lambda _: store.changes(container, cursor, limit))

    async def create(self, container: str, partition: Partition, body: dict[str, Any]) -> str:
        """See the port."""
        store = self._world.store
        return await self._write(
            "create", partition, lambda: store.create(container, partition, body)
        )

    async def replace(
        self,
        container: str,
        partition: Partition,
        body: dict[str, Any],
        *,
        if_match: str | None = None,
    ) -> str:
        """See the port."""
        store = self._world.store
        return await self._write(
            "replace",
            partition,
            lambda: store.replace(container, partition, body, if_match=if_match),
        )

    async def upsert(self, container: str, partition: Partition, body: dict[str, Any]) -> str:
        """See the port."""
        store = self._world.store
        return await self._write(
            "upsert", partition, lambda: store.upsert(container, partition, body)
        )

    async def delete(
        self, container: str, partition: Partition, id: str, *, if_match: str | None = None
    ) -> None:
        """See the port."""
        store = self._world.store
        await self._write(
            "delete", partition, lambda: store.delete(container, partition, id, if_match=if_match)
        )

    async def batch(
        self, container: str, partition: Partition, operations: Sequence[Operation]
    ) -> list[str]:
        """See the port."""
        store = self._world.store
        return await self._write(
            "batch", partition, lambda: store.batch(container, partition, operations)
        )

    async def close(self) -> None:
        """The world's store outlives its processes."""


class SimTransport(Port):
    """`Transport` as one process sees it."""

    async def send(self, messages: Sequence[OutMessage]) -> None:
        """See the port."""
        fault = self._world.plan.at(f"{self._worker.name}.send", self._world.chances.sends)
        await self._before(fault)
        if self._world.now() < self._world.broker_down_until:
            raise TransportError("simulated outage")
        kind = fault.kind if fault is not None else ""
        if kind == "unavailable":
            raise TransportError("simulated, not sent")
        await self._world.broker.send(
            messages[: fault.size] if fault and kind == "part" else messages
        )
        if kind in ("answerLost", "part"):
            await self._hop()
            raise TransportError("simulated, sent in part or whole")
        await self._after(fault)

    async def close(self) -> None:
        """Nothing to release."""


class SimPayloads(Port):
    """`PayloadStore` as one process sees it."""

    async def put(self, tenant: str, execution: str, name: str, data: bytes) -> str:
        """See the port."""
        fault = self._world.plan.at(f"{self._worker.name}.put", self._world.chances.payloads)
        await self._before(fault)
        _refuse(fault)
        if fault is not None and fault.kind == "diskFull":
            raise OSError(errno.ENOSPC, "simulated, nothing stored")
        ref = f"sim:v1:{tenant}/{execution}/{hashlib.sha256(data).hexdigest()[:16]}"
        self._world.payloads[ref] = data
        if fault is not None and fault.kind == "answerLost":
            raise Unavailable("simulated, stored")
        await self._after(fault)
        return ref

    async def delete(self, tenant: str, execution: str) -> None:
        """Nothing here removes payloads."""
        raise AssertionError("no payload is removed in the simulation")

    async def get(self, ref: str) -> bytes:
        """See the port."""
        fault = self._world.plan.at(f"{self._worker.name}.get", self._world.chances.payloads)
        await self._before(fault)
        _refuse(fault)
        if fault is not None and fault.kind == "answerLost":
            raise Unavailable("simulated, read")
        if ref not in self._world.payloads:
            raise PayloadNotFound(ref)
        return self._world.payloads[ref]


class SimSecrets:
    """No secrets here."""

    async def get(self, tenant: str, name: str) -> str:
        """See the port."""
        raise SecretNotFound(name)


class SimActivities(Port):
    """`ActivityRunner`: what the behaviour in the task's input says (`behaviour.py`)."""

    def names(self) -> frozenset[str]:
        """See the port."""
        return frozenset({"sim.work", SHOP_ACTIVITY})

    def dependency(self, activity: str) -> str | None:
        """Of one of the two."""
        return SHOP if activity == SHOP_ACTIVITY else None

    async def run(self, call: ActivityCall) -> Json:
        """See the port."""
        if call.activity == "weft.transform":
            return call.input
        return await self._world.behave(self._worker, call)

    def stuck(self) -> int:
        """None."""
        return 0

    async def close(self) -> None:
        """Nothing to release."""
