"""Serves the app's HTTP triggers: real `HttpRequest` objects in, `HttpResponse` out.

The low-level aiohttp server: routing, body limits and encodings are the real host's here, not
aiohttp's.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Mapping
from typing import Any, Final

import azure.functions as func
import orjson
from aiohttp import web

from orchestrator.functions.http_errors import stack
from orchestrator.local.host.indexing import HttpBinding
from orchestrator.local.host.invoke import Invoker
from orchestrator.local.host.listening import BACKLOG
from orchestrator.local.host.routes import BadPath, Found, RouteTable

logger = logging.getLogger("orchestrator.local.host")
protocol_logger = logging.getLogger("orchestrator.local.host.protocol")


def _without_request(record: logging.LogRecord) -> bool:
    """The error about a request that cannot be parsed quotes it: a header with a token, a line with
    a payload. Its type is enough, and no error of ours."""
    error = record.exc_info[1] if record.exc_info else None
    record.msg, record.args = "request not parsed: %s", (type(error).__name__,)
    record.exc_info = record.exc_text = None
    record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


protocol_logger.addFilter(_without_request)

MAX_REQUEST_BYTES: Final = 100 * 1024 * 1024
"""The real host's default limit; what an API allows is for its functions to say."""
_ACCEPT_TURNS: Final = 5
_NO_BODY: Final = frozenset({204, 304})


class HttpServer:
    """The HTTP functions of an app behind one listening socket."""

    def __init__(self, invokers: Mapping[Invoker, HttpBinding]) -> None:
        """Raises `ValueError` if two functions take the same requests."""
        self._table: RouteTable[Invoker] = RouteTable()
        # The real host tries functions by name, not the more specific route first.
        for invoker, binding in sorted(
            invokers.items(), key=lambda pair: pair[0].function.name.lower()
        ):
            try:
                self._table.add(binding.template, binding.methods, invoker)
            except ValueError as error:
                raise ValueError(
                    f"cannot load the {invoker.function.name} function: {error}"
                ) from error
        self._runner: web.ServerRunner | None = None

    async def start(self, sock: socket.socket, drain_s: float) -> None:
        """Serve on `sock` (taken over). Requests still running at `stop` get `drain_s` seconds."""
        loop = asyncio.get_running_loop()

        def request(
            message: Any, payload: Any, protocol: Any, writer: Any, task: Any
        ) -> web.BaseRequest:
            return web.BaseRequest(
                message, payload, protocol, writer, task, loop, client_max_size=MAX_REQUEST_BYTES
            )

        server = web.Server(
            self.handle,
            request_factory=request,
            auto_decompress=False,
            access_log=None,
            logger=protocol_logger,
        )
        self._runner = runner = web.ServerRunner(server, shutdown_timeout=drain_s)
        await runner.setup()
        await web.SockSite(runner, sock, backlog=BACKLOG).start()

    async def stop(self) -> None:
        """Accept no more, let running requests end, close."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for site in runner.sites:
            await site.stop()
        # asyncio takes a few turns to hand over a connection that it accepted before; aiohttp
        # would forget, not close, those that arrive while it waits for running requests.
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        await runner.cleanup()

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one request. Never raises but to cancel."""
        method, path = request.method, request.rel_url.raw_path
        try:
            found = self._find(method, path)
            if isinstance(found, web.Response):
                return found
            body = await _read_body(request)
        except BadPath as error:
            return _problem(400, "MALFORMED", str(error))
        except web.HTTPRequestEntityTooLarge:
            return _problem(413, "TOO_LARGE", f"a request has at most {MAX_REQUEST_BYTES} bytes")
        name = found.target.function.name
        try:
            answer = await found.target(_to_request(request, found.params, body))
            return _to_response(answer)
        except Exception as error:
            logger.error(
                "http function failed: %s\n%s",
                type(error).__name__,
                stack(error),
                extra={"action": "http_failed", "function": name},
            )
            return _problem(500, "INTERNAL", f"the function {name} failed; the log says why")

    def _find(self, method: str, path: str) -> Found[Invoker] | web.Response:
        found = self._table.find(method, path)
        if isinstance(found, Found):
            return found
        if method == "HEAD" and isinstance(got := self._table.find("GET", path), Found):
            return got
        if not found:
            return _problem(404, "NOT_FOUND", "nothing has this path; see /docs")
        allow = found | {"OPTIONS"} | ({"HEAD"} if "GET" in found else set())
        headers = {"Allow": ", ".join(sorted(allow)), "Server": _SERVER}
        if method == "OPTIONS":
            return web.Response(status=204, headers=headers)
        return _problem(405, "METHOD_NOT_ALLOWED", "this path has other methods", headers)


_SERVER: Final = "weft-embedded"


async def _read_body(request: web.BaseRequest) -> bytes:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    return await request.read() if request.body_exists else b""


def _to_request(
    request: web.BaseRequest, route_params: dict[str, str], body: bytes
) -> func.HttpRequest:
    headers: dict[str, str] = {}
    for key, value in request.headers.items():
        name = key.lower()
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return func.HttpRequest(
        method=request.method,
        url=f"http://{headers.get('host', '')}{request.raw_path}",
        headers=headers,
        params=dict(request.rel_url.query.items()),  # of a repeated one the last, as the real host
        route_params=route_params,
        body=body,
    )


def _to_response(answer: Any) -> web.Response:
    if answer is None:
        return web.Response(status=204, headers={"Server": _SERVER})
    if isinstance(answer, str):
        return web.Response(text=answer, headers={"Server": _SERVER})
    if not isinstance(answer, func.HttpResponse):
        raise TypeError(f"a function answered with {type(answer).__name__}, not HttpResponse")
    response = web.Response(status=answer.status_code, headers={"Server": _SERVER})
    for key, value in answer.headers.items():
        response.headers.add(key, value)
    if answer.status_code in _NO_BODY:
        return response
    if "Content-Type" not in response.headers:
        text = answer.mimetype.startswith("text/")
        response.headers["Content-Type"] = (
            f"{answer.mimetype}; charset={answer.charset}" if text else answer.mimetype
        )
    response.body = answer.get_body()  # aiohttp leaves it out for HEAD, but tells its length
    return response


def _problem(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    trace = secrets.token_hex(16)
    error = {"code": code, "message": message, "details": [], "traceId": trace}
    return web.Response(
        status=status,
        body=orjson.dumps({"error": error}),
        content_type="application/json",
        headers={"Server": _SERVER, "x-trace-id": trace, **(headers or {})},
    )
