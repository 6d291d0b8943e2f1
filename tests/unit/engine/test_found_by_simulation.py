"""Faults of the engine that the simulation found, each as the smallest story that shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError
from orchestrator.domain.failure import Failure
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.topology import EXECUTIONS, TASKS_STANDARD_QUEUE
from orchestrator.engine import aggregate as aggregates
from orchestrator.engine import documents, letters_act, orchestrate
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import (
    ActivityCall,
    ActivityFailed,
    Document,
    Unavailable,
)
from tests.support.definitions import flow, retry, task
from tests.support.faults import FaultyStore, faulty, times
from tests.support.schedules import SkewedClock
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

BIG = "x" * 70_000


def incoming(message: Message) -> Incoming:
    return Incoming(body=message.encode(), message_id="m")


async def dead_letters(world: World) -> dict[str, Document]:
    page = await world.sqlite.changes(EXECUTIONS, None, 1_000)
    return {doc.id: doc for doc in page.documents if doc.body["type"] == "deadletter"}


async def test_a_lagging_orchestrator_does_not_rewrite_what_others_committed(
    make: MakeWorld,
) -> None:
    """Results of tasks without a worker were written before the commit, also by a decision that
    then lost the race: long after the end, with another time or another first failed item."""
    world = await make(work=lambda call: "text")
    tasks = {
        "a": task("work"),
        "b": task("work", "a", when="${tasks.a.output.n > 1}"),
        "m": {
            "type": "map",
            "needs": ["a"],
            "items": [1, 2],
            "do": {"type": "activity", "activity": "work", "input": "${item}"},
        },
    }
    await world.publish(flow(on_failure="continue", **tasks))
    id = (await world.start("flow")).id
    await world.deliver(world.transport.take(world.clock.now()))  # started; `a` is dispatched
    lagging = world.another("worker-2")
    await aggregates.load(lagging, (TENANT, id))
    aggregates.remember(lagging, await _loaded(lagging, id))
    await world.settle()
    assert (await world.view(id)).status == "FAILED"
    before = await world.sqlite.changes(EXECUTIONS, None, 1_000)
    world.clock.jump(5_000)
    again = Message(MessageType.TASK_FINISHED, TENANT, id, "a")
    await orchestrate.handle(lagging, [incoming(again)])
    assert await world.sqlite.changes(EXECUTIONS, None, 1_000) == before


async def _loaded(engine: Any, id: str) -> aggregates.Aggregate:
    found = await aggregates.load(engine, (TENANT, id), fresh=True)
    assert found is not None
    return found


async def test_a_commit_between_two_reads_does_not_poison_the_messages(make: MakeWorld) -> None:
    """Map chunks are read after the execution document. Newer ones made an impossible state, and
    the messages became dead letters."""
    world = await make(work=lambda call: call.input)
    definition = flow(
        m={
            "type": "map",
            "items": [0, 1, 2, 3],
            "maxConcurrency": 2,
            "do": {"type": "activity", "activity": "work", "input": "${item}"},
        }
    )
    await world.publish(definition)
    id = (await world.start("flow")).id
    partition = (TENANT, id)
    await world.deliver(world.transport.take(world.clock.now()))
    old = await world.sqlite.read(EXECUTIONS, partition, id)
    runs = world.transport.take(world.clock.now())
    await world.deliver(runs[:1])
    await world.deliver(world.transport.take(world.clock.now(), "orchestration"))

    class Between(FaultyStore):
        stale: list[Document] = [old]  # noqa: RUF012  one instance

        async def read(self, container: str, key: tuple[str, ...], id: str) -> Document:
            return self.stale.pop() if self.stale else await self._store.read(container, key, id)

    engine = world.another("worker-2")
    engine.store = Between(world.sqlite)  # type: ignore[assignment]
    found = await aggregates.load(engine, partition, fresh=True)
    assert not Between.stale
    assert found is not None
    assert found.state.maps[0].completed == 1
    await world.deliver(runs[1:])
    await world.settle()
    assert (await world.view(id)).status == "COMPLETED"
    assert await dead_letters(world) == {}


async def test_a_message_that_overtakes_its_execution_is_handed_back(make: MakeWorld) -> None:
    """A replica that lags behind the submission: the message was dropped, and the execution stood
    still until the sweeper came; after an outage, it even became a dead letter."""
    world = await make(wrap_store=FaultyStore)
    for outage in (0, 1):
        faulty(world.engine).before = times(outage, lambda: Unavailable("down"), "read")
        message = Message(MessageType.EXECUTION_STARTED, TENANT, f"not-yet-{outage}")
        world.engine.spawn(orchestrate.handle(world.engine, [incoming(message)]), "test")
        await quiesce()
        await world.clock.advance(1_000)
        await world.engine.drain()
        (again,) = world.transport.messages
        assert again.body == message.encode()
        assert again.due_at is not None
        world.transport.messages.clear()
    assert await dead_letters(world) == {}


async def test_a_hiccup_of_the_payload_store_costs_no_attempt(make: MakeWorld) -> None:
    """One 503 of Blob Storage ended a task for good that had one attempt only."""
    world = await make(work=lambda call: BIG)
    await world.publish(flow(a=task("work", retry=retry(1))))
    id = (await world.start("flow")).id
    put, failures = world.payloads.put, [Unavailable("503")]

    async def failing(*args: Any) -> str:
        if failures:
            raise failures.pop()
        return await put(*args)

    world.payloads.put = failing  # type: ignore[method-assign]
    await world.deliver(world.transport.take(world.clock.now()))
    due = world.transport.take(world.clock.now())
    delivering = asyncio.create_task(world.deliver(due))
    await quiesce()
    await world.clock.advance(1_000)
    await delivering
    await world.settle()
    assert (await world.view(id)).status == "COMPLETED"
    assert len(world.activities.calls) == 1


async def test_a_full_disk_makes_no_dead_letters(make: MakeWorld) -> None:
    """The orchestrator could not keep a large output, and took that for a poisonous message."""
    world = await make(work=lambda call: BIG)
    await world.publish(flow(a=task("work"), output={"all": "${tasks.a.output}"}))
    id = (await world.start("flow")).id
    put, full = world.payloads.put, [True]

    async def failing(tenant: str, execution: str, name: str, data: bytes) -> str:
        if name == "output" and full:
            raise OSError("no space left on device")
        return await put(tenant, execution, name, data)

    world.payloads.put = failing  # type: ignore[method-assign]
    await world.settle()
    assert (await world.view(id)).status == "RUNNING"
    assert await dead_letters(world) == {}
    full.clear()
    await world.run_until_quiet()
    assert (await world.view(id)).status == "COMPLETED"


async def test_an_activity_does_not_begin_after_its_lease(make: MakeWorld) -> None:
    """A claim whose answer took longer than the lease: the task may have been ended by then."""
    world = await make(wrap_store=FaultyStore, work=lambda call: "done")
    await world.publish(flow(a=task("work", retry=retry(2))))
    id = (await world.start("flow")).id
    await world.deliver(world.transport.take(world.clock.now()))

    def slow(name: str, args: tuple[Any, ...]) -> None:
        if name == "create":
            world.clock.jump(world.tunables.lease_ms)

    faulty(world.engine).after = slow
    await world.settle()
    assert world.activities.calls == []
    assert world.engine.metrics.value("weft_claims_refused_total", "lateStart") == 1
    await world.sweep()
    await world.run_until_quiet()
    assert (await world.view(id)).status == "COMPLETED"
    assert [call.attempt for call in world.activities.calls] == [2]


async def test_wide_side_documents_are_written_from_a_fresh_state_only(make: MakeWorld) -> None:
    """More than a batch holds go before the commit, so a remembered state is read again first."""
    world = await make(work=lambda call: "text")
    many = {f"t{n:03}": task("work", "a", when="${tasks.a.output.n > 1}") for n in range(150)}
    tasks: dict[str, Any] = {"a": task("work"), **many}
    await world.publish(flow(on_failure="continue", **tasks))
    id = (await world.start("flow")).id
    await world.settle()
    assert (await world.view(id)).status == "FAILED"
    assert world.engine.metrics.value("weft_commit_conflicts_total") == 1
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, id), documents.task_id("t149"))
    assert doc.body["status"] == "DEAD_LETTERED"
    await world.verified(id)


class SlowCreate:
    """A store in which something happens while the answer to a create is on its way."""

    def __init__(self, world: World, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._store = world.sqlite
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, *args: Any) -> str:
        etag = await self._store.create(*args)
        await self._meanwhile()
        return etag


@pytest.mark.parametrize(("gap", "behind"), [(6_000, 0), (12_000, 8_000)])
async def test_an_activity_does_not_begin_after_its_task_was_taken_over(
    make: MakeWorld, gap: int, behind: int
) -> None:
    """The lease was valid still, but the deadline had passed while the claim's answer was on its
    way. A worker whose clock is behind knows that only from the store."""
    world = await make(work=lambda call: "done")
    await world.publish(flow(a=task("work", deadline="5s")))
    id = (await world.start("flow")).id
    await world.deliver(world.transport.take(world.clock.now()))
    timer = Message(MessageType.TIMER_DUE, TENANT, id)
    orchestrator = world.another("orchestrator")

    async def meanwhile() -> None:
        world.clock.jump(gap)
        await orchestrate.handle(orchestrator, [incoming(timer)])

    world.engine.store = SlowCreate(world, meanwhile)  # type: ignore[assignment]
    world.engine.clock = SkewedClock(world.clock, -behind)
    await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    assert world.activities.calls == []
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, id), documents.task_id("a"))
    assert doc.body["status"] == "DEAD_LETTERED"
    world.engine.store, world.engine.clock = world.sqlite, world.clock
    await world.run_until_quiet()
    assert (await world.view(id)).status == "FAILED"
    await world.verified(id)


async def test_a_claim_that_took_long_is_renewed_before_its_activity_begins(
    make: MakeWorld,
) -> None:
    """Also when the store refuses once: that costs no attempt."""
    world = await make(wrap_store=FaultyStore, work=lambda call: "done")
    await world.publish(flow(a=task("work")))
    id = (await world.start("flow")).id
    await world.deliver(world.transport.take(world.clock.now()))
    store = faulty(world.engine)

    def slow(name: str, args: tuple[Any, ...]) -> None:
        if name == "create":
            world.clock.jump(world.tunables.lease_ms // 2)
            store.before = times(1, lambda: Unavailable("away"), "replace")

    store.after = slow
    delivered = asyncio.create_task(world.settle())
    await quiesce()
    assert world.activities.calls == []
    await world.clock.advance(500)
    await delivered
    assert (await world.view(id)).status == "COMPLETED"
    assert [call.attempt for call in world.activities.calls] == [1]


class Lagging:
    """A replica that shows one document as it was."""

    def __init__(self, world: World, old: Document) -> None:
        self._store = world.sqlite
        self._old = old

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read_many(self, *args: Any) -> dict[str, Document]:
        found = await self._store.read_many(*args)
        return {**found, self._old.id: self._old} if self._old.id in found else found

    async def read(self, *args: Any) -> Document:
        found = await self._store.read(*args)
        return self._old if found.id == self._old.id else found


async def test_a_lagging_operator_cannot_discard_what_an_execution_holds_for(
    make: MakeWorld,
) -> None:
    """Seen before its start, the execution did not seem to wait: it held for ever."""

    def failing(call: ActivityCall) -> Any:
        raise ActivityFailed(Failure(type="Fatal", message="no", retryable=False))

    world = await make(work=failing)
    await world.publish(flow(on_failure="hold", a=task("work"), b=task("work", "a")))
    id = (await world.start("flow")).id
    old = await world.sqlite.read(EXECUTIONS, (TENANT, id), id)
    await world.settle()
    operator = world.another("operator")
    operator.store = Lagging(world, old)  # type: ignore[assignment]
    wish = Wish(action=Action.DISCARD, by="eve")
    with pytest.raises(ConflictError, match="holds"):
        await letters_act.act(operator, TENANT, f"{id}~a~1", wish)
    await letters_act.act(world.engine, TENANT, f"{id}~a~1", Wish(action=Action.FAIL, by="eve"))
    await world.run_until_quiet()
    assert (await world.view(id)).status == "FAILED"


@pytest.mark.parametrize("action", [Action.FAIL, Action.DISCARD])
async def test_an_item_is_decided_about_only_after_its_map_has_heard_of_it(
    make: MakeWorld, action: Action
) -> None:
    """The map did not seem to need a decision yet, and held for ever without an open letter."""

    def failing(call: ActivityCall) -> Any:
        raise ActivityFailed(Failure(type="Fatal", message="no", retryable=False))

    world = await make(work=failing)
    each = {"type": "map", "items": [1], "do": {"type": "activity", "activity": "work"}}
    await world.publish(flow(on_failure="hold", m=each))
    id = (await world.start("flow")).id
    await world.deliver(world.transport.take(world.clock.now()))
    await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    wish = Wish(action=action, by="eve")
    if action is Action.DISCARD:
        with pytest.raises(ConflictError, match="holds"):
            await letters_act.act(world.engine, TENANT, f"{id}~m~0~1", wish)
        wish = Wish(action=Action.FAIL, by="eve")
    await letters_act.act(world.engine, TENANT, f"{id}~m~0~1", wish)
    await world.run_until_quiet()
    assert (await world.view(id)).status == "FAILED"
    await world.verified(id)
