"""Input and output of activities: validated, JSON, and never echoed."""

from __future__ import annotations

import datetime as dt
import math
import threading
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from activities_support import failure_from, make_call, runner_of
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from activities.offload import is_large, off_loop
from activities.registry import Registry, activity
from activities.runner import Runner

SECRET = "s3cr3t-Ω"


class Strict(BaseModel):
    """Strict models must still read what JSON can only say as text."""

    model_config = ConfigDict(strict=True, alias_generator=to_camel, extra="forbid")

    due_at: dt.datetime
    price: Decimal
    key: UUID
    pair: tuple[int, str]


class Line(BaseModel):
    sku: str
    quantity: int = Field(gt=0)


class Order(BaseModel):
    order_id: int
    lines: list[Line]
    note: dict[str, int] = {}


async def test_strict_model_is_read_from_json_and_dumped_by_alias() -> None:
    def strict(input: Strict) -> Strict:
        assert input.due_at.tzinfo is not None
        return input

    value = {
        "dueAt": "2027-03-28T02:30:00Z",
        "price": "10.50",
        "key": "12345678-1234-5678-1234-567812345678",
        "pair": [1, "a"],
    }
    assert await runner_of(strict).run(make_call("strict", value)) == value


async def test_invalid_input_lists_every_path_and_no_value() -> None:
    def order(input: Order) -> None:
        raise AssertionError("not reached")

    value = {
        "order_id": SECRET,
        "lines": [{"sku": 5, "quantity": 1}, {"quantity": -1}],
        "note": {"a b": SECRET},
    }
    failure = await failure_from(runner_of(order).run(make_call("order", value)))
    assert failure.type == "INPUT_INVALID"
    assert not failure.retryable
    for path in (
        "$.order_id: ", "$.lines[0].sku: ", "$.lines[1].sku: Field required",
        "$.lines[1].quantity: Input should be greater than 0", "$.note['a b']: ",
    ):  # fmt: skip
        assert path in failure.message
    assert SECRET not in failure.message
    assert not failure.causes


async def test_texts_of_validators_that_repeat_the_value_are_left_out() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    class Careless(BaseModel):
        card: str
        pet: Annotated[Cat | Dog, Field(discriminator="kind")]

        @field_validator("card")
        @classmethod
        def check(cls, value: str) -> str:
            raise ValueError(f"{value} is no card")

    def careless(input: Careless) -> None: ...

    registry = Registry()
    activity("careless", registry=registry)(careless)
    call = make_call("careless", {"card": SECRET, "pet": {"kind": SECRET}})
    failure = await failure_from(Runner(registry).run(call))
    assert "$.card: value_error" in failure.message
    assert "$.pet: union_tag_invalid" in failure.message
    assert SECRET not in failure.message


async def test_many_findings_are_bounded() -> None:
    def numbers(input: list[int]) -> None: ...

    failure = await failure_from(runner_of(numbers).run(make_call("numbers", ["x"] * 500)))
    assert "$[19]: " in failure.message
    assert failure.message.endswith("and 480 more")


async def test_input_is_a_copy_for_every_attempt() -> None:
    def spoil(input: Any) -> None:
        input["list"].append(1)

    value: Any = {"list": []}
    await runner_of(spoil).run(make_call("spoil", value))
    assert value == {"list": []}


async def test_activity_without_parameters_ignores_its_input() -> None:
    def one() -> int:
        return 1

    assert await runner_of(one).run(make_call("one", {"whatever": True})) == 1


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"x": math.nan, "note": "NaN: fine"}, "$.x: "),
        ({"a": [1, {"b": math.inf}]}, "$.a[1].b: "),
        ({1, 2}, "$: "),
        ({"when": dt.date(2027, 1, 1)}, "$.when: "),
        ({"price": Decimal("1.5")}, "$.price: "),
        ({1: "x"}, "$: "),
        ({"n": 2**63}, "$.n: "),
        (b"bytes", "$: "),
        (Line(sku="a", quantity=1), "$: "),
    ],
)
async def test_output_that_is_not_json_fails_at_once_with_its_path(value: Any, path: str) -> None:
    def give():  # type: ignore[no-untyped-def]
        return value

    async def give_async():  # type: ignore[no-untyped-def]
        return value

    runner = runner_of(give, give_async)
    for name in ("give", "give_async"):
        failure = await failure_from(runner.run(make_call(name)))
        assert failure.type == "OUTPUT_NOT_JSON"
        assert not failure.retryable
        assert path in failure.message


async def test_nan_in_a_model_is_not_json() -> None:
    class Result(BaseModel):
        x: float

    registry = Registry()

    @activity("result", registry=registry)
    def result() -> Result:
        return Result(x=math.nan)

    failure = await failure_from(Runner(registry).run(make_call("result")))
    assert failure.type == "OUTPUT_NOT_JSON"
    assert "$.x: " in failure.message


async def test_text_nan_in_a_valid_output_is_untouched() -> None:
    def give() -> dict[str, Any]:
        return {"x": 1.5, "note": "NaN: fine, Infinity too"}

    given = await runner_of(give).run(make_call("give"))
    assert given == {"x": 1.5, "note": "NaN: fine, Infinity too"}


async def test_nul_and_surrogates_in_an_output_end_readable() -> None:
    def give():  # type: ignore[no-untyped-def]
        return {"s": "a\x00b\ud800", "pair": "\ud83d\ude00"}

    given = await runner_of(give).run(make_call("give"))
    assert given == {"s": "a\x00b\ufffd", "pair": "😀"}


async def test_output_of_another_type_than_declared_is_invalid() -> None:
    def number() -> int:
        return SECRET  # type: ignore[return-value]

    def half_built() -> Line:
        return Line.model_construct(sku=3, quantity=SECRET)

    def something() -> None:
        return SECRET  # type: ignore[return-value]

    runner = runner_of(number, half_built, something)
    for name in ("number", "half_built", "something"):
        failure = await failure_from(runner.run(make_call(name)))
        assert failure.type == "OUTPUT_INVALID", name
        assert not failure.retryable
        assert failure.message.startswith(f"the output of {name} is not valid: $")
        assert SECRET not in failure.message


async def test_declared_types_are_dumped_as_json() -> None:
    def results() -> dict[str, set[int] | dt.timedelta | Decimal]:
        return {"a": {1}, "b": dt.timedelta(seconds=90), "c": Decimal("1.10")}

    assert await runner_of(results).run(make_call("results")) == {
        "a": [1],
        "b": "PT1M30S",
        "c": "1.10",
    }


@pytest.mark.parametrize(
    ("value", "large"),
    [
        (None, False), ("x" * 1000, False), ([1] * 1000, False), ({"a": {"b": [1, 2]}}, False),
        (Line(sku="a", quantity=1), False), ("x" * 300_000, True), ([1] * 3000, True),
        ({"a": [["x" * 1000] * 300]}, True), ([[1] * 30] * 100, True),
        ([Line(sku="a" * 100_000, quantity=1)] * 3, True),
    ],
)  # fmt: skip
def test_large_values_are_told_from_small_ones(value: Any, large: bool) -> None:
    assert is_large(value) is large


async def test_large_values_of_async_activities_are_checked_off_the_loop() -> None:
    threads: set[int] = set()

    class Spy(BaseModel):
        items: list[int]

        @field_validator("items")
        @classmethod
        def note(cls, value: list[int]) -> list[int]:
            threads.add(threading.get_ident())
            return value

    registry = Registry()

    @activity("echo", registry=registry)
    async def echo(input: Spy) -> dict[str, list[int]]:
        threads.add(threading.get_ident())
        return {"items": input.items}

    runner = Runner(registry)
    here = threading.get_ident()
    small = {"items": [1, 2]}
    assert await runner.run(make_call("echo", small)) == small
    assert threads == {here}
    large = {"items": list(range(5000))}
    assert await runner.run(make_call("echo", large)) == large
    assert len(threads) == 2
    failure = await failure_from(runner.run(make_call("echo", {"items": ["x"] * 5000})))
    assert failure.type == "INPUT_INVALID"


async def test_stop_iteration_in_the_thread_reaches_the_loop() -> None:
    def stop() -> None:
        raise StopIteration("x")

    with pytest.raises(RuntimeError, match="StopIteration"):
        await off_loop(stop, large=True)
