"""HTTP: what a function sees of a request, and what a client sees of its answer."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import azure.functions as func
import pytest
from host_fakes import local_host, port_is_free, until

from orchestrator.local.host import IndexingError, PortInUse
from orchestrator.local.host.host import HTTP, LocalHost
from orchestrator.local.host.listening import listening_socket

Answer = tuple[int, dict[str, str], bytes]


async def ask(port: int, request: bytes, body: bytes = b"") -> Answer:
    """One raw request on its own connection: no client library tidies anything up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = b"content-length: %d\r\n" % len(body) if body else b""
    head = request.replace(b"\n", b"\r\n") + b"\r\nhost: x\r\nconnection: close\r\n" + length
    writer.write(head + b"\r\n" + body)
    raw = await reader.read()
    writer.close()
    await writer.wait_closed()
    start, _, rest = raw.partition(b"\r\n\r\n")
    status, *lines = start.decode("latin-1").split("\r\n")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), headers, rest


def echo(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(
        json.dumps(
            {
                "method": req.method,
                "url": req.url,
                "headers": dict(req.headers),
                "params": dict(req.params),
                "route": dict(req.route_params),
                "size": len(req.get_body()),
            }
        ),
        mimetype="application/json",
    )


@pytest.fixture
async def host() -> AsyncIterator[LocalHost]:
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)

    @app.route(route="things/{id}", methods=["GET"])
    async def get_thing(req: func.HttpRequest) -> func.HttpResponse:
        return echo(req)

    @app.route(route="things/{id}", methods=["DELETE"])
    def delete_thing(req: func.HttpRequest) -> func.HttpResponse:
        return echo(req)

    @app.route(route="things", methods=["POST"])
    async def post_thing(req: func.HttpRequest) -> func.HttpResponse:
        return echo(req)

    @app.route(route="raise")
    async def raises(req: func.HttpRequest) -> func.HttpResponse:
        raise RuntimeError("secret detail")

    @app.route(route="text")
    async def text(req: func.HttpRequest) -> str:
        return "hé"

    @app.route(route="nothing")
    async def nothing(req: func.HttpRequest):  # type: ignore[no-untyped-def]
        return None

    @app.route(route="plain")
    async def plain(req: func.HttpRequest) -> func.HttpResponse:
        return func.HttpResponse("é", status_code=201, headers={"X-One": "1", "Location": "/y"})

    @app.route(route="wrong")
    async def wrong(req: func.HttpRequest):  # type: ignore[no-untyped-def]
        return {"not": "a response"}

    made = local_host(app, roles=frozenset({HTTP}))
    await made.start()
    yield made
    await made.stop()


async def get(host: LocalHost, path: str) -> Any:
    status, _, body = await ask(host.port, b"GET %s HTTP/1.1" % path.encode())
    assert status == 200, body
    return json.loads(body)


async def test_a_function_sees_the_request_as_on_the_real_host(host: LocalHost) -> None:
    status, headers, body = await ask(
        host.port,
        b"GET /things/7?a=1&b=%20x&a=2 HTTP/1.1\nX-Custom: One\nx-custom: Two\nAccept: */*",
    )
    seen = json.loads(body)
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert seen["method"] == "GET"
    assert seen["url"] == "http://x/things/7?a=1&b=%20x&a=2"
    assert seen["headers"]["x-custom"] == "One,Two"
    assert seen["params"] == {"a": "2", "b": " x"}
    assert seen["route"] == {"id": "7"}
    assert seen["size"] == 0


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/things/a%2Fb", "a/b"),
        ("/things/a%252Fb", "a%2Fb"),
        ("/things/%C3%A9", "é"),
        ("/things/..%2f..%2fetc", "../../etc"),
        ("/THINGS/Case", "Case"),
        ("/things/slash/", "slash"),
    ],
)
async def test_path_segments_are_decoded_once(host: LocalHost, path: str, value: str) -> None:
    assert (await get(host, path))["route"] == {"id": value}


async def test_the_method_chooses_the_function(host: LocalHost) -> None:
    status, _, body = await ask(host.port, b"DELETE /things/7 HTTP/1.1")
    assert (status, json.loads(body)["method"]) == (200, "DELETE")


@pytest.mark.parametrize(
    ("request_line", "status", "code"),
    [
        (b"GET /nowhere HTTP/1.1", 404, "NOT_FOUND"),
        (b"GET /things/a/b HTTP/1.1", 404, "NOT_FOUND"),
        (b"POST /things/7 HTTP/1.1", 405, "METHOD_NOT_ALLOWED"),
        (b"GET /things/%ff HTTP/1.1", 400, "MALFORMED"),
        (b"GET /raise HTTP/1.1", 500, "INTERNAL"),
        (b"GET /wrong HTTP/1.1", 500, "INTERNAL"),
    ],
)
async def test_errors_of_the_host_come_in_the_envelope(
    host: LocalHost, request_line: bytes, status: int, code: str
) -> None:
    got, headers, body = await ask(host.port, request_line)
    error = json.loads(body)["error"]
    assert (got, error["code"]) == (status, code)
    assert error["details"] == []
    assert error["traceId"] == headers["x-trace-id"]
    assert b"secret" not in body
    if status == 405:
        assert headers["allow"] == "DELETE, GET, HEAD, OPTIONS"


async def test_head_and_options(host: LocalHost) -> None:
    status, headers, body = await ask(host.port, b"HEAD /things/7 HTTP/1.1")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0
    status, headers, body = await ask(host.port, b"OPTIONS /things/7 HTTP/1.1")
    assert (status, body) == (204, b"")
    assert headers["allow"] == "DELETE, GET, HEAD, OPTIONS"


async def test_answers_keep_status_headers_and_encoding(host: LocalHost) -> None:
    status, headers, body = await ask(host.port, b"GET /plain HTTP/1.1")
    assert (status, body) == (201, "é".encode())
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert (headers["x-one"], headers["location"]) == ("1", "/y")
    assert (await ask(host.port, b"GET /text HTTP/1.1"))[2] == "hé".encode()
    assert (await ask(host.port, b"GET /nothing HTTP/1.1"))[0] == 204


async def test_large_bodies_are_for_the_function_to_judge(host: LocalHost) -> None:
    body = b"x" * (3 * 1024 * 1024)
    status, _, answer = await ask(host.port, b"POST /things HTTP/1.1", body)
    assert (status, json.loads(answer)["size"]) == (200, len(body))


async def test_a_body_over_the_hosts_limit_is_413(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.local.host.http_server.MAX_REQUEST_BYTES", 10)
    status, _, answer = await ask(host.port, b"POST /things HTTP/1.1", b"x" * 11)
    assert (status, json.loads(answer)["error"]["code"]) == (413, "TOO_LARGE")


async def test_a_body_without_a_length_is_bounded_too(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.local.host.http_server.MAX_REQUEST_BYTES", 10)
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    head = b"POST /things HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    writer.write(head + b"transfer-encoding: chunked\r\n\r\n")
    writer.write(b'6\r\n{"a":1\r\n' + b"6\r\n      \r\n" + b"0\r\n\r\n")
    raw = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert raw.startswith(b"HTTP/1.1 413 ")
    assert b"TOO_LARGE" in raw


async def test_a_client_that_expects_continue_is_told_so(host: LocalHost) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(
        b"POST /things HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n"
        b"expect: 100-continue\r\n\r\n"
    )
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert b'"size": 2' in await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_nothing_of_a_request_that_cannot_be_parsed_is_logged(
    host: LocalHost, caplog: pytest.LogCaptureFixture
) -> None:
    """The library's error quotes it, and it may hold a token."""
    for request in (
        b"GET /things HTTP/1.1\nauthorization: Bearer t0ken\x01",
        b"GET /things HTTP/1.1\nt0ken\x00: 1",
        b"GET /t0ken HTTP/x",
    ):
        status, _, _ = await ask(host.port, request)
        assert status == 400
    assert len(caplog.records) == 3
    assert {one.levelname for one in caplog.records} == {"WARNING"}
    told = "".join(logging.Formatter().format(one) for one in caplog.records)
    assert "t0ken" not in told
    assert "request not parsed" in told


async def test_a_compressed_body_is_not_unpacked(host: LocalHost) -> None:
    """The real host leaves it alone; unpacking here would also open the door to bombs."""
    status, _, answer = await ask(
        host.port, b"POST /things HTTP/1.1\ncontent-encoding: gzip", b"\x1f\x8b not gzip at all"
    )
    assert (status, json.loads(answer)["size"]) == (200, 18)


async def test_stopping_lets_a_running_request_end() -> None:
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    begun, release = asyncio.Event(), asyncio.Event()

    @app.route(route="slow")
    async def slow(req: func.HttpRequest) -> str:
        begun.set()
        await release.wait()
        return "done"

    host = local_host(app, roles=frozenset({HTTP}))
    await host.start()
    port = host.port
    asking = asyncio.create_task(ask(port, b"GET /slow HTTP/1.1"))
    await begun.wait()
    stopping = asyncio.create_task(host.stop())
    await until(lambda: port_is_free(port))
    assert not stopping.done()
    release.set()
    status, _, body = await asking
    await stopping
    assert (status, body) == (200, b"done")


async def test_a_taken_port_is_named() -> None:
    taken = listening_socket("127.0.0.1", 0)
    port = taken.getsockname()[1]
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)

    @app.route(route="x")
    async def x(req: func.HttpRequest) -> str:
        return ""

    host = local_host(app, roles=frozenset({HTTP}), port=port)
    with pytest.raises(PortInUse, match=str(port)) as caught:
        await host.start()
    assert caught.value.port == port
    await host.stop()
    taken.close()


def test_only_this_machine_is_listened_to() -> None:
    sock = listening_socket("127.0.0.1", 0)
    try:
        assert sock.getsockname()[0] == "127.0.0.1"
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    finally:
        sock.close()


def test_two_functions_for_the_same_requests_are_refused_by_name() -> None:
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    for name in ("first", "second"):

        @app.function_name(name)
        @app.route(route="same/{id}")
        async def same(req: func.HttpRequest) -> str:
            return ""

    with pytest.raises(IndexingError, match="second"):
        local_host(app)
