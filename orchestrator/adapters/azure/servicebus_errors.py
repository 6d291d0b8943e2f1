"""What the Service Bus SDK raises, mapped once: which port error it is and what to do next.

Without this an `AttributeError` of the SDK (a link that vanished at a bad moment) would reach the
caller of a 202 as a fault of ours.
"""

from __future__ import annotations

from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from orchestrator.ports import MessageTooLarge, QueueNotFound, TransportError

_FINAL = (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
"""Answers of the service: asking again at once only adds load."""

_LINK_STAYS = (MessageSizeExceededError, ServiceBusQuotaExceededError, ServiceBusServerBusyError)
"""Rejections of a transfer; the link that carried it is sound."""


def translate(error: Exception, queue: str) -> TransportError:
    """The port error for whatever an SDK call raised; chain it (`raise … from error`)."""
    if isinstance(error, TransportError):
        return error
    if isinstance(error, MessagingEntityNotFoundError) or _token_status(error) == 404:
        return QueueNotFound(f"no queue {queue!r:.80} in the namespace")
    if isinstance(error, MessageSizeExceededError):
        return MessageTooLarge(f"queue {queue}: a message is over the broker's limit")
    if isinstance(error, (ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
        return TransportError(
            f"queue {queue}: not authorised, or no such queue; the identity needs the role "
            "'Azure Service Bus Data Sender' on the namespace"
        )
    if isinstance(error, TimeoutError):
        return TransportError(f"queue {queue}: the broker did not answer in time")
    return TransportError(f"queue {queue}: {type(error).__name__}")


def _token_status(error: Exception) -> int | None:
    """The status with which the service refused a token. It looks for the entity there already: a
    missing queue is a 404, which the SDK shows as an authentication error."""
    status = getattr(getattr(error, "inner_exception", None), "status_code", None)
    return status if isinstance(status, int) else None


def worth_a_fresh_link(error: Exception) -> bool:
    """Whether an immediate second try on a new link makes sense. It repeats the message ids, so
    that duplicate detection drops what had arrived after all."""
    return not isinstance(error, _FINAL)


def link_is_sound(error: Exception) -> bool:
    """Whether the link can be used again."""
    return isinstance(error, _LINK_STAYS)
