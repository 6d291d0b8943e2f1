"""What happens on the wire: every request counted, no write ever sent twice behind our back.

Three layers would resend a write whose answer did not come: aiohttp (PUT and DELETE), azure-core
(connection lost: it takes that for "not sent") and azure-cosmos (503). If the first one was
applied, its author is told 409 or 412 about its own write, and the engine's question "was that
mine?" is never asked. So such a write leaves here as `AnswerLost`, which no retry policy knows.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from azure.core.exceptions import AzureError, ServiceRequestTimeoutError
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.documents import ConnectionPolicy

OnCharge = Callable[[str, float], None]

operation: ContextVar[str] = ContextVar("cosmos_operation", default="client")
"""The store operation that the running task works for; "client" is the SDK's own housekeeping."""

_LARGE_BODY_BYTES: Final = 256 * 1024
_UNCLEAR_STATUS: Final = frozenset({408, 500, 502, 503, 504})


class AnswerLost(Exception):
    """A write was sent and nobody knows whether it was applied."""


@dataclass(slots=True)
class Meter:
    """What the store cost since it was opened, by operation name (`read`, `batch`, `query`, …)."""

    charges: dict[str, float] = field(default_factory=dict[str, float])  # request units
    requests: Counter[str] = field(default_factory=Counter[str])  # HTTP requests, retries included
    calls: Counter[str] = field(default_factory=Counter[str])  # calls of the port's methods
    throttled: Counter[str] = field(default_factory=Counter[str])  # answers 429 or 449, batches too
    foreign_rows: int = 0  # rows of another partition that a query returned, and nobody saw
    on_charge: OnCharge | None = None
    on_foreign_row: Callable[[], None] | None = None

    def charged(self, name: str, units: float) -> None:
        """Note one answer."""
        self.requests[name] += 1
        self.charges[name] = self.charges.get(name, 0.0) + units
        if self.on_charge is not None:
            self.on_charge(name, units)

    def foreign_row(self) -> None:
        """Note a row that was left out."""
        self.foreign_rows += 1
        if self.on_foreign_row is not None:
            self.on_foreign_row()


class MeteredTransport(AioHttpTransport):
    """The SDK's transport with a meter, and with the outcome of unanswered writes made plain."""

    def __init__(self, meter: Meter, **options: Any) -> None:
        super().__init__(**options)
        self._meter = meter

    def _get_request_data(self, request: Any) -> Any:
        """A large body as a stream: aiohttp sends that in pieces, and warns about large bytes. If
        the SDK calls this method differently one day, only the warning comes back."""
        data = super()._get_request_data(request)
        if isinstance(data, str):
            data = data.encode()
        if isinstance(data, bytes) and len(data) > _LARGE_BODY_BYTES:
            return io.BytesIO(data)
        return data

    async def open(self) -> None:
        """As the SDK does, but aiohttp may not resend a PUT or DELETE whose connection broke: it
        takes them for repeatable, which with `If-Match` they are not. The attribute is private;
        `test_cosmos_weather` notices if it loses its meaning."""
        await super().open()
        self.session._retry_connection = False  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess, reportAttributeAccessIssue]

    async def send(self, request: Any, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Raises `AnswerLost` for a write that may have been applied. A read whose connection broke
        is sent once more: kept-alive connections end without notice."""
        write = is_write(request)
        try:
            response = await super().send(request, **options)
        except AzureError as error:
            if never_sent(error):
                raise
            if write:
                raise AnswerLost(f"no answer, {type(error).__name__}") from error
            if not isinstance(_cause(error), aiohttp.ServerDisconnectedError | ConnectionError):
                raise
            response = await super().send(request, **options)
        self._meter.charged(operation.get(), _charge(response.headers))
        if response.status_code in _UNCLEAR_STATUS and write:
            raise AnswerLost(f"answered {response.status_code}")
        return response


def is_write(request: Any) -> bool:
    """Whether a request changes anything. Queries are POSTs too."""
    if request.method == "POST":
        headers = request.headers
        return not (
            headers.get("x-ms-documentdb-isquery")
            or headers.get("x-ms-cosmos-is-query-plan-request")
        )
    return request.method not in ("GET", "HEAD")


def never_sent(error: AzureError) -> bool:
    """Whether not even a connection came about: then another region may be asked."""
    return isinstance(error, ServiceRequestTimeoutError) or isinstance(
        _cause(error), aiohttp.ClientConnectorError
    )


def _cause(error: AzureError) -> object:
    return getattr(error, "inner_exception", None)


def _charge(headers: Any) -> float:
    try:
        return float(headers.get("x-ms-request-charge") or 0)
    except ValueError:
        return 0.0


def connection_policy() -> ConnectionPolicy:
    """Retries of 429 off. As an option of the client, 0 counts as "not given", and means 9."""
    policy = ConnectionPolicy()
    policy.RetryOptions = type(policy.RetryOptions)(max_retry_attempt_count=0)
    return policy
