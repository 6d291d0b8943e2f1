"""What a broker accepts, checked before anything is sent, alike for every adapter.

Service Bus's client does not check the size of a single message itself, and a message that passes
on SQLite must not fail there.
"""

from __future__ import annotations

from orchestrator.domain.topology import MAX_MESSAGE_BYTES, MAX_MESSAGE_ID_CHARS, QUEUES
from orchestrator.ports import MessageTooLarge, OutMessage, QueueNotFound, TransportError


def check_message(message: OutMessage) -> None:
    """Raises `QueueNotFound`, `MessageTooLarge`, `TransportError`. Properties count as size."""
    if message.queue not in QUEUES:  # dead-letter queues cannot be sent to
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
