"""Bad input: every refusal has its status, the envelope, and says what was expected."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from http_client import Client
from http_support import UseCases

from orchestrator.domain import errors
from orchestrator.domain.errors import ErrorDetail
from orchestrator.functions.http_errors import STATUS

JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}


def details(error: Any) -> list[tuple[str, str]]:
    return [(detail["field"], detail["code"]) for detail in error["details"]]


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"name": ', JSON),
        (b'{"a": NaN}', JSON),
        (b'{"a": 1, "a": 2}', JSON),
        (b"\xff\xfe{\x00}\x00", JSON),
        (b"", JSON),
        (b"a: [1, ", YAML),
        (b"a: 1\na: 2\n", YAML),
        (b"a: &x [*x]\n", YAML),
        (b"  \n", YAML),
    ],
)
async def test_malformed_json_or_yaml_is_400(
    client: Client, use_cases: UseCases, body: bytes, headers: dict[str, str]
) -> None:
    got = await client("POST", "/v1/workflows", body=body, headers=headers)
    assert got.status == 400
    assert got.error["message"]
    assert set(got.error) == {"code", "message", "details", "traceId"}
    assert use_cases.asked == []


async def test_input_with_bare_nan_is_400(client: Client) -> None:
    got = await client(
        "POST", "/v1/workflows/hello/start", body=b'{"input": {"x": NaN}}', headers=JSON
    )
    assert got.status == 400


async def test_integer_beyond_64_bits_in_the_input_is_422_with_its_path(client: Client) -> None:
    body = b'{"input": {"id": 9223372036854775808}}'
    got = await client("POST", "/v1/workflows/hello/start", body=body, headers=JSON)
    assert got.status == 422
    assert details(got.error)[0][0] == "$.input.id"


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "application/json; charset=latin-1",
        "multipart/form-data; boundary=x",
    ],
)
@pytest.mark.parametrize("path", ["/v1/workflows", "/v1/workflows/hello/start"])
async def test_wrong_content_type_is_415(client: Client, path: str, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    got = await client("POST", path, body=b"{}", headers=headers)
    assert got.status == 415
    assert got.error["code"] == "UNSUPPORTED_MEDIA_TYPE"
    expected = "utf-8" if kind and "latin" in kind else "application/json"
    assert expected in got.error["message"].lower()


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON;charset=UTF-8", 'application/json; charset="utf-8"'],
)
async def test_content_type_of_json_may_have_parameters(
    client: Client, use_cases: UseCases, kind: str
) -> None:
    got = await client("POST", "/v1/workflows", body=b'{"a": 1}', headers={"Content-Type": kind})
    assert got.status == 201
    assert use_cases.last[1] == ("default", {"a": 1})


@pytest.mark.parametrize(
    "kind", ["application/yaml", "application/x-yaml", "text/yaml; charset=utf-8", "text/x-yaml"]
)
async def test_content_types_of_yaml(client: Client, use_cases: UseCases, kind: str) -> None:
    got = await client("POST", "/v1/workflows", body=b"a: [1, x]", headers={"Content-Type": kind})
    assert got.status == 201
    assert use_cases.last[1] == ("default", {"a": [1, "x"]})


async def test_start_does_not_read_yaml(client: Client) -> None:
    got = await client("POST", "/v1/workflows/hello/start", body=b"input: 1", headers=YAML)
    assert got.status == 415


@pytest.mark.parametrize("path", ["/v1/workflows", "/v1/workflows/hello/start"])
async def test_body_over_1_mb_is_413_whatever_its_type(client: Client, path: str) -> None:
    limit = 1024 * 1024
    fits = b'{"input": "' + b"x" * (limit - 13) + b'"}'
    assert len(fits) == limit
    assert (await client("POST", path, body=fits, headers=JSON)).status in (201, 202)
    for headers in (JSON, {"Content-Type": "text/plain"}):
        got = await client("POST", path, body=fits + b" ", headers=headers)
        assert got.status == 413
        assert got.error["code"] == "BODY_TOO_LARGE"


async def test_unknown_fields_of_a_start_are_422_with_the_nearest_name(
    client: Client, use_cases: UseCases
) -> None:
    tags = {"a": 1}
    body = {"inptu": 1, "Version": 2, "version": "3", "tags": tags, "zzz": 0}
    got = await client("POST", "/v1/workflows/hello/start", json=body)
    assert got.status == 422
    assert sorted(details(got.error)) == [
        ("$.Version", "UNKNOWN_FIELD"),
        ("$.inptu", "UNKNOWN_FIELD"),
        ("$.tags.a", "INVALID_FIELD"),
        ("$.version", "INVALID_FIELD"),
        ("$.zzz", "UNKNOWN_FIELD"),
    ]
    hints = {detail["field"]: detail["hint"] for detail in got.error["details"]}
    assert hints["$.inptu"] == 'did you mean "input"?'
    assert hints["$.Version"] == 'did you mean "version"?'
    assert hints["$.zzz"] == "known: input, priority, tags, version"
    assert use_cases.asked == []


async def test_very_many_unknown_fields_are_answered_in_bounds(client: Client) -> None:
    body = {f"inputs{number}": 0 for number in range(60_000)} | {"x" * 9_999: 0}
    got = await client("POST", "/v1/workflows/hello/start", json=body)
    assert got.status == 422
    assert "60001 faults" in got.error["message"]
    assert len(got.error["details"]) == 100
    assert len(got.body) < 20_000


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"false", b"null", b"7"])
async def test_start_body_that_is_no_object_is_422(client: Client, body: bytes) -> None:
    got = await client("POST", "/v1/workflows/hello/start", body=body, headers=JSON)
    assert got.status == 422
    assert details(got.error) == [("$", "INVALID_BODY")]


@pytest.mark.parametrize("version", [0, -1, 1.0, True, "1"])
async def test_start_version_must_be_a_whole_number(client: Client, version: object) -> None:
    got = await client("POST", "/v1/workflows/hello/start", json={"version": version})
    assert got.status == 422
    assert details(got.error) == [("$.version", "INVALID_FIELD")]


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limit", ["0", "201", "-1", "1.0", "x", "", "+5", "1_0", " 5", "٣", "9" * 5000]
)
@pytest.mark.parametrize("path", ["/v1/workflows", "/v1/executions", "/v1/executions/e-1/history"])
async def test_limit_out_of_range_is_400(client: Client, path: str, limit: str) -> None:
    got = await client("GET", f"{path}?limit={limit}".replace("+", "%2B"))
    assert got.status == 400
    assert details(got.error) == [("limit", "INVALID_PARAMETER")]
    assert "from 1 to 200" in got.error["message"]


async def test_unknown_query_parameter_is_400_with_the_nearest_name(client: Client) -> None:
    got = await client("GET", "/v1/executions?statsu=FAILED&created_after=1")
    assert got.status == 400
    assert got.error["code"] == "UNKNOWN_PARAMETER"
    hints = {detail["field"]: detail["hint"] for detail in got.error["details"]}
    assert hints == {
        "statsu": 'did you mean "status"?',
        "created_after": 'did you mean "createdAfter"?',
    }
    assert 'did you mean "status"?' in got.error["message"]


@pytest.mark.parametrize(
    "query",
    [
        "status=DONE",
        "status=failed",
        "tag=region",
        "tag==north",
        "tag=%27%22.x=1",
        "tag=a/b=1",
        "createdAfter=yesterday",
        "createdAfter=2026-01-01T00:00:00",
        "createdBefore=2026-01-01T00:00:00+01:00",  # the plus arrives as a space
        "workflow=a/b",
        "parent=a/b",
        "parent=",
        "owner=",
        "owner=a%0Ab",
        "owner=" + "x" * 256,
        "search=",
        "search=%00",
        "search=a%E2%80%AEb",
        "search=" + "x" * 256,
        "tag=" + "x" * 65 + "=1",
    ],
)
async def test_bad_filter_is_400(client: Client, query: str) -> None:
    got = await client("GET", f"/v1/executions?{query}")
    assert got.status == 400
    assert details(got.error) == [(query.split("=")[0], "INVALID_PARAMETER")]


@pytest.mark.parametrize("wait", ["201s", "4m", "30", "-1s", "soon", "", "P1M"])
async def test_bad_wait_is_400(client: Client, wait: str) -> None:
    got = await client("GET", f"/v1/executions/e-1?wait={wait}")
    assert got.status == 400
    assert details(got.error) == [("wait", "INVALID_PARAMETER")]


@pytest.mark.parametrize("item", ["-1", "10000", "x", "1.0"])
async def test_bad_map_item_is_400(client: Client, item: str) -> None:
    got = await client("GET", f"/v1/executions/e-1/tasks/pack?item={item}")
    assert got.status == 400


async def test_dry_run_must_be_true_or_false(client: Client) -> None:
    got = await client("POST", "/v1/workflows?dryRun=yes", json={})
    assert (got.status, details(got.error)) == (400, [("dryRun", "INVALID_PARAMETER")])


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "a" * 5000, "%00", "é", "..", "/v1"])
async def test_invalid_cursor_is_400(client: Client, use_cases: UseCases, cursor: str) -> None:
    got = await client("GET", f"/v1/executions?cursor={cursor}")
    assert got.status == 400
    assert got.error["code"] == "INVALID_CURSOR"
    assert use_cases.asked == []


@pytest.mark.parametrize(
    "id", ["a%2Fb", "a%2fb", "a%5Cb", "a%00b", "a%0Ab", "a%7Fb", "a%3Fb", "a%23b", "a%E2%80%AEb"]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/workflows/{}"),
        ("DELETE", "/v1/workflows/{}"),
        ("POST", "/v1/workflows/{}/start"),
        ("GET", "/v1/executions/{}"),
        ("GET", "/v1/executions/e-1/tasks/{}"),
    ],
)
async def test_ids_with_slashes_or_control_characters_are_400(
    client: Client, use_cases: UseCases, method: str, path: str, id: str
) -> None:
    got = await client(method, path.format(id))
    assert got.status == 400
    assert "must not contain" in got.error["message"]
    assert use_cases.asked == []


async def test_id_that_is_too_long_is_400(client: Client) -> None:
    assert (await client("GET", "/v1/executions/" + "x" * 256)).status == 400


@pytest.mark.parametrize("number", ["0", "-1", "latest", "1.0", "01"])
async def test_version_number_in_the_path_must_be_one(client: Client, number: str) -> None:
    got = await client("GET", f"/v1/workflows/hello/versions/{number}")
    assert (got.status, details(got.error)) == (400, [("n", "INVALID_PARAMETER")])


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "  ", "x" * 256, "a\tb", "a\u0007b", "a\u200bb"])
@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Idempotency-Key"])
async def test_bad_idempotency_key_is_400(client: Client, name: str, key: str) -> None:
    got = await client("POST", "/v1/workflows/hello/start", headers={name: key})
    assert got.status == 400
    assert details(got.error) == [(name, "INVALID_HEADER")]


async def test_two_different_idempotency_keys_are_400(client: Client) -> None:
    headers = {"Idempotency-Key": "a", "X-Idempotency-Key": "b"}
    got = await client("POST", "/v1/workflows/hello/start", headers=headers)
    assert got.status == 400
    assert "differ" in got.error["message"]


# --- what use cases raise -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.MalformedError("m"), 400),
        (errors.NotFoundError("m", code="WORKFLOW_NOT_FOUND"), 404),
        (errors.ConflictError("m", code="IDEMPOTENCY_KEY_REUSED"), 409),
        (errors.TooLargeError("m"), 413),
        (errors.UnsupportedMediaError("m"), 415),
        (errors.InvalidError("m"), 422),
        (errors.ThrottledError("m", retry_after_ms=1), 429),
        (errors.UnavailableError("m"), 503),
        (errors.WeftError("m"), 500),
    ],
)
async def test_error_tree_is_mapped_by_one_table(
    client: Client, use_cases: UseCases, error: errors.WeftError, status: int
) -> None:
    use_cases.answers["start"] = error
    got = await client("POST", "/v1/workflows/hello/start")
    assert got.status == status
    assert got.error["code"] == error.code
    assert got.error["message"] == "m"


def test_every_class_of_the_error_tree_has_its_own_status() -> None:
    assert set(errors.WeftError.__subclasses__()) <= set(STATUS)


async def test_invalid_input_is_422_with_all_failures(client: Client, use_cases: UseCases) -> None:
    found = (
        ErrorDetail("$.input.lines", "is required", "REQUIRED", "add it"),
        ErrorDetail("$.input.orderId", "7 is not of type 'string' \ud800", "TYPE"),
    )
    use_cases.answers["start"] = errors.InvalidError("the input is not valid", details=found)
    got = await client("POST", "/v1/workflows/hello/start", json={"input": {"orderId": 7}})
    assert got.status == 422
    assert got.error["details"] == [
        {"field": "$.input.lines", "message": "is required", "code": "REQUIRED", "hint": "add it"},
        {
            "field": "$.input.orderId",
            "message": "7 is not of type 'string' \ufffd",
            "code": "TYPE",
            "hint": "",
        },
    ]


@pytest.mark.parametrize(("ms", "seconds"), [(0, "1"), (1, "1"), (1000, "1"), (1001, "2")])
async def test_throttled_is_429_with_retry_after_in_seconds_rounded_up(
    client: Client, use_cases: UseCases, ms: int, seconds: str
) -> None:
    use_cases.answers["start"] = errors.ThrottledError("later", retry_after_ms=ms)
    got = await client("POST", "/v1/workflows/hello/start")
    assert (got.status, got.headers["retry-after"]) == (429, seconds)


async def test_unexpected_exception_is_500_logged_with_stack_but_without_bodies(
    client: Client, use_cases: UseCases, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **more: Any) -> None:
        try:
            raise KeyError(args[2])
        except KeyError as error:
            raise RuntimeError(f"cannot store {args[2]}") from error

    use_cases.answers["start"] = broken
    with caplog.at_level(logging.ERROR):
        got = await client("POST", "/v1/workflows/hello/start", json={"input": "s3cret"})
    assert got.status == 500
    assert got.error["code"] == "INTERNAL"
    assert got.error["traceId"] == got.headers["x-trace-id"]
    assert b"s3cret" not in got.body
    (record,) = caplog.records
    logged = record.getMessage()
    assert "KeyError" in logged
    assert "RuntimeError" in logged
    assert "test_http_bad_input.py" in logged
    assert "in broken" in logged
    assert record.__dict__["traceId"] == got.error["traceId"]
    assert "s3cret" not in caplog.text


# --- routes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/v1/workflows", "GET, POST"),
        ("POST", "/v1/workflows/hello", "DELETE, GET"),
        ("GET", "/v1/workflows/hello/start", "POST"),
        ("DELETE", "/v1/executions/e-1", "GET"),
        ("HEAD", "/v1/executions/", "GET"),
    ],
)
async def test_wrong_method_is_405_with_allow(
    client: Client, method: str, path: str, allow: str
) -> None:
    got = await client(method, path)
    assert got.status == 405
    assert got.headers["allow"] == allow
    assert got.error["code"] == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/deadletter"),
        ("POST", "/v1/executions/e-1/signal"),
        ("GET", "/v1"),
        ("GET", "/v1/executions/e-1/tasks/a/b"),
        ("GET", "/v1/execution"),
    ],
)
async def test_unknown_route_is_404_with_the_envelope(
    client: Client, method: str, path: str
) -> None:
    got = await client(method, path)
    assert got.status == 404
    assert got.error["code"] == "ROUTE_NOT_FOUND"
    assert f"{method} {path}" in got.error["message"]


async def test_unknown_route_names_the_nearest(client: Client) -> None:
    got = await client("GET", "/v1/execution")
    assert 'did you mean "/v1/executions"?' in got.error["message"]
