"""What a task depends on, and what the outcome of an attempt says about it. Pure.

A dependency of an `http` task is the host of its URL (and the port, if it is not the scheme's own),
in lower case; of an activity, the name in its registration. Both share one space of names.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from orchestrator.domain.breakers import Verdict
from orchestrator.domain.failure import Failure, FailureType

MAX_NAME_CHARS: Final = 200
NAME_RULE: Final = f"1 to {MAX_NAME_CHARS} printable characters without white space and / \\ ? # %"
_NAME: Final = re.compile(r"[^\s/\\?#%]+")
_FIXED: Final = re.compile(r"[a-z]+://[^/?#$]+[/?#]", re.IGNORECASE)
NOWHERE: Final = ".invalid"
"""Ends names that never exist (RFC 2606), so nothing is behind them that a breaker could spare. The
canary of `weft smoke` fails on such a name, on purpose and perhaps often."""
_PORTS: Final = {"http": 80, "https": 443}

TROUBLE: Final = frozenset(
    {
        FailureType.TIMEOUT,
        FailureType.HEARTBEAT_TIMEOUT,
        # Of `http` tasks: no connection, no answer, 408 and 5xx, 425 and 429.
        "HttpConnectError",
        "HttpTimeout",
        "HttpServerError",
        "HttpThrottled",
        # Exceptions of Python and of the usual clients (httpx, requests, urllib3, aiohttp, Azure).
        "BrokenPipeError",
        "ClientConnectionError",
        "ClientConnectorError",
        "ConnectError",
        "ConnectTimeout",
        "ConnectTimeoutError",
        "ConnectionAbortedError",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "ConnectionTimeoutError",
        "MaxRetryError",
        "NewConnectionError",
        "ReadError",
        "ReadTimeout",
        "ReadTimeoutError",
        "RemoteDisconnected",
        "RemoteProtocolError",
        "ServerDisconnectedError",
        "ServerTimeoutError",
        "ServiceRequestError",
        "ServiceRequestTimeoutError",
        "ServiceResponseError",
        "ServiceResponseTimeoutError",
        "SocketTimeoutError",
        "Timeout",
        "TimeoutError",
        "WriteError",
        "WriteTimeout",
        "gaierror",
    }
)
"""Types of failures that are the dependency's. A worker that died (LEASE_EXPIRED) says nothing."""

UNASKED: Final = frozenset(
    {
        FailureType.EXPRESSION,
        FailureType.INPUT_INVALID,
        FailureType.UNKNOWN_ACTIVITY,
        FailureType.LEASE_EXPIRED,
        FailureType.DEADLINE_EXCEEDED,  # the time may have gone into the queue
        FailureType.EXITED,
        "SECRET_NOT_FOUND",
        "WORKER_SATURATED",
        "CancelledError",
        "Cancelled",
        "HttpRequestInvalid",
    }
)
"""Types of failures that say nothing: mostly, the attempt did not get as far as the dependency. As
successes they would close a breaker whose dependency is still down."""


def verdict(failure: Failure | None) -> Verdict:
    """What an attempt's outcome says about its dependency. A failure counts by its type, by those
    of its causes, or because the dependency asked to come later; one that is not worth trying again
    is an answer (4xx, a refused card)."""
    if failure is None:
        return Verdict.SUCCESS
    if failure.type in UNASKED:
        return Verdict.NEUTRAL
    if not failure.retryable:
        return Verdict.SUCCESS
    chain = (failure, *failure.causes)
    down = failure.retry_after_ms is not None or any(link.type in TROUBLE for link in chain)
    return Verdict.FAILURE if down else Verdict.SUCCESS


def host_of(url: object) -> str:
    """The dependency that a URL names; "" if it is none."""
    if not isinstance(url, str):
        return ""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not host:
        return ""
    host = f"[{host}]" if ":" in host else host.rstrip(".")
    if host.endswith(NOWHERE):
        return ""
    name = host if port in (None, _PORTS[scheme]) else f"{host}:{port}"
    return name if is_name(name) else ""


def fixed_host(url: object) -> str:
    """The dependency of a URL template if no expression can change it: the host is followed by a
    path, or there is no expression at all. Else ""."""
    if not isinstance(url, str):
        return ""
    if "$" not in url:
        return host_of(url)
    found = _FIXED.match(url)
    return host_of(found[0]) if found else ""


def is_name(text: str) -> bool:
    """Whether `text` can be the name of a dependency; see `NAME_RULE`."""
    return len(text) <= MAX_NAME_CHARS and text.isprintable() and bool(_NAME.fullmatch(text))
