"""Answers: what is success, what is worth another attempt, and what must not hurt the worker."""

from __future__ import annotations

import asyncio
import gzip
import socket
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any

import pytest
from activities_support import (
    WAIT,
    Received,
    answer,
    failure_from,
    json_answer,
    make_call,
    serving,
)

from activities.http import HttpActivity
from activities.http_response import retry_after_seconds
from activities.registry import Registry
from activities.runner import Runner

NOW_MS = 1_800_000_000_000
LIMIT = 200_000


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    """A runner with an http activity that accepts small answers only; closed at the end."""
    http = HttpActivity(max_response_bytes=LIMIT, now=lambda: NOW_MS)
    registry = Registry()
    registry.register("weft.http", http.run, built_in=True)
    runner = Runner(registry, closers=(http.close,))
    yield runner
    await runner.close()


async def get(runner: Runner, url: str, **request: Any) -> Any:
    return await runner.run(make_call("weft.http", {"url": url, **request}))


async def failure(runner: Runner, response: Any, **request: Any) -> Any:
    async with serving(response) as server:
        return await failure_from(get(runner, server.url, **request))


# --- status ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "HttpClientError", False),
        (401, "HttpClientError", False),
        (404, "HttpClientError", False),
        (409, "HttpClientError", False),
        (422, "HttpClientError", False),
        (408, "HttpServerError", True),
        (425, "HttpThrottled", True),
        (429, "HttpThrottled", True),
        (500, "HttpServerError", True),
        (501, "HttpServerError", True),
        (503, "HttpServerError", True),
        (599, "HttpServerError", True),
        (304, "HttpUnexpectedStatus", False),
        (302, "HttpUnexpectedStatus", False),  # without a Location
        (699, "HttpUnexpectedStatus", False),
    ],
)
async def test_status_decides_whether_another_attempt_is_worth_it(
    runner: Runner, status: int, kind: str, retryable: bool
) -> None:
    found = await failure(runner, answer(status))
    assert found.type == kind
    assert found.retryable is retryable
    assert f"127.0.0.1: {status}" in found.message


async def test_message_has_the_status_and_nothing_that_the_server_said(runner: Runner) -> None:
    found = await failure(runner, answer(403, b"token=s3cr3t", phrase="s3cr3t"))
    assert found.message == "GET 127.0.0.1: 403 Forbidden"


async def test_success_codes(runner: Runner) -> None:
    async with serving(answer(404)) as server:
        assert (await get(runner, server.url, successCodes=["200-299", 404]))["status"] == 404
        assert (await get(runner, server.url, successCodes=["404"]))["status"] == 404
    found = await failure(runner, answer(204), successCodes=[200])
    assert found.type == "HttpUnexpectedStatus"
    async with serving(answer(302, location="/other")) as server:
        output = await get(runner, server.url, successCodes=[302])
        assert (output["status"], output["headers"]["location"]) == (302, "/other")
        assert len(server.received) == 1


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("120", 120_000),
        (" 7 ", 7_000),
        (formatdate(NOW_MS / 1000 + 90, usegmt=True), 90_000),
        (formatdate(NOW_MS / 1000 - 90, usegmt=True), None),
        ("-5", None),
        ("0", None),
        ("soon", None),
        ("1.5", None),
        ("", None),
        ("٣", None),
        ("315360000", 86_400_000),  # ten years
        ("9" * 6000, 86_400_000),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400_000),
        ("Fri, 99 Dec 99999 99:59:59 GMT", None),
        ("Sunday, 06-Nov-94 08:49:37 GMT", None),  # past, in the obsolete form
        ("Fri, 15 Jan 2027 08:01:30 -0000", 90_000),
    ],
)
def test_retry_after_is_honoured_ignored_or_capped(value: str, milliseconds: int | None) -> None:
    seconds = retry_after_seconds(value, NOW_MS)
    assert (None if seconds is None else round(seconds * 1000)) == milliseconds


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_reaches_the_failure(runner: Runner, status: int) -> None:
    assert (await failure(runner, answer(status, Retry_After="120"))).retry_after_ms == 120_000
    assert (await failure(runner, answer(status, Retry_After="-5"))).retry_after_ms is None
    assert (await failure(runner, answer(status))).retry_after_ms is None


# --- body -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", b'{"id": 9007199254740993, "n": 2.0}',
         {"body": {"id": 9007199254740993, "n": 2.0}}),
        ("application/problem+json; charset=utf-8", b'["\xc3\xbc"]', {"body": ["ü"]}),
        ("application/json", b"\xef\xbb\xbf1", {"body": 1}),
        ("application/json", b"", {"body": None}),
        ("application/json", b"{bad", {"body": "{bad", "bodyEncoding": "text"}),
        ("application/json", b'{"x": NaN}', {"body": '{"x": NaN}', "bodyEncoding": "text"}),
        ("application/json", b"9223372036854775808",
         {"body": "9223372036854775808", "bodyEncoding": "text"}),
        ("application/json", b"[" * 200 + b"]" * 200,
         {"body": "[" * 200 + "]" * 200, "bodyEncoding": "text"}),
        ("application/json", b'"\xff"', {"body": "Iv8i", "bodyEncoding": "base64"}),
        ("text/plain", b'{"a": 1}', {"body": '{"a": 1}'}),
        ("text/plain", b"a\x00b", {"body": "a\x00b"}),
        ("text/plain", b"\xff\xfe", {"body": "//4=", "bodyEncoding": "base64"}),
        ("text/plain; charset=ISO-8859-1", b"\xfc", {"body": "ü"}),
        ('text/plain; charset="utf-8"', b"\xc3\xbc", {"body": "ü"}),
        ("text/plain; charset=punycode", b"abc-", {"body": "YWJjLQ==", "bodyEncoding": "base64"}),
        ("image/png", b"\x89PNG", {"body": "iVBORw==", "bodyEncoding": "base64"}),
        ("", b"text", {"body": "text"}),
    ],
)  # fmt: skip
async def test_body_is_kept_without_loss(
    runner: Runner, content_type: str, body: bytes, expected: dict[str, Any]
) -> None:
    headers = {"content_type": content_type} if content_type else {}
    async with serving(answer(200, body, **headers)) as server:
        output = await get(runner, server.url)
    assert {k: v for k, v in output.items() if k.startswith("body")} == expected
    assert repr(output["body"]) == repr(expected["body"])


async def test_headers_have_lower_case_names_and_are_joined(runner: Runner) -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nX-B: \xc3\xbc\r\ncontent-length: 0\r\n\r\n"
    async with serving(raw) as server:
        headers = (await get(runner, server.url))["headers"]
    assert headers == {"x-a": "1, 2", "x-b": "ü", "content-length": "0"}


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"hello " * 30_000)),
        ("x-gzip", gzip.compress(b"hello " * 15_000) + gzip.compress(b"hello " * 15_000)),
        ("gzip", gzip.compress(b"hello " * 30_000) + b"\x00" * 20),
        ("deflate", zlib.compress(b"hello " * 30_000)),
        ("deflate", _raw_deflate(b"hello " * 30_000)),
        ("identity", b"hello " * 30_000),
    ],
)
async def test_compressed_answers(runner: Runner, encoding: str, packed: bytes) -> None:
    async with serving(answer(200, packed, content_encoding=encoding)) as server:
        assert (await get(runner, server.url))["body"] == "hello " * 30_000


@pytest.mark.parametrize(
    ("encoding", "packed", "retryable"),
    [
        ("gzip", gzip.compress(b"hello " * 1000)[:-20], True),
        ("gzip", b"no gzip at all", True),
        ("deflate", b"\xff\xff\xff", True),
        ("br", b"whatever", False),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x")), False),
    ],
)
async def test_broken_or_unknown_encoding(
    runner: Runner, encoding: str, packed: bytes, retryable: bool
) -> None:
    found = await failure(runner, answer(200, packed, content_encoding=encoding))
    assert found.type == "HttpResponseInvalid"
    assert found.retryable is retryable


async def endless(_: Received, writer: asyncio.StreamWriter) -> None:
    """A body without end and without length."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
        await writer.drain()


async def empty_members(_: Received, writer: asyncio.StreamWriter) -> None:
    """gzip members that hold nothing, without end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n")
    members = gzip.compress(b"") * 400
    while True:
        writer.write(b"%x\r\n" % len(members) + members + b"\r\n")
        await writer.drain()


@pytest.mark.parametrize(
    "huge",
    [
        answer(200, b"x" * (LIMIT + 1)),
        b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999999999\r\n\r\n",
        answer(200, gzip.compress(b"\0" * 50_000_000, 9), content_encoding="gzip"),
        endless,
        empty_members,
    ],
    ids=["declared", "declared absurdly", "gzip bomb", "endless", "empty members"],
)
async def test_huge_answers_are_cut_off(runner: Runner, huge: Any) -> None:
    async with serving(huge) as server:
        found = await failure_from(get(runner, server.url))
        assert found.type == "PAYLOAD_TOO_LARGE"
        assert not found.retryable
        assert str(LIMIT) in found.message


async def test_gzip_bomb_is_never_inflated_as_a_whole(runner: Runner) -> None:
    bomb = answer(200, gzip.compress(b"\0" * 50_000_000, 9), content_encoding="gzip")
    async with serving(bomb) as server:
        await failure_from(get(runner, server.url))  # first use loads modules and certificates
        tracemalloc.start()
        await failure_from(get(runner, server.url))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 5_000_000


async def test_body_of_exactly_the_limit_passes(runner: Runner) -> None:
    packed = gzip.compress(b"x" * LIMIT)
    for raw in (answer(200, b"x" * LIMIT), answer(200, packed, content_encoding="gzip")):
        async with serving(raw) as server:
            assert len((await get(runner, server.url))["body"]) == LIMIT


# --- redirects ------------------------------------------------------------------------------------


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


# --- connections ----------------------------------------------------------------------------------


async def test_nobody_listens(runner: Runner) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/path?key=s3cr3t"
        found = await failure_from(get(runner, url))
    assert found.type == "HttpConnectError"
    assert found.retryable
    assert found.message == "GET 127.0.0.1: no connection"
    assert found.causes
    assert "s3cr3t" not in str(found)


async def hang_up(_: Received, writer: asyncio.StreamWriter) -> None:
    """Close instead of answering."""
    writer.close()


async def half(_: Received, writer: asyncio.StreamWriter) -> None:
    """Promise ten bytes, send five."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello")
    writer.close()


@pytest.mark.parametrize("response", [hang_up, half, b"garbage\r\n\r\n"])
async def test_broken_exchanges_are_retryable(runner: Runner, response: Any) -> None:
    found = await failure(runner, response)
    assert found.type == "HttpConnectError"
    assert found.retryable


async def test_slow_answer_ends_at_the_timeout_and_hangs_up(runner: Runner) -> None:
    async def never(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal")  # then silence

    async with serving(never) as server:
        found = await failure_from(get(runner, server.url, timeout="20ms"))
        assert found.type == "HttpTimeout"
        assert found.retryable
        assert found.message == "GET 127.0.0.1: no answer within 0.02 s"
        async with asyncio.timeout(WAIT):
            await server.hung_up.wait()


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
    http = HttpActivity()
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
    http = HttpActivity()
    registry = Registry()
    registry.register("weft.http", http.run, built_in=True)
    runner = Runner(registry, closers=(http.close,))

    async def once() -> Any:
        async with serving(json_answer(1)) as server:
            output = await get(runner, server.url)
        await http.close()
        return output["body"]

    assert [asyncio.run(once()), asyncio.run(once())] == [1, 1]
