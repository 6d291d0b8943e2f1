"""What a message must be for every broker, checked before anything is sent.

Without it a message that the embedded broker takes could be refused in Azure, and half of a send
could be gone before its other half is found to be impossible.
"""

from __future__ import annotations

from collections.abc import Container

from orchestrator.domain.topology import MAX_MESSAGE_BYTES, MAX_MESSAGE_ID_CHARS, QUEUES
from orchestrator.ports import MessageTooLarge, OutMessage, QueueNotFound, TransportError


def check(message: OutMessage, queues: Container[str]) -> int:
    """The size in bytes: body, id and properties, without the protocol's own overhead.

    Raises `QueueNotFound`, `MessageTooLarge`, and `TransportError` for an id or text that no broker
    takes. Dead-letter queues cannot be sent to."""
    if message.queue not in queues:
        raise QueueNotFound(f"no queue {message.queue!r:.80}")
    if not 0 < len(message.message_id) <= MAX_MESSAGE_ID_CHARS:
        raise TransportError(
            f"a message id of {len(message.message_id)} characters, 1 to {MAX_MESSAGE_ID_CHARS} "
            "are allowed"
        )
    try:
        size = len(message.body) + len(message.message_id.encode())
        for name, value in message.properties.items():
            size += len(name.encode()) + len(value.encode())
    except UnicodeEncodeError as error:
        raise TransportError(f"message {message.message_id!r:.140} is not valid Unicode") from error
    if size > MAX_MESSAGE_BYTES:
        raise MessageTooLarge(f"a message of {size} bytes, at most {MAX_MESSAGE_BYTES}")
    return size


def check_message(message: OutMessage) -> None:
    """`check` against the queues of the topology."""
    check(message, QUEUES)
