"""From the SDK's exceptions to port errors, in one place.

Without it a 412 inside a batch looks like a 424, a lagging replica (404/1002) like a missing
document, and a write whose answer was lost like one that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from azure.core.exceptions import AzureError
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from orchestrator.adapters.azure.cosmos_transport import AnswerLost
from orchestrator.ports import (
    BadDocument,
    Conflict,
    NotFound,
    PreconditionFailed,
    StoreError,
    Throttled,
    TooLarge,
    Unavailable,
)

SDK_ERRORS: Final = (AzureError, AnswerLost, aiohttp.ClientError, asyncio.TimeoutError, OSError)
"""What a call of the SDK may raise when the service or the network is to blame."""

RETRY_WITH: Final = 449  # a transient conflict inside the service; nothing was written
DEFAULT_RETRY_AFTER_MS: Final = 100
RETRY_WITH_AFTER_MS: Final = 10

_FAILED_DEPENDENCY: Final = 424  # a neighbour's failure, never the cause
_RANGE_GONE: Final = 1002  # with 410: the range was split or moved; the request was not served
_LAGGING: Final = 1002  # with 404: the replica has not reached the session's token yet
_NO_CONTAINER: Final = 1003  # with 404: the database or container does not exist
_PARTITION_FULL: Final = 1014  # with 403: the logical partition has reached its 20 GB

_SIMPLE: Final[dict[int, type[StoreError]]] = {
    400: BadDocument,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: TooLarge,
}
_UNCLEAR: Final = frozenset({408, 410, 500, 502, 503, 504})


class RangeGone(Exception):
    """The physical partition was split or moved; the SDK has refreshed its map: try again."""


def translate(error: BaseException, what: str) -> StoreError | RangeGone:
    """The port error for one of `SDK_ERRORS`, with its cause chained. `what` names the operation
    and container in the message; bodies and keys never appear in it."""
    if isinstance(error, CosmosBatchOperationError):
        failure = _batch(error, what)
    elif isinstance(error, CosmosHttpResponseError):
        status = int(error.status_code or 0)
        failure = _by_status(status, int(error.sub_status or 0), _headers(error), what)
    elif isinstance(error, AnswerLost):
        failure = Unavailable(f"{what}: {error}")
    else:
        failure = Unavailable(f"{what}: {type(error).__name__}")
    failure.__cause__ = error
    return failure


def _batch(error: CosmosBatchOperationError, what: str) -> StoreError | RangeGone:
    """The error of the operation that failed, not the 424 of its neighbours."""
    responses: list[Mapping[str, Any]] = list(error.operation_responses or ())
    for position, response in enumerate(responses):
        status = int(response.get("statusCode", 0))
        if status >= 400 and status != _FAILED_DEPENDENCY:
            headers = dict(error.headers or {})
            if "retryAfterMilliseconds" in response:
                headers["x-ms-retry-after-ms"] = response["retryAfterMilliseconds"]
            failure = _by_status(
                status,
                int(response.get("subStatusCode", 0)),
                headers,
                f"{what}, operation {position}",
            )
            if isinstance(failure, StoreError):
                failure.operation = position
            return failure
    return Unavailable(f"{what}: the batch failed without saying which operation did")


def _by_status(
    status: int, sub_status: int, headers: Mapping[str, Any], what: str
) -> StoreError | RangeGone:
    text = f"{what}: {status}/{sub_status}"
    if status == 429:
        return Throttled(text, retry_after_ms=_retry_after(headers, DEFAULT_RETRY_AFTER_MS))
    if status == RETRY_WITH:
        return Throttled(text, retry_after_ms=_retry_after(headers, RETRY_WITH_AFTER_MS))
    if status == 410 and sub_status == _RANGE_GONE:
        return RangeGone(text)
    if status == 404 and sub_status == _LAGGING:
        return Unavailable(f"{text}, the replica lags behind this session")
    if status == 404 and sub_status == _NO_CONTAINER:
        return StoreError(f"{text}, the database or container does not exist")
    if status == 403 and sub_status == _PARTITION_FULL:
        return TooLarge(f"{text}, the logical partition is full")
    if status in (401, 403):
        return StoreError(f"{text}, this identity may not do that")
    if status in _UNCLEAR:
        return Unavailable(text)
    return _SIMPLE.get(status, StoreError)(text)


def _headers(error: CosmosHttpResponseError) -> Mapping[str, Any]:
    return error.headers or {}


def _retry_after(headers: Mapping[str, Any], default: int) -> int:
    try:
        return max(1, int(headers["x-ms-retry-after-ms"]))
    except (KeyError, ValueError):
        return default
