"""Which status is success, and which is worth another attempt."""

from __future__ import annotations

import re
from email.utils import formatdate

import pytest
from activities_support import (
    NOW_MS,
    answer,
    failure,
    get,
    serving,
)

from activities.http_response import retry_after_seconds
from activities.runner import Runner


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
    assert re.match(rf"GET 127\.0\.0\.1:\d+: {status}", found.message)


async def test_message_has_the_status_and_nothing_that_the_server_said(runner: Runner) -> None:
    found = await failure(runner, answer(403, b"token=s3cr3t", phrase="s3cr3t"))
    assert re.fullmatch(r"GET 127\.0\.0\.1:\d+: 403 Forbidden", found.message)


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
