"""Bodies of answers: kept without loss, cut off when huge."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from typing import Any

import pytest
from activities_support import (
    LIMIT,
    Received,
    answer,
    failure,
    failure_from,
    get,
    serving,
)

from activities.runner import Runner


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
    ids=["cut off", "no gzip", "no deflate", "unknown", "twice"],
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
