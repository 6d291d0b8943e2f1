"""Requests as they arrive: over a real loopback connection, byte by byte."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import pytest
from activities_support import Server, failure_from, json_answer, make_call, serving
from hypothesis import given
from hypothesis import strategies as st

from activities.context import Context
from activities.errors import PermanentError
from activities.http_request import HttpRequest, checked_url, prepare
from activities.runner import Runner
from orchestrator.domain.urls import encode_part

NASTY = '"}], "x": "y\n{{x}} ${input.name}'


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Answers everything with 200."""
    async with serving(json_answer({"ok": True})) as running:
        yield running


async def send(runner: Runner, request: dict[str, Any], **fields: Any) -> Any:
    return await runner.run(make_call("weft.http", request, **fields))


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_methods(runner: Runner, server: Server, method: str) -> None:
    output = await send(runner, {"method": method.lower(), "url": server.url + "/a"})
    assert output["status"] == 200
    assert output["body"] == {"ok": True}
    (got,) = server.received
    assert (got.method, got.target, got.body) == (method, "/a", b"")


async def test_head_has_no_body(runner: Runner) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\nContent-Encoding: gzip\r\n\r\n"
    async with serving(head) as server:
        output = await send(runner, {"method": "HEAD", "url": server.url})
    assert output["body"] is None
    assert output["headers"]["content-length"] == "999999999999"


async def test_standard_headers_are_sent_and_the_key_is_the_same_for_every_attempt(
    runner: Runner, server: Server
) -> None:
    for attempt in (1, 2):
        await send(runner, {"url": server.url}, attempt=attempt, idempotency_key="task-7")
    for got in server.received:
        assert got.header("idempotency-key") == "task-7"
        assert got.header("traceparent") == make_call("x").traceparent
        assert (got.header("user-agent") or "").startswith("weft/")
        assert got.header("accept-encoding") == "gzip, deflate"
    assert server.connections == 1  # kept alive and used again


async def test_headers_of_the_user_win_in_any_case(runner: Runner, server: Server) -> None:
    headers = {
        "IDEMPOTENCY-key": "mine", "TraceParent": "tp", "User-Agent": "me/1", "X-Number": 7,
        "X-Flag": True, "X-None": None, "X-Text": " blå \t", "X-Empty": "",
    }  # fmt: skip
    await send(runner, {"url": server.url, "headers": headers})
    (got,) = server.received
    assert got.header("idempotency-key") == "mine"
    assert got.header("traceparent") == "tp"
    assert got.header("user-agent") == "me/1"
    assert got.header("x-number") == "7"
    assert got.header("x-flag") == "true"
    assert got.header("x-none") is None
    assert got.header("x-text") == "blå"
    assert got.header("x-empty") == ""


async def test_no_traceparent_without_a_trace(runner: Runner, server: Server) -> None:
    await send(runner, {"url": server.url}, traceparent="")
    assert server.received[0].header("traceparent") is None


async def test_values_pasted_into_json_text_arrive_byte_exact(
    runner: Runner, server: Server
) -> None:
    body = {"text": NASTY, "big": 2**63 - 1, "whole": 2.0, "nul": "\x00", "ü": ["😀", None]}
    url = f"{server.url}/items/{encode_part(NASTY)}?q={encode_part(NASTY)}"
    query = {"also": NASTY, "flag": True, "n": 1.5, "many": ["a b", "c&d=e+f"], "gone": None}
    await send(runner, {"method": "POST", "url": url, "query": query, "body": body})
    (got,) = server.received
    assert json.loads(got.body) == body
    assert b'"whole":2.0' in got.body
    assert got.header("content-type") == "application/json"
    path, _, raw_query = got.target.partition("?")
    encoded = "%22%7D%5D%2C%20%22x%22%3A%20%22y%0A%7B%7Bx%7D%7D%20%24%7Binput.name%7D"
    assert path == f"/items/{encoded}"
    assert raw_query == (
        f"q={encoded}&also={encoded}&flag=true&n=1.5&many=a%20b&many=c%26d%3De%2Bf"
    )


@pytest.mark.parametrize("value", ["a\nb", "a\r\nX-Evil: 1", "a\x00", "\x7f", "a\rb"])
async def test_header_with_newline_is_refused(runner: Runner, server: Server, value: str) -> None:
    request = {"url": server.url, "headers": {"X-Name": value}}
    failure = await failure_from(send(runner, request))
    assert failure.type == "HttpRequestInvalid"
    assert not failure.retryable
    assert "X-Name" in failure.message
    assert not server.received


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": "5"},
        {"transfer-encoding": "chunked"},
        {"Host": "other.example"},
        {"Connection": "close"},
        {"X A": "1"},
        {"": "1"},
        {"X-A\r\nB": "1"},
        {"X-A": "1", "x-a": "2"},
    ],
)
async def test_header_names_that_break_the_message_are_refused(
    runner: Runner, server: Server, headers: dict[str, str]
) -> None:
    failure = await failure_from(send(runner, {"url": server.url, "headers": headers}))
    assert failure.type == "HttpRequestInvalid"
    assert not server.received


@pytest.mark.parametrize(
    ("content_type", "body", "sent"),
    [
        (None, "text", b'"text"'),
        (None, None, b"null"),
        (None, False, b"false"),
        ("application/json; charset=utf-8", "text", b'"text"'),
        ("application/problem+json", {"a": 1}, b'{"a":1}'),
        ("text/plain", "a\nü", "a\nü".encode()),
        ("application/x-www-form-urlencoded", "a=1&b=2", b"a=1&b=2"),
        ("application/xml", "<a/>", b"<a/>"),
        ("text/plain", "", b""),
    ],
)
async def test_body_is_json_unless_it_is_text_of_another_type(
    runner: Runner, server: Server, content_type: str | None, body: Any, sent: bytes
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    request = {"method": "POST", "url": server.url, "headers": headers, "body": body}
    await send(runner, request)
    (got,) = server.received
    assert got.body == sent
    assert got.header("content-type") == (content_type or "application/json")


@pytest.mark.parametrize(
    "change",
    [
        {"method": "GET", "body": {"a": 1}},
        {"method": "TRACE"},
        {"method": "G\r\nET"},
        {"headers": {"content-type": "text/plain"}, "body": {"a": 1}, "method": "POST"},
        {"successCodes": ["2xx"]},
        {"successCodes": [99]},
        {"successCodes": ["299-200"]},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": "soon"},
        {"timeout": "1e999"},
    ],
)
async def test_requests_that_mean_nothing_are_refused(
    runner: Runner, server: Server, change: dict[str, Any]
) -> None:
    failure = await failure_from(send(runner, {"url": server.url} | change))
    assert failure.type == "HttpRequestInvalid"
    assert not failure.retryable
    assert not server.received


async def test_unknown_and_missing_fields_are_listed(runner: Runner) -> None:
    failure = await failure_from(send(runner, {"uri": "x", "headers": {"a": ["b"]}}))
    assert failure.type == "INPUT_INVALID"
    assert not failure.retryable
    assert "$.url: Field required" in failure.message
    assert "$.uri: Extra inputs are not permitted" in failure.message
    assert "$.headers.a" in failure.message


async def test_null_body_of_a_get_is_no_body(runner: Runner, server: Server) -> None:
    await send(runner, {"url": server.url, "body": None})
    assert server.received[0].header("content-length") is None


@pytest.mark.parametrize(
    "url",
    [
        "", "pay.example/charges", "/charges", "ftp://pay.example/", "file:///etc/passwd",
        "http://", "http:///a", "https://u:p@pay.example/", "https://u@pay.example/",
        "http://@pay.example/", "http://pay.example\\@evil.example/", "http://pay example/",
        "http://pay.example/a b", "http://pay.example/a\nb", "http://pay.example/\x00",
        "http://pay.example/\x85", "http://pay.example/\u2028", "http://pay%2eexample/",
        "http://pay.example:99999/", "http://pay.example:abc/", "http://[::1/", "javascript://x",
        "http://pay.example/" + "a" * 9000, "http://pay.example/\ud800",
    ],
)  # fmt: skip
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(PermanentError) as caught:
        checked_url(url)
    assert caught.value.type == "HttpRequestInvalid"


@pytest.mark.parametrize(
    "tail",
    [
        "../admin", "./", "..", ".", "%2E%2E/admin", "%2e.", "..%2Fadmin", "a%2F..%2F..%2Fadmin",
        "..%5Cadmin", "..;x/admin", "..?a=1", "..#a",
    ],
)  # fmt: skip
def test_path_cannot_be_climbed(tail: str) -> None:
    with pytest.raises(PermanentError, match="segment"):
        checked_url("https://pay.example/charges/" + tail)


@pytest.mark.parametrize(
    "tail", ["...", "a..b", "..a", "?next=../x", "#../x", "%252E%252E", ".well"]
)
def test_dots_that_climb_nowhere_are_kept(tail: str) -> None:
    assert str(checked_url("https://pay.example/charges/" + tail)).endswith(tail)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60))
def test_any_value_in_a_url_stays_in_its_place_or_is_refused(value: str) -> None:
    url = f"https://pay.example/charges/{encode_part(value)}/refund"
    try:
        checked = checked_url(url)
    except PermanentError:
        assert "." in value
        return
    assert checked.host == "pay.example"
    path = checked.raw_path.decode()
    assert path.startswith("/charges/")
    assert path.endswith("/refund")
    assert path.count("/") == 3
    assert path.split("/")[2] == encode_part(value)


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_query_values_come_back_as_they_were(query: dict[str, str]) -> None:
    request = HttpRequest(url="https://pay.example/a?x=1", query=query)
    url = prepare(request, Context.for_test()).url
    assert parse_qsl(url.query.decode(), keep_blank_values=True) == [("x", "1"), *query.items()]


def test_query_joins_what_the_url_has_and_drops_the_fragment() -> None:
    def url(text: str, **query: Any) -> str:
        return str(prepare(HttpRequest(url=text, query=query), Context.for_test()).url)

    assert url("http://h/p#frag", a=1) == "http://h/p?a=1"
    assert url("http://h/p?", a=1) == "http://h/p?a=1"
    assert url("http://h/p?b=2&", a=1) == "http://h/p?b=2&a=1"
    assert url("http://h/p?b=2", a=None) == "http://h/p?b=2"
    assert url("http://h") == "http://h"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (2, 2.0),
        (0.5, 0.5),
        ("500ms", 0.5),
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h", 3600.0),
    ],
)
def test_timeouts(value: Any, seconds: float | None) -> None:
    request = HttpRequest(url="http://h", timeout=value)
    assert prepare(request, Context.for_test()).timeout == seconds
