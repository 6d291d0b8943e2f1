"""Registration of code workflows: what is refused when the module is imported, and how."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest
from pydantic import BaseModel

from activities import CodeContext, code_workflow
from activities.code.driver import functions
from activities.code.registry import CodeRegistry
from activities.errors import RegistrationError
from orchestrator.ports_durable import CodeWorkflows

Flow = Generator[Any, Any, Any]


class Order(BaseModel):
    id: str


def flow(ctx: CodeContext, order: Order) -> Flow:
    """Charge it.

    And ship it."""
    yield ctx.sleep("1s")


def plain(ctx: CodeContext) -> None: ...


async def coroutine(ctx: CodeContext) -> None: ...


async def stream(ctx: CodeContext) -> AsyncIterator[int]:
    yield 1


def no_context() -> Flow:
    yield


def too_many(ctx: CodeContext, a: int, b: int) -> Flow:
    yield


def starred(*args: Any) -> Flow:
    yield


def test_versions_stand_side_by_side() -> None:
    made = CodeRegistry()
    for version in (2, 1):
        assert (
            code_workflow("order", version, input=Order, output=Order, registry=made)(flow) is flow
        )
    port: CodeWorkflows = made
    assert port.names() == {"order"}
    assert port.versions("order") == (1, 2)
    assert port.versions("other") == ()
    assert port.function("order", 2) == "code_order_v2"
    schema = port.input_schema("order", 1)
    assert schema is not None
    assert schema["required"] == ["id"]
    assert port.output_schema("order", 1) == {**schema}
    assert made.get("order", 1).description == "Charge it."
    assert [one.name for one in functions(made)] == ["code_order_v1", "code_order_v2", "weft_call"]
    with pytest.raises(KeyError, match="version 3 is not deployed; deployed: 1, 2"):
        port.function("order", 3)


def test_no_code_workflow_is_no_function() -> None:
    assert functions(CodeRegistry()) == ()


@pytest.mark.parametrize("name", ["", "Order", "1a", "a_b", "a b", "a" * 64, "ä", "a\n", None])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(RegistrationError, match="is not valid"):
        CodeRegistry().register(name, 1, flow)


@pytest.mark.parametrize("version", [0, -1, 1.0, "1", True, None, 10**7])
def test_a_bad_version_is_refused(version: Any) -> None:
    with pytest.raises(RegistrationError, match="whole number from 1"):
        CodeRegistry().register("order", version, flow)


@pytest.mark.parametrize(
    ("fn", "mend"),
    [
        (plain, "never yields"),
        (coroutine, "use a plain `def`"),
        (stream, "use a plain `def`"),
        (no_context, "takes the context"),
        (too_many, "takes the context"),
        (starred, "takes the context"),
    ],
)
def test_a_function_that_cannot_be_replayed_is_refused_with_place_and_mend(
    fn: Any, mend: str
) -> None:
    with pytest.raises(RegistrationError, match=mend) as caught:
        CodeRegistry().register("order", 1, fn)
    assert f"{fn.__name__} ({__file__}:" in str(caught.value)


def test_a_clash_names_both_places_and_the_way_out() -> None:
    made = CodeRegistry()
    made.register("order", 1, flow)
    with pytest.raises(RegistrationError, match="give the changed one the next version") as caught:
        made.register("order", 1, flow)
    assert str(caught.value).count("test_code_registry.flow") == 2


@pytest.mark.parametrize("where", ["input", "output"])
def test_a_type_that_cannot_be_checked_is_refused(where: str) -> None:
    with pytest.raises(RegistrationError, match=f"the {where} type of order cannot be validated"):
        CodeRegistry().register("order", 1, flow, **{where: object()})
