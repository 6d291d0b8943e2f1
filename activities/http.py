"""The built-in activity behind `http` tasks.

One client per process: a client per call would open a connection per call and leak sockets. It has
no memory between calls (no cookies, no proxy settings or credentials picked up from the
environment), because calls belong to different tenants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpx

from activities.context import Context, wall_ms
from activities.egress import CheckedBackend, CheckedTransport, EgressPolicy, EgressRefused
from activities.errors import PermanentError, RetryableError
from activities.http_request import BODILESS, HttpRequest, Prepared, check_target, invalid, prepare
from activities.http_response import (
    ACCEPT_ENCODING,
    output_of,
    read_body,
    retry_after_seconds,
)
from activities.offload import LARGE_BYTES, off_loop
from orchestrator.domain import redaction
from orchestrator.domain.egress import Egress
from orchestrator.domain.topology import MAX_PAYLOAD_BYTES

USER_AGENT: Final = "weft/0.1"
MAX_REDIRECTS: Final = 5
CONNECT_SECONDS: Final = 10.0
LIMITS: Final = httpx.Limits(
    max_connections=1000,  # the engine bounds concurrency; a smaller pool would only hide waiting
    max_keepalive_connections=100,
    keepalive_expiry=30.0,  # below the idle limits of common load balancers (60 s and more)
)

CLIENT_ERROR: Final = "HttpClientError"
SERVER_ERROR: Final = "HttpServerError"
THROTTLED: Final = "HttpThrottled"
CONNECT_ERROR: Final = "HttpConnectError"
TIMEOUT: Final = "HttpTimeout"
UNEXPECTED: Final = "HttpUnexpectedStatus"
REDIRECT_REFUSED: Final = "HttpRedirectRefused"

_TO_OTHER_ORIGINS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "connection",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "traceparent",
        "transfer-encoding",
        "user-agent",
    }
)
"""Headers that follow a redirect to another origin. All others may be credentials."""


class HttpActivity:
    """Sends requests; register its `run`. The client is made on first use, on the running loop.

    `policy` says which addresses may be reached; `transport` replaces the network below the client,
    and the policy with it (tests).
    """

    def __init__(
        self,
        *,
        policy: EgressPolicy,
        transport: httpx.AsyncBaseTransport | None = None,
        max_response_bytes: int = MAX_PAYLOAD_BYTES,
        now: Callable[[], int] = wall_ms,
    ) -> None:
        self._policy = policy
        self._transport = transport
        self._max_response_bytes = max_response_bytes
        self._now = now
        self._clients: dict[tuple[str, ...], httpx.AsyncClient] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, request: HttpRequest, ctx: Context) -> Any:
        """Send, follow at most 5 redirects, and give `{"status", "headers", "body"}` (see
        `output_of`) if the status is one of `successCodes`.

        Raises `PermanentError`: HttpRequestInvalid, HttpClientError (4xx), HttpUnexpectedStatus,
        HttpRedirectRefused, HttpResponseInvalid, EgressRefused, PAYLOAD_TOO_LARGE;
        `RetryableError`: HttpThrottled (425, 429), HttpServerError (408, 5xx), HttpConnectError,
        HttpTimeout.
        """
        prepared = prepare(request, ctx)
        try:
            async with asyncio.timeout(prepared.timeout):
                return await self._exchange(prepared, ctx.egress)
        except TimeoutError:
            raise RetryableError(
                f"{prepared.label}: no answer within {prepared.timeout:g} s", type=TIMEOUT
            ) from None
        except httpx.TimeoutException as exc:
            raise RetryableError(f"{prepared.label}: {_kind(exc)}", type=TIMEOUT) from exc
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as exc:
            raise invalid(f"{prepared.label}: {_kind(exc)}") from exc
        except httpx.InvalidURL:  # ours was checked, so it is where a redirect leads
            raise PermanentError(
                f"{prepared.label}: a redirect leads to a url that cannot be parsed",
                type=REDIRECT_REFUSED,
            ) from None
        except httpx.TransportError as exc:
            raise RetryableError(f"{prepared.label}: {_kind(exc)}", type=CONNECT_ERROR) from exc

    async def close(self) -> None:
        """Close the clients; a later call makes a new one."""
        clients, self._clients = self._clients, {}
        if self._loop is asyncio.get_running_loop():
            for client in clients.values():
                await client.aclose()

    async def _exchange(self, prepared: Prepared, egress: Egress) -> Any:
        client = self._client_here(egress.networks)
        request = client.build_request(
            prepared.method,
            prepared.url,
            headers=[(name.encode(), value) for name, value in prepared.headers.items()],
            content=prepared.content,
        )
        for _ in range(MAX_REDIRECTS + 1):
            if not egress.names(request.url.host):
                raise EgressRefused(
                    f"{prepared.label}: its host, or the one it redirects to, is not in the "
                    "tenant's list of hosts that may be called (onlyHosts)"
                )
            response = await client.send(request, stream=True)
            try:
                if any(response.status_code in codes for codes in prepared.success):
                    body = await read_body(response, self._max_response_bytes)
                    return await off_loop(
                        partial(output_of, response, body), large=len(body) > LARGE_BYTES
                    )
                if response.next_request is None:
                    raise self._failure(prepared, response)
                request = _redirected(request, response.next_request, prepared.content)
            finally:
                await response.aclose()
        raise PermanentError(
            f"{prepared.label}: more than {MAX_REDIRECTS} redirects", type=REDIRECT_REFUSED
        )

    def _failure(self, prepared: Prepared, response: httpx.Response) -> Exception:
        """What a status that is no success means. The body is left out: it may hold secrets."""
        status = response.status_code
        try:
            phrase = f" {HTTPStatus(status).phrase}"
        except ValueError:
            phrase = ""
        message = f"{prepared.label}: {status}{phrase}"
        if status in (408, 425, 429) or 500 <= status <= 599:
            wait = retry_after_seconds(response.headers.get("retry-after"), self._now())
            kind = THROTTLED if status in (425, 429) else SERVER_ERROR
            return RetryableError(message, retry_after=wait, type=kind)
        kind = CLIENT_ERROR if 400 <= status <= 499 else UNEXPECTED
        return PermanentError(message, type=kind)

    def _client_here(self, networks: tuple[str, ...]) -> httpx.AsyncClient:
        """The client of the running loop, whose connections another loop cannot use. One for each
        set of allowed networks: a connection that is kept open was allowed for that one only."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._clients = loop, {}
        client = self._clients.get(networks)
        if client is None:
            client = httpx.AsyncClient(
                headers={"user-agent": USER_AGENT, "accept-encoding": ACCEPT_ENCODING},
                # One tenant's session must not travel in another one's request.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
                trust_env=False,
                # `create_ssl_context` honours SSL_CERT_FILE; the rest is ignored.
                transport=self._transport
                or CheckedTransport(
                    CheckedBackend(self._policy.widened(networks)),
                    LIMITS,
                    verify=httpx.create_ssl_context(),
                ),
            )
            self._clients[networks] = client
        return client


def _redirected(old: httpx.Request, new: httpx.Request, content: bytes | None) -> httpx.Request:
    """The next request of a redirect. httpx drops `Authorization` towards another origin; keys in
    headers of other names must not travel either, nor a secret in a body or any header."""
    try:
        check_target(new.url)
    except PermanentError:
        raise PermanentError(
            "a redirect leads to a url that is not plain http(s)", type=REDIRECT_REFUSED
        ) from None
    if _origin(old.url) != _origin(new.url):
        redactor = redaction.current()
        for name, value in list(new.headers.items()):
            if name.lower() not in _TO_OTHER_ORIGINS or redactor.text(value) != value:
                del new.headers[name]
        body = "" if content is None or new.method in BODILESS else content.decode("latin-1")
        if redactor.text(body) != body:
            raise PermanentError(
                "a redirect leads to another origin, and the body holds a secret",
                type=REDIRECT_REFUSED,
            )
    return new


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    default = 443 if url.scheme == "https" else 80
    return url.scheme, url.host, url.port or default


def _kind(error: httpx.TransportError) -> str:
    """Words for an error of the transport; its own text is in the chain of causes."""
    return {
        httpx.ConnectTimeout: f"no connection within {CONNECT_SECONDS:g} s",
        httpx.ConnectError: "no connection",
        httpx.RemoteProtocolError: "the connection ended before the answer was complete",
    }.get(type(error), f"the exchange broke off ({type(error).__name__})")
