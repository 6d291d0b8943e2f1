"""Requests that are meant to hurt: each is refused with a code, and none is a 5xx."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
from http_client import Client
from test_http_real_engine import HELLO, engine, real

from orchestrator.domain.topology import MAX_BODY_BYTES
from orchestrator.functions import cursors, http_operations
from orchestrator.functions.http_routes import Route

__all__ = ["engine", "real"]  # fixtures

JSON = "application/json"
WRITES = [route for route in http_operations.operations() if route.method in ("POST", "PUT")]
LISTS = [
    route
    for route in http_operations.operations()
    if route.method == "GET" and "cursor" in [param.name for param in route.query]
]
IDS = {"n": "1", "tenantId": "default"}
BODIES: dict[str, bytes] = {
    "10,000 lists in each other": b"[" * 10_000 + b"]" * 10_000,
    "10,000 objects in each other": b'{"input":' * 10_000 + b"1" + b"}" * 10_000,
    "a list that never ends": b'{"input":' + b"[" * 200_000,
    "a key twice": b'{"input": 1, "input": 2}',
    "a number beyond a double": b'{"input": 1e400}',
    "a number of 100,000 digits": b'{"input": ' + b"9" * 100_000 + b"}",
    "NaN": b'{"input": NaN}',
    "a key of 500,000 characters": b'{"' + b"k" * 500_000 + b'": 1}',
    "70,000 keys": b"{" + b",".join(b'"k%d":1' % n for n in range(70_000)) + b"}",
    "bytes that are no text": b'{"input": "\xff\xfe"}',
    "a NUL": b"\x00",
    "compressed": gzip.compress(b"{}" + b" " * 10_000_000),
    "too large": b'"' + b"a" * MAX_BODY_BYTES + b'"',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
async def test_a_hostile_body_is_refused_by_every_route(real: Client, body: bytes) -> None:
    for route in WRITES:
        path = "/" + route.path
        for name in [param.name for param in route.path_params]:
            path = path.replace(f"{{{name}}}", IDS.get(name, "hello"))
        media = route.body.media[0] if route.body else JSON
        headers = {"Content-Type": media, "Content-Encoding": "gzip"}
        got = await real(route.method, path, body=body, headers=headers)
        assert 400 <= got.status < 500, (path, got.status, got.body[:200])
        assert got.error["code"], path
        assert len(got.body) < 100_000, (path, got.body[:500])  # what was sent is not sent back


async def test_findings_without_end_are_cut_and_counted(real: Client) -> None:
    """The answer to a megabyte of faults is not six megabytes."""
    body = {"name": "x", "tasks": {}} | {f"k{n}": 1 for n in range(1_000)}
    got = await real("POST", "/v1/workflows", json=body)
    assert len(got.error["details"]) == 201
    assert got.error["details"][-1]["code"] == "MORE_FINDINGS"
    assert "80" in got.error["details"][-1]["message"]


@pytest.mark.parametrize(
    ("url", "headers", "status", "code"),
    [
        ("/v1/workflows/" + "a" * 10_000, {}, 400, "INVALID_PARAMETER"),
        ("/v1/executions/" + "%00" * 10, {}, 400, "INVALID_PARAMETER"),
        ("/v1/executions/%1b%5b2J", {}, 400, "INVALID_PARAMETER"),
        (
            "/v1/executions?" + "&".join(f"p{n}=1" for n in range(10_000)),
            {},
            400,
            "UNKNOWN_PARAMETER",
        ),
        ("/v1/executions?tag=a%3D" + "b" * 100_000, {}, 400, "INVALID_PARAMETER"),
        ("/v1/executions?cursor=" + "A" * 100_000, {}, 400, "INVALID_CURSOR"),
        ("/v1/executions?cursor=%00", {}, 400, "INVALID_CURSOR"),
        ("/v1/executions?limit=" + "9" * 10_000, {}, 400, "INVALID_PARAMETER"),
        ("/v1/executions/e?wait=999999999999h", {}, 400, "INVALID_PARAMETER"),
        ("/v1/" + "x/" * 5_000, {}, 404, "ROUTE_NOT_FOUND"),
        ("/v1/workflows/x", {"X-Weft-Tenant": "t" * 10_000}, 403, "TENANT_FORBIDDEN"),
        ("/v1/workflows/x", {"Authorization": "Bearer " + "a" * 100_000}, 401, "TOKEN_INVALID"),
        ("/v1/workflows/x", {"traceparent": "0" * 100_000}, 404, "WORKFLOW_NOT_FOUND"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_huge_or_strange_paths_queries_and_headers_are_refused(
    real: Client, url: str, headers: dict[str, str], status: int, code: str
) -> None:
    got = await real("GET", url, headers=headers)
    assert (got.status, got.error["code"]) == (status, code)
    assert len(got.body) < 100_000


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tags": {f"t{n}": "" for n in range(21)}}, "TOO_MANY_TAGS"),
        ({"tags": {"a": "x" * 257}}, "TAG_TOO_LONG"),
        ({"tags": {"a\n2026 ERROR": "x"}}, "TAG_NAME"),
        ({"tags": {"k" * 500_000: "x"}}, "TAG_NAME"),
        ({"input": {"name": 1}}, "INPUT_INVALID"),
    ],
    ids=["many tags", "long tag", "tag of two lines", "huge name of a tag", "input"],
)
async def test_a_start_that_says_too_much_is_refused(
    real: Client, change: dict[str, Any], code: str
) -> None:
    body = {"input": {"name": "x"}, **change}
    got = await real("POST", "/v1/workflows/hello/start", json=body)
    assert got.status == 422
    assert code in [detail["code"] for detail in got.error["details"]]
    assert len(got.body) < 1_000_000


async def test_strange_but_valid_input_comes_back_as_it_was(real: Client) -> None:
    """No key has an effect, and no character ends a text early."""
    value = {
        "name": "\0\x1b[2J\r\n{{x}}${secrets.K}",
        "__proto__": {"constructor": 1},
        "_etag": "x",
        "ttl": -1,
        "\0": "\0",
        "": "",
        "a.b[0]'\"": [],
        "k" * 100_000: 1,
    }
    body = json.dumps({"input": value}).encode()
    headers = {"Content-Type": JSON}
    got = await real("POST", "/v1/workflows/hello/start", body=body, headers=headers)
    assert got.status == 202, got.body
    shown = await real("GET", f"/v1/executions/{got.json()['id']}")
    assert shown.json()["input"] == value


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (bomb(9), 400),
        ("a: &a [*a]", 400),
        ("&" + "a" * 500_000 + " {x: 1}", 422),
        ("? [a]\n: 1", 400),
        ("!!python/object/apply:os.system [ls]", 400),
        ("[" * 100_000, 422),
        ("x: " + "- " * 100_000 + "1", 400),
        ("a: |\n" + "  \0", 400),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_yaml_bombs_are_refused(real: Client, text: str, status: int) -> None:
    headers = {"Content-Type": "application/yaml"}
    got = await real("POST", "/v1/workflows", body=text.encode(), headers=headers)
    assert got.status == status, got.body[:300]
    assert len(got.body) < 100_000


DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"properties": {"a": {"$dynamicRef": "https://example.com/s#x"}}},
        {"$ref": "#"},
        {"$defs": {**DOUBLING, "d40": {}}, "$ref": "#/$defs/d0"},
        {"pattern": r"(a)\1"},
        {"pattern": "((a{100}){100}){100}"},
        {"patternProperties": {"(" * 5_000: {}}},
        {"enum": "no list"},
    ],
    ids=lambda value: str(value)[:40],
)
async def test_case_input_schema_that_fetches_or_explodes_is_refused_at_publish(
    real: Client, schema: Any
) -> None:
    got = await real("POST", "/v1/workflows", json={**HELLO, "input": schema})
    assert got.status == 422, got.body[:300]
    assert all(detail["field"].startswith("$.input") for detail in got.error["details"])


async def test_a_huge_enum_and_a_backtracking_pattern_cost_nothing(real: Client) -> None:
    schema = {
        "properties": {
            "one": {"enum": list(range(50_000))},
            "two": {"pattern": "^(a+)+$"},
        }
    }
    body = {**HELLO, "name": "costly", "input": schema}
    assert (await real("POST", "/v1/workflows", json=body)).status == 201
    value = {"one": -1, "two": "a" * 100_000 + "!"}
    got = await real("POST", "/v1/workflows/costly/start", json={"input": value})
    assert got.status == 422
    assert {one["field"] for one in got.error["details"]} == {"$.input.one", "$.input.two"}
    assert len(got.body) < 10_000


@pytest.mark.parametrize(
    "source",
    [
        "(" * 2_000 + "1" + ")" * 2_000,
        "1" + " + 1" * 1_000,
        "a" * 5_000,
        "input.l" + ".map(x, input.l" * 10 + ")" * 10,
    ],
    ids=["deep", "long chain", "long", "nested loops"],
)
async def test_a_hostile_expression_is_refused_at_publish(real: Client, source: str) -> None:
    tasks = {"greet": {"type": "transform", "output": f"${{{source}}}"}}
    got = await real("POST", "/v1/workflows", json={"name": "hostile", "tasks": tasks})
    assert got.status == 422
    assert got.error["details"][0]["field"].startswith("$.tasks.greet.output")
    assert len(got.body) < 20_000


FORGED = (
    [], [None], ["x"], [1], [1, "x"], [1, 2, 3, 4, 5], [{"a": 1}], [[1], [2]], ["a" * 1000, "\0"],
    [True, False], [2**63], [1e308, "x"], {"a": 1}, 5, None, "text", ["\ud800"], ["a/b", "_x"],
)  # fmt: skip


@pytest.mark.parametrize("route", LISTS, ids=lambda route: route.path)
async def test_a_cursor_with_a_right_checksum_and_a_wrong_inside_is_no_5xx(
    real: Client, route: Route
) -> None:
    """The checksum is against accidents: who knows the code can make one for his own lists."""
    path = "/" + route.path
    values: dict[str, Any] = {}
    for name in [param.name for param in route.path_params]:
        values[name] = IDS.get(name, "hello")
        path = path.replace(f"{{{name}}}", values[name])
    inside = {name: int(text) if name == "n" else text for name, text in values.items()}
    scope = ("default", route.name, *(f"{k}={v}" for k, v in sorted(inside.items())))
    for forged in FORGED:
        payload = json.dumps(forged, separators=(",", ":")).encode()
        text = cursors._checksum(scope, payload) + payload
        cursor = base64.urlsafe_b64encode(text).rstrip(b"=").decode()
        got = await real("GET", f"{path}?cursor={cursor}")
        assert got.status < 500, (forged, got.body)
