"""Route templates against raw paths."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.local.host.routes import BadPath, Found, RouteTable, parse


@pytest.mark.parametrize(
    ("template", "path", "params"),
    [
        ("v1/executions/{id}", "/v1/executions/abc", {"id": "abc"}),
        ("v1/executions/{id}", "/V1/Executions/ABC/", {"id": "ABC"}),
        ("v1/executions/{id}", "/v1/executions/a%2Fb", {"id": "a/b"}),
        ("v1/executions/{id}", "/v1/executions/a%252Fb", {"id": "a%2Fb"}),
        ("v1/executions/{id}", "/v1/executions/%C3%A9+%20", {"id": "é+ "}),
        ("v1/executions/{id}", "/v1/executions/a/b", None),
        ("v1/executions/{id}", "/v1/executions/", None),
        ("v1/executions/{id}", "/v1/executions//", None),
        ("v1/executions/{id}", "//v1/executions/a", None),
        ("v1/executions", "/v1/%65xecutions", {}),
        ("", "/", {}),
        ("", "/x", None),
        ("{*rest}", "/", {"rest": ""}),
        ("{*rest}", "/a/b%2Fc/", {"rest": "a/b/c"}),
        ("a/{x}/{*rest}", "/a/1/2/3", {"x": "1", "rest": "2/3"}),
    ],
)
def test_matching(template: str, path: str, params: dict[str, str] | None) -> None:
    table: RouteTable[str] = RouteTable()
    table.add(parse(template), frozenset({"GET"}), "target")
    found = table.find("GET", path)
    assert (found.params if isinstance(found, Found) else None) == params


@given(st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_as_one_segment(text: str) -> None:
    table: RouteTable[str] = RouteTable()
    table.add(parse("x/{id}"), frozenset({"GET"}), "target")
    found = table.find("GET", f"/x/{quote(text, safe='')}")
    assert isinstance(found, Found)
    assert found.params == {"id": text}


def test_wrong_method_tells_the_right_ones() -> None:
    table: RouteTable[str] = RouteTable()
    table.add(parse("x/{id}"), frozenset({"GET"}), "get")
    table.add(parse("x/{id}"), frozenset({"DELETE"}), "delete")
    assert table.find("POST", "/x/1") == {"GET", "DELETE"}
    assert table.find("POST", "/y") == frozenset()


def test_routes_are_tried_in_the_order_given() -> None:
    table: RouteTable[str] = RouteTable()
    table.add(parse("x/{id}"), frozenset({"GET"}), "first")
    table.add(parse("x/special"), frozenset({"GET"}), "second")
    found = table.find("GET", "/x/special")
    assert isinstance(found, Found)
    assert found.target == "first"


def test_two_functions_for_the_same_requests_are_refused() -> None:
    table: RouteTable[str] = RouteTable()
    table.add(parse("x/{id}"), frozenset({"GET", "POST"}), "a")
    with pytest.raises(ValueError, match="same requests"):
        table.add(parse("X/{name}"), frozenset({"POST"}), "b")


@pytest.mark.parametrize(
    "template", ["a/{id:int}", "a/{id?}", "a/b{id}", "a//b", "{*rest}/a", "{a}/{a}", "a b", "{}"]
)
def test_forms_that_are_not_served_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match="route"):
        parse(template)


@pytest.mark.parametrize("path", ["/x/%ff", "/x/a%80", "/x/\udcff"])
def test_a_path_that_is_not_utf8_is_bad(path: str) -> None:
    table: RouteTable[str] = RouteTable()
    table.add(parse("x/{id}"), frozenset({"GET"}), "target")
    with pytest.raises(BadPath):
        table.find("GET", path)
