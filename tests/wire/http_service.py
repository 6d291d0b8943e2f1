"""What the small HTTP test servers share: a port of their own, TLS, faults on demand."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final

from aiohttp import web
from azure.core.credentials import AccessToken, AccessTokenInfo, TokenRequestOptions

TOKEN: Final = "a-token-of-the-test-tenant"


class HttpService:
    """An aiohttp server on 127.0.0.1; subclasses say what it answers.

    `requests` counts what came in, faults included; `fail_next` makes the next ones fail before
    anything is looked at.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[str] = []
        self._failing: list[tuple[int, Mapping[str, str], str]] = []
        self._tls = tls
        self._app = web.Application(client_max_size=64 * 1024 * 1024, middlewares=[self._watch])
        self._runner = web.AppRunner(self._app)
        self.port = 0

    async def __aenter__(self) -> HttpService:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Without a path."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def route(
        self, method: str, path: str, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> None:
        """Answer `method path` with `handler`."""
        self._app.router.add_route(method, path, handler)

    def fail_next(
        self,
        status: int,
        *,
        times: int = 1,
        body: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer the next `times` requests with this."""
        self._failing += [(status, headers or {}, body)] * times

    @web.middleware
    async def _watch(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        if self._failing:
            status, headers, body = self._failing.pop(0)
            return web.Response(status=status, headers=headers, text=body)
        return await handler(request)


class StaticCredential:
    """A credential that always has its token; counts what it was asked for."""

    def __init__(self) -> None:
        self.scopes: list[str] = []
        self.closed = 0

    async def get_token(self, *scopes: str, **options: object) -> AccessToken:
        self.scopes += scopes
        return AccessToken(TOKEN, 4_102_444_800)

    async def get_token_info(
        self, *scopes: str, options: TokenRequestOptions | None = None
    ) -> AccessTokenInfo:
        self.scopes += scopes
        return AccessTokenInfo(TOKEN, 4_102_444_800)

    async def close(self) -> None:
        self.closed += 1

    async def __aenter__(self) -> StaticCredential:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()
