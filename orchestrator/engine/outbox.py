"""The transactional outbox: messages stored with the change that causes them, sent afterwards.

An outbox document is `{"messages": [[type, task, item, dueAt], …], "traceparent"?, "priority"?,
"lane"?, "sweepAt"}`, a message to another execution (a child's to its parent) with that one's id as
a fifth field; its presence means "not known to be sent". Message ids are `{outbox id}.{index}`: the
same on every resend of the entry, so that the broker's duplicate detection removes doubles, and
never used for anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.domain.effects import Outgoing
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.priority import Priority
from orchestrator.domain.topology import TASKS_LOW_QUEUE
from orchestrator.engine import documents, telemetry
from orchestrator.engine.core import Engine
from orchestrator.engine.lanes import LANE, OVERFLOW, Lanes
from orchestrator.ports import OutMessage
from orchestrator.ports_telemetry import is_sampled

MESSAGES_PER_DOCUMENT = 100
MAX_DOCUMENTS = 30
"""Wider fan-outs put more messages into each document, so that a commit of any width stays within
the 100 operations of a batch."""
ID_PREFIX = "outbox:"


def build(
    engine: Engine,
    partition: tuple[str, ...],
    outgoing: Sequence[Outgoing],
    *,
    now: int,
    header: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Outbox documents for `outgoing`, to be created in the committing batch. `header`: of the
    execution; its class goes with the messages, and its trace context unless nobody records that:
    whoever needs it then finds it in the execution."""
    queue = next((one.message.queue for one in outgoing if _begins(one)), "")
    begin = sum(_begins(one, queue) for one in outgoing)
    over = engine.part(Lanes).beyond(queue, partition[0], begin)
    if not over:
        return _documents(engine, partition, outgoing, now, header)
    own: list[Outgoing] = []
    last: list[Outgoing] = []  # of what begins, in its order
    for one in outgoing:
        begin -= _begins(one, queue)
        (last if _begins(one, queue) and begin < over else own).append(one)
    docs = _documents(engine, partition, last, now, header, MAX_DOCUMENTS // 2)
    for doc in docs:
        doc[LANE] = OVERFLOW
    return [*_documents(engine, partition, own, now, header, MAX_DOCUMENTS // 2), *docs]


def _begins(one: Outgoing, queue: str = "") -> bool:
    """Whether it is a task that may begin now, or an execution; of that queue, if one is named."""
    if one.due_at is not None or (queue and one.message.queue != queue):
        return False
    return one.message.type in (MessageType.EXECUTION_STARTED, MessageType.RUN_TASK)


def _documents(
    engine: Engine,
    partition: tuple[str, ...],
    outgoing: Sequence[Outgoing],
    now: int,
    header: Mapping[str, Any],
    most: int = MAX_DOCUMENTS,
) -> list[dict[str, Any]]:
    per_document = max(MESSAGES_PER_DOCUMENT, -(-len(outgoing) // most))
    result: list[dict[str, Any]] = []
    for start in range(0, len(outgoing), per_document):
        doc = documents.base(partition, ID_PREFIX + engine.ids.new(), "outbox")
        doc["sweepAt"] = now + engine.tunables.outbox_grace_ms
        doc["messages"] = [
            _entry(partition, entry) for entry in outgoing[start : start + per_document]
        ]
        if is_sampled(traceparent := header.get(telemetry.TRACEPARENT, "")):
            doc[telemetry.TRACEPARENT] = traceparent
        if (priority := Priority.of(header)) is not Priority.STANDARD:
            doc["priority"] = priority.value
        result.append(doc)
    return result


def _entry(partition: tuple[str, ...], entry: Outgoing) -> list[Any]:
    message = entry.message
    fields = [message.type.value, message.task, message.item, entry.due_at]
    return fields if message.execution == partition[1] else [*fields, message.execution]


def messages(docs: Iterable[Mapping[str, Any]], link: str = "") -> list[OutMessage]:
    """What to send for these documents; `link`: the span that sends them. Raises `NewerSchema`, and
    `KeyError`, `ValueError`, `TypeError` for a document that is not a well-formed outbox."""
    result: list[OutMessage] = []
    linked = {telemetry.TRACELINK: link} if link else {}
    for doc in docs:
        documents.check_version(doc)
        tenant, execution = doc["tenantId"], doc["executionId"]
        entry_id = doc["id"][len(ID_PREFIX) :]
        trace, priority = doc.get("traceparent", ""), Priority.of(doc)
        extra = {LANE: doc[LANE], **linked} if LANE in doc else linked
        for position, (kind, task, item, due_at, *other) in enumerate(doc["messages"]):
            to = other[0] if other else execution
            message = Message(MessageType(kind), tenant, to, task, item, priority)
            result.append(out_message(message, f"{entry_id}.{position}", due_at, trace, extra))
    return result


def out_message(
    message: Message,
    message_id: str,
    due_at: int | None = None,
    traceparent: str = "",
    extra: Mapping[str, str] | None = None,
) -> OutMessage:
    """A message for the transport, with the properties that filters and tracing read. What was
    moved once stays in the low queue, also when it is sent again."""
    properties = {**(extra or {}), "type": message.type.value, "tenant": message.tenant}
    if traceparent:
        properties[telemetry.TRACEPARENT] = traceparent
    return OutMessage(
        queue=TASKS_LOW_QUEUE if LANE in properties else message.queue,
        body=message.encode(),
        message_id=message_id,
        due_at=due_at,
        properties=properties,
    )
