"""What the broker does with a transfer and with a settlement, and what it answers.

Follows the AMQP 1.0 outcomes as Service Bus documents them: accepted completes, modified abandons
(and counts), rejected dead-letters with `DeadLetterReason` and `DeadLetterErrorDescription`,
released hands back unread. A receiver in peek-lock mode waits for the broker's own settled
disposition with the same outcome; a lock that has ended is rejected with
`com.microsoft:message-lock-lost`.
"""

from __future__ import annotations

from proton import Condition, Delivery, symbol

from tests.wire.servicebus.faults import Counters
from tests.wire.servicebus.management import LOCK_LOST
from tests.wire.servicebus.queues import LockLost, Queue
from tests.wire.servicebus.wireformat import messages_in


def store(raw: bytes, queue: Queue, now: int, counters: Counters) -> None:
    """Enqueue the messages of a transfer."""
    for message in messages_in(raw):
        counters.operations["messages"] += 1
        later = message.due_at is not None and message.due_at > now
        if queue.accept(message, now) is None:
            counters.operations["duplicates"] += 1
        elif later:
            counters.operations["scheduled"] += 1


def settle(delivery: Delivery, queue: Queue, now: int, counters: Counters) -> None:
    """Do what a receiver decided about a delivery, and confirm it."""
    state, token = delivery.remote_state, delivery.tag
    try:
        if state == Delivery.ACCEPTED:
            queue.complete(token, now)
            done = "completed"
        elif state == Delivery.REJECTED:
            given = delivery.remote.condition
            info = (given.info if given else None) or {}
            named = {str(name): str(value or "") for name, value in info.items()}
            reason = named.get("DeadLetterReason", "")
            queue.dead_letter(token, reason, named.get("DeadLetterErrorDescription", ""), now)
            done = "deadLettered"
        elif state == Delivery.MODIFIED:
            queue.abandon(token, now)
            delivery.local.failed = True
            done = "abandoned"
        else:
            queue.release(token, now)
            done = "released"
        counters.operations[done] += 1
        delivery.update(state)
    except LockLost:
        counters.operations["lockLost"] += 1
        delivery.local.condition = condition(LOCK_LOST, "The lock supplied is invalid.")
        delivery.update(Delivery.REJECTED)
    delivery.settle()


def reject(delivery: Delivery, name: str, text: str) -> None:
    """Refuse a transfer; nothing was stored."""
    delivery.local.condition = condition(name, text)
    delivery.update(Delivery.REJECTED)
    delivery.settle()


def condition(name: str, text: str) -> Condition:
    """An AMQP error. All three fields, as the service sends them: the SDK reads the third without
    looking whether it is there, and proton leaves out what is empty at the end."""
    return Condition(name, text, {symbol("tracking"): "test"})
