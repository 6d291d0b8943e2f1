"""What is returned is of the declared type, however it came about; the wrong field is named."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    TypeAdapter,
    computed_field,
    field_validator,
)

from activities.outputs import NotAsDeclared, as_declared

SECRET = "s3cr3t-Ω"


class Receipt(BaseModel):
    order: str
    total: int = Field(default=0, ge=0)


class Cart(BaseModel):
    receipts: dict[str, list[Receipt]] = {}
    one: Receipt | None = None


class Named(BaseModel):
    model_config = ConfigDict(extra="forbid")

    order_id: int = Field(alias="orderId")
    note: str = Field(default="", validation_alias="in", serialization_alias="out")

    @computed_field
    @property
    def double(self) -> int:
        return 2 * self.order_id

    @cached_property
    def kept(self) -> int:
        return 1


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, int]


class Split(BaseModel):
    """Its validators take only what comes from outside."""

    parts: list[str]
    code: str = "a"

    @field_validator("parts", mode="before")
    @classmethod
    def split(cls, given: Any) -> Any:
        return given.split(",")

    @field_validator("code", mode="before")
    @classmethod
    def short(cls, given: str) -> str:
        if len(given) > 1:
            raise ValueError("one letter")
        return given + "!"


class Numbers(RootModel[list[int]]):
    pass


class Left(BaseModel):
    kind: Literal["left"] = "left"
    value: int


class Right(BaseModel):
    kind: Literal["right"] = "right"
    value: str


Sides = Annotated[Left | Right, Field(discriminator="kind")]


@dataclass
class Plain:
    count: int


def changed(model: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        setattr(model, name, value)
    return model


def kept(model: Named) -> Named:
    assert model.kept
    return model


WRONG = [
    (Receipt, {"order": "o"} | {"total": -1}, "$.total: "),
    (Receipt, {"total": 1}, "$.order: Field required"),
    (Receipt, changed(Receipt(order="o"), total=-7), "$.total: "),
    (Receipt, changed(Receipt(order="o"), order=SECRET.encode(), total=SECRET), "$.total: "),
    (Receipt, Receipt.model_construct(order=5), "$.order: "),
    (Receipt, Receipt.model_construct(total=5), "$.order: Field required"),
    (Cart, Cart(receipts={"a": [changed(Receipt(order="o"), total=-1)]}), "$.receipts.a[0].total"),
    (Cart, Cart(one=Receipt.model_construct(order=None)), "$.one.order: "),
    (list[Receipt], [Receipt(order="o"), changed(Receipt(order="o"), total=-1)], "$[1].total: "),
    (Named, changed(Named(orderId=1), order_id="x"), "$.order_id: "),
    (Numbers, Numbers.model_construct(["x"]), "$[0]: "),
    (Left | Right, Right.model_construct(value=[]), "$.value: "),
    (Plain, Plain(count=SECRET), "$.count is not of the type"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("declared", "value", "said"), WRONG)
def test_what_does_not_fit_is_told_by_field_and_not_by_value(
    declared: Any, value: Any, said: str
) -> None:
    with pytest.raises(NotAsDeclared) as caught:
        as_declared(TypeAdapter(declared), value)
    assert str(caught.value).startswith(said)
    assert SECRET not in str(caught.value)


RIGHT = [
    (Receipt, changed(Receipt(order="o"), total=7), {"order": "o", "total": 7}),
    (Cart, Cart(one=Receipt(order="o")), {"receipts": {}, "one": {"order": "o", "total": 0}}),
    (Named, kept(Named(orderId=1)), {"orderId": 1, "out": "", "double": 2}),
    (Open, Open(a=1), {"a": 1}),  # type: ignore[call-arg]
    (Split, Split(parts="a,b", code="a"), {"parts": ["a", "b"], "code": "a!"}),  # type: ignore[arg-type]
    (Numbers, Numbers([1]), [1]),
    (Sides, Right(value="s"), {"kind": "right", "value": "s"}),
    (Plain, Plain(count=1), {"count": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "value", "given"), RIGHT)
def test_what_fits_is_dumped_by_alias(declared: Any, value: Any, given: Any) -> None:
    assert as_declared(TypeAdapter(declared), value) == given
