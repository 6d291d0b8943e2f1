"""Answers of `$cbs` and of `QUEUE/$management`: a request message in, an answer message out.

Follows the documented request/response operations of Service Bus (renew-lock, schedule-message,
cancel-scheduled-message, peek-message, update-disposition) and claims-based security (put-token,
where a missing entity is 404: the service checks it there, before any link is attached).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from proton import UNDESCRIBED, Array, Data, Message, int32, timestamp

from tests.wire.servicebus.faults import Counters, Faults
from tests.wire.servicebus.queues import LockLost, Queue
from tests.wire.servicebus.wireformat import message_of, peeked

LOCK_LOST = "com.microsoft:message-lock-lost"
PREFIX = "com.microsoft:"


def put_token(request: Message, queue: Queue | None, faults: Faults) -> Message:
    """202, 401 on demand, 404 for an entity that does not exist."""
    code, text = 202, "Accepted"
    if faults.refuse_tokens > 0:
        faults.refuse_tokens -= 1
        code, text = 401, "InvalidSignature: The token has an invalid signature."
    elif queue is None:
        code, text = 404, "The messaging entity could not be found."
    properties = {"status-code": int32(code), "status-description": text}
    return Message(correlation_id=request.id, properties=properties)


def manage(request: Message, queue: Queue, now: int, counters: Counters) -> Message:
    """One operation on a queue; unknown operations are 501."""
    operation = str((request.properties or {}).get("operation", ""))
    counters.operations[operation.removeprefix(PREFIX)] += 1
    work = _OPERATIONS.get(operation.removeprefix(PREFIX))
    code, condition, body = 501, "amqp:not-implemented", None
    if work is not None:
        try:
            code, condition, body = 200, None, work(request.body or {}, queue, now)
            if body == {"messages": []}:
                code = 204
        except LockLost:
            counters.operations["lockLost"] += 1
            code, condition = 410, LOCK_LOST
    properties: dict[str, Any] = {"statusCode": int32(code), "statusDescription": operation}
    if condition is not None:
        properties["errorCondition"] = condition
    answer = Message(correlation_id=request.id, properties=properties)
    answer.body = body if body is not None else {}
    return answer


def token_of(value: Any) -> str:
    """The delivery tag behind a lock token; the client makes one out of the other."""
    return UUID(str(value)).bytes_le.decode("ascii", "replace")


def _renew(body: Any, queue: Queue, now: int) -> Any:
    until = [queue.renew(token_of(token), now) for token in _items(body["lock-tokens"])]
    return {"expirations": Array(UNDESCRIBED, Data.TIMESTAMP, *map(timestamp, until))}


def _schedule(body: Any, queue: Queue, now: int) -> Any:
    numbers = [
        queue.accept(message_of(bytes(entry["message"])), now) or 0 for entry in body["messages"]
    ]
    return {"sequence-numbers": Array(UNDESCRIBED, Data.LONG, *numbers)}


def _cancel(body: Any, queue: Queue, now: int) -> Any:
    for number in _items(body["sequence-numbers"]):
        queue.cancel(int(number))
    return {}


def _peek(body: Any, queue: Queue, now: int) -> Any:
    first, count = int(body["from-sequence-number"]), int(body["message-count"])
    found = [stored for stored in queue.messages() if stored.sequence_number >= first][:count]
    later = {stored.sequence_number for stored in found if (stored.due_at or 0) > now}
    encoded = [peeked(stored, scheduled=stored.sequence_number in later) for stored in found]
    return {"messages": [{"message": raw} for raw in encoded]}


def _update(body: Any, queue: Queue, now: int) -> Any:
    status = str(body["disposition-status"])
    for token in map(token_of, _items(body["lock-tokens"])):
        if status == "completed":
            queue.complete(token, now)
        elif status == "suspended":
            reason = str(body.get("deadletter-reason", ""))
            queue.dead_letter(token, reason, str(body.get("deadletter-description", "")), now)
        else:
            queue.abandon(token, now)
    return {}


def _items(value: Any) -> list[Any]:
    return list(value.elements) if isinstance(value, Array) else list(value)


_OPERATIONS: dict[str, Callable[[Any, Queue, int], Any]] = {
    "renew-lock": _renew,
    "schedule-message": _schedule,
    "cancel-scheduled-message": _cancel,
    "peek-message": _peek,
    "update-disposition": _update,
}
