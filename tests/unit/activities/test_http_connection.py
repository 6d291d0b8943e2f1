"""Redirects, broken connections, timeouts, and one client for all."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from activities_support import (
    WAIT,
    Received,
    answer,
    failure,
    failure_from,
    get,
    json_answer,
    serving,
)

from activities.egress import EgressPolicy
from activities.http import HttpActivity
from activities.registry import Registry
from activities.runner import Runner
from orchestrator.settings_egress import LOOPBACK


async def test_redirects_are_followed_with_body_where_the_code_says_so(runner: Runner) -> None:
    async with serving(answer(307, location="/b"), answer(303, location="c"), json_answer(1)) as s:
        output = await get(runner, s.url + "/a", method="POST", body={"n": 1})
        assert output["body"] == 1
        assert [(r.method, r.target, r.body) for r in s.received] == [
            ("POST", "/a", b'{"n":1}'), ("POST", "/b", b'{"n":1}'), ("GET", "/c", b""),
        ]  # fmt: skip


async def test_redirect_loop_ends(runner: Runner) -> None:
    async with serving(answer(302, location="/again")) as server:
        found = await failure_from(get(runner, server.url))
        assert len(server.received) == 6  # the first and five redirects
    assert found.type == "HttpRedirectRefused"
    assert not found.retryable


@pytest.mark.parametrize(
    "target",
    [
        "file:///etc/passwd",
        "ftp://a.example/",
        "http://u:p@127.0.0.1/",
        "data:,x",
        "http://h:99999",
    ],
)
async def test_redirect_to_something_else_is_refused(runner: Runner, target: str) -> None:
    found = await failure(runner, answer(302, location=target))
    assert found.type == "HttpRedirectRefused"
    assert not found.retryable


async def test_keys_do_not_follow_a_redirect_to_another_origin(runner: Runner) -> None:
    secret = {"Authorization": "Bearer s", "X-Api-Key": "s", "Accept": "text/plain"}
    async with serving(json_answer(1)) as other:
        async with serving(
            answer(307, location="/same"), answer(307, location=other.url + "/other")
        ) as first:
            await get(runner, first.url, method="POST", body={"n": 1}, headers=secret)
        assert [r.header("x-api-key") for r in first.received] == ["s", "s"]
        assert [r.header("authorization") for r in first.received] == ["Bearer s", "Bearer s"]
        (got,) = other.received
    assert got.header("x-api-key") is None
    assert got.header("authorization") is None
    assert got.header("accept") == "text/plain"
    assert got.header("idempotency-key") == "key-1"
    assert got.body == b'{"n":1}'


async def test_cookies_of_one_call_are_not_sent_in_the_next(runner: Runner) -> None:
    async with serving(answer(200, Set_Cookie="session=tenant-a; Path=/")) as server:
        for _ in range(2):
            output = await get(runner, server.url)
            assert output["headers"]["set-cookie"] == "session=tenant-a; Path=/"
        assert [r.header("cookie") for r in server.received] == [None, None]


async def test_nobody_listens(runner: Runner) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        url = f"http://{where}/path?key=s3cr3t"
        found = await failure_from(get(runner, url))
    assert found.type == "HttpConnectError"
    assert found.retryable
    assert found.message == f"GET {where}: no connection"
    assert found.causes
    assert "s3cr3t" not in str(found)


async def hang_up(_: Received, writer: asyncio.StreamWriter) -> None:
    """Close instead of answering."""
    writer.close()


async def half(_: Received, writer: asyncio.StreamWriter) -> None:
    """Promise ten bytes, send five."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello")
    writer.close()


async def endless_head(_: Received, writer: asyncio.StreamWriter) -> None:
    """One header line after the other, for as long as anybody listens."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not writer.transport.is_closing():
        writer.write(b"x-line: " + b"a" * 1000 + b"\r\n")
        await writer.drain()


@pytest.mark.parametrize("response", [hang_up, half, b"garbage\r\n\r\n", endless_head])
async def test_broken_exchanges_are_retryable(runner: Runner, response: Any) -> None:
    found = await failure(runner, response)
    assert found.type == "HttpConnectError"
    assert found.retryable


async def test_slow_answer_ends_at_the_timeout_and_hangs_up(runner: Runner) -> None:
    async def never(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal")  # then silence

    async with serving(never) as server:
        found = await failure_from(get(runner, server.url, timeout="400ms"))
        assert found.type == "HttpTimeout"
        assert found.retryable
        assert found.message == f"GET {server.url[7:]}: no answer within 0.4 s"
        async with asyncio.timeout(WAIT):
            await server.hung_up.wait()


async def test_an_answer_in_drops_ends_at_the_timeout_too(runner: Runner) -> None:
    """Each drop comes in time; only all of them together do not."""

    async def drip(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while not writer.transport.is_closing():
            writer.write(b"a")
            await asyncio.sleep(0.02)

    async with serving(drip) as server:
        found = await failure_from(get(runner, server.url, timeout="300ms"))
        assert (found.type, found.retryable) == ("HttpTimeout", True)


async def test_cancelling_hangs_up(runner: Runner) -> None:
    asked = asyncio.Event()

    async def never(_: Received, writer: asyncio.StreamWriter) -> None:
        asked.set()

    async with serving(never) as server:
        run = asyncio.create_task(get(runner, server.url))
        async with asyncio.timeout(WAIT):
            await asked.wait()
            run.cancel()
            await server.hung_up.wait()
        with pytest.raises(asyncio.CancelledError):
            await run


async def test_one_client_for_many_calls_and_a_new_one_after_close() -> None:
    http = HttpActivity(policy=EgressPolicy(LOOPBACK))
    registry = Registry()
    registry.register("weft.http", http.run, built_in=True)
    runner = Runner(registry, closers=(http.close,))
    async with serving(json_answer(1)) as server:
        for _ in range(20):
            await get(runner, server.url)
        assert server.connections == 1
        await runner.close()
        await get(runner, server.url)
        await runner.close()
        assert server.connections == 2
    await runner.close()


def test_each_event_loop_gets_its_own_client() -> None:
    http = HttpActivity(policy=EgressPolicy(LOOPBACK))
    registry = Registry()
    registry.register("weft.http", http.run, built_in=True)
    runner = Runner(registry, closers=(http.close,))

    async def once() -> Any:
        async with serving(json_answer(1)) as server:
            output = await get(runner, server.url)
        await http.close()
        return output["body"]

    assert [asyncio.run(once()), asyncio.run(once())] == [1, 1]
