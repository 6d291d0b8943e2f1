"""The orchestrator: messages in, decisions committed, messages out. Stateless and competing.

Messages of a batch are grouped by execution, so that 32 finished tasks of one execution are one
decision and one commit. Groups run side by side under a time budget below the lock; what cannot be
begun in time is handed back as new messages. The function never raises for one bad message or
execution: a batch is settled all or nothing, and neighbours must not pay.

What one tenant has too much of in a full batch goes to the low queue (`lanes`), and is taken there
one message at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from orchestrator.domain.messages import BadMessage, Message, decode
from orchestrator.domain.topology import ORCHESTRATION_QUEUE
from orchestrator.engine import (
    deadletters,
    handback,
    levels,
    telemetry,
)
from orchestrator.engine.advance import advance
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.commit import Outdated
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import NewerSchema
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.lanes import Lanes
from orchestrator.ports import Throttled, TransportError, Unavailable
from orchestrator.ports_telemetry import Span

log = logging.getLogger(__name__)

GROUPS_AT_ONCE = 16

_Partition = tuple[str, str]


class _Group:
    """The messages of one execution in a batch, with what they came as."""

    __slots__ = ("incoming", "messages")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.incoming: list[Incoming] = []


async def handle(engine: Engine, batch: Sequence[Incoming]) -> None:
    """Take a batch of the orchestration queue. Returns when everything in it is committed, handed
    back or kept as a dead letter; raises only if none of that was possible (store and broker both
    gone), so that the host abandons the batch."""
    groups: dict[_Partition, _Group] = {}
    levels.heard(engine, ORCHESTRATION_QUEUE, batch)
    for incoming in batch:
        try:
            message = decode(incoming.body)
            if message.queue != ORCHESTRATION_QUEUE:
                raise BadMessage(f"{message.type.value} does not belong to the orchestration queue")
        except BadMessage as error:
            await deadletters.capture(
                engine, incoming, queue=ORCHESTRATION_QUEUE, reason=error.reason
            )
            continue
        group = groups.setdefault((message.tenant, message.execution), _Group())
        group.messages.append(message)
        group.incoming.append(incoming)
    engine.part(Lanes).note({tenant for tenant, _ in groups})
    await _make_room(engine, groups)
    if len(groups) == 1:  # the common case needs no tasks
        [(partition, group)] = groups.items()
        await _safely(engine, partition, group)
        return
    until = engine.clock.now() + engine.tunables.batch_budget_ms
    queue = iter(groups.items())

    async def work() -> None:
        for partition, group in queue:
            if engine.clock.now() >= until:
                engine.metrics.count("weft_handed_back_total", "budget")
                await handback.send(engine, group.messages, group.incoming)
            else:
                await _safely(engine, partition, group)

    workers = [work() for _ in range(min(GROUPS_AT_ONCE, len(groups)))]
    for result in await asyncio.gather(*workers, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def handle_moved(engine: Engine, message: Message, incoming: Incoming) -> None:
    """Take one message of the orchestration queue that was moved to the low one. Raises as
    `handle`."""
    engine.part(Lanes).note([message.tenant])
    group = _Group()
    group.messages.append(message)
    group.incoming.append(incoming)
    await _safely(engine, (message.tenant, message.execution), group)


async def _make_room(engine: Engine, groups: dict[_Partition, _Group]) -> None:
    """Move what is too much of one tenant, and take it out of `groups`; it stays if the broker
    does not take it."""
    crowding = engine.part(Lanes).crowding(
        {partition: len(group.messages) for partition, group in groups.items()}
    )
    if not crowding:
        return
    moved = [
        pair
        for partition in crowding
        for pair in zip(groups[partition].messages, groups[partition].incoming, strict=True)
    ]
    try:
        await handback.move(engine, moved)
    except TransportError as error:
        log.warning(
            "messages not moved, they are handled where they are",
            extra={"action": "orchestrate.not_moved", "error": type(error).__name__},
        )
        return
    for partition in crowding:
        del groups[partition]


async def _safely(engine: Engine, partition: _Partition, group: _Group) -> None:
    """One group under its span; its troubles stay its own."""
    with telemetry.span(
        engine.tracer,
        "orchestrate",
        parent=telemetry.parent_of(group.incoming) or _remembered_trace(engine, partition),
        kind="consumer",
        links=telemetry.links_of(group.incoming),
        about={"tenant": partition[0], "execution": partition[1]},
    ) as span:
        span.note({"messaging.batch.message_count": len(group.messages)})
        await _advance_or_give_back(engine, partition, group, span)


def _remembered_trace(engine: Engine, partition: _Partition) -> str:
    """For messages that other executions sent, or the sweeper: they do not know this one's."""
    known: Aggregate | None = engine.aggregates.get(partition)
    return "" if known is None else known.traceparent


async def _advance_or_give_back(
    engine: Engine, partition: _Partition, group: _Group, span: Span
) -> None:
    try:
        await advance(engine, partition, group.messages, group.incoming)
    except (Throttled, Unavailable, Outdated, TransportError, NewerSchema, OSError) as error:
        span.fail(type(error).__name__)
        log.warning(
            "execution not advanced, its messages are handed back",
            extra={
                "action": "orchestrate.handed_back",
                "tenant": partition[0],
                "execution": partition[1],
                "error": type(error).__name__,
            },
        )
        engine.metrics.count("weft_handed_back_total", type(error).__name__)
        await handback.send(engine, group.messages, group.incoming)
    except Exception as error:
        span.fail(type(error).__name__)
        log.exception(
            "execution cannot be advanced, its messages become dead letters",
            extra={
                "action": "orchestrate.poisoned",
                "tenant": partition[0],
                "execution": partition[1],
            },
        )
        for incoming in group.incoming:
            await deadletters.capture(
                engine,
                incoming,
                queue=ORCHESTRATION_QUEUE,
                reason=f"execution {partition[1]}: {type(error).__name__}: {error}",
            )
