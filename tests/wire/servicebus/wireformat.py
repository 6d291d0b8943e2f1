"""AMQP encodings between the wire and `queues.Stored`.

Follows the AMQP 1.0 messaging layer (a message is a sequence of described sections) and the Service
Bus protocol guide: the batch format (message format 0x80013700) is one message whose Data sections
are each a whole encoded message; broker values travel as annotations `x-opt-…`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proton import Data, Described, Message, int32, symbol, timestamp, ulong

from tests.wire.servicebus.queues import Lock, Stored

SCHEDULED = symbol("x-opt-scheduled-enqueue-time")
SEQUENCE = symbol("x-opt-sequence-number")
ENQUEUED = symbol("x-opt-enqueued-time")
LOCKED_UNTIL = symbol("x-opt-locked-until")
STATE = symbol("x-opt-message-state")

DATA_SECTION = 0x75
SECTIONS = range(0x70, 0x79)


def messages_in(raw: bytes) -> list[Stored]:
    """The messages of one transfer: one, or those of a batch. proton does not show the message
    format, so a batch is known by what its Data sections start with."""
    bodies = list(_data_sections(raw))
    if bodies and all(_is_encoded_message(body) for body in bodies):
        return [message_of(body) for body in bodies]
    return [message_of(raw)]


def message_of(raw: bytes) -> Stored:
    """One encoded message. The copies to `bytes` matter: proton hands out views into memory that
    it frees."""
    message = Message()
    message.decode(raw)
    due = (message.annotations or {}).get(SCHEDULED)
    return Stored(
        message_id="" if message.id is None else str(message.id),
        body=b"".join(_data_sections(raw)),
        properties={str(name): value for name, value in (message.properties or {}).items()},
        content_type=str(message.content_type) if message.content_type else None,
        subject=message.subject,
        due_at=int(due) if due else None,
    )


def delivery_of(lock: Lock) -> bytes:
    """What a receiver gets. `delivery-count` of the header counts failed deliveries before."""
    message = _encodable(lock.message)
    message.delivery_count = lock.message.deliveries - 1
    message.annotations = {**message.annotations, LOCKED_UNTIL: timestamp(lock.until)}
    return message.encode()


def peeked(stored: Stored, *, scheduled: bool) -> bytes:
    """What peek shows: no lock, and the deliveries begun so far."""
    message = _encodable(stored)
    message.delivery_count = stored.deliveries
    message.annotations = {**message.annotations, STATE: int32(2 if scheduled else 0)}
    return message.encode()


def _encodable(stored: Stored) -> Message:
    message = Message()
    message.inferred = True  # a Data section, as it came
    message.id = stored.message_id or None
    message.body = stored.body
    message.properties = dict(stored.properties) or None
    message.content_type = stored.content_type
    message.subject = stored.subject
    annotations: dict[Any, Any] = {
        SEQUENCE: stored.sequence_number,
        ENQUEUED: timestamp(stored.enqueued_at),
    }
    if stored.due_at is not None:
        annotations[SCHEDULED] = timestamp(stored.due_at)
    message.annotations = annotations
    return message


def _data_sections(raw: bytes) -> Iterator[bytes]:
    rest = raw
    while rest:
        data = Data()
        rest = rest[data.decode(rest) :]
        data.rewind()
        data.next()
        section = data.get_object()
        if isinstance(section, Described) and section.descriptor == ulong(DATA_SECTION):
            yield bytes(section.value)


def _is_encoded_message(body: bytes) -> bool:
    return len(body) > 2 and body[:2] == b"\x00\x53" and body[2] in SECTIONS
