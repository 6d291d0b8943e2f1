"""The order-fulfilment sample: check an order, pack its lines, tidy up.

Deterministic on purpose: another attempt of the same task gives the same parcel, which is how a
real warehouse call has to behave under at-least-once delivery.
"""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal
from typing import Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from activities import Context, PermanentError, activity

BOX_UNITS: Final = 12  # units of a line that fit into one box
UNIT_GRAMS: Final = 350
BOX_GRAMS: Final = 120


class _Model(BaseModel):
    """camelCase outside, snake_case inside; unknown fields are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class Line(_Model):
    """One position of an order. `unit_price` in the order's currency."""

    sku: str = Field(pattern=r"^[A-Z0-9][A-Z0-9-]{0,31}$")
    quantity: int = Field(ge=1, le=1000)
    unit_price: Decimal = Field(ge=0, max_digits=10, decimal_places=2)


class Order(_Model):
    """An order as the shop sends it."""

    order_id: str = Field(min_length=1, max_length=64)
    currency: str = Field(default="EUR", pattern=r"^[A-Z]{3}$")
    lines: list[Line] = Field(min_length=1, max_length=500)


class ValidateInput(_Model):
    """Input of `orders.validate`."""

    order: Order


class ValidOrder(_Model):
    """What the later tasks need. `total` has at most two decimals."""

    order_id: str
    currency: str
    units: int
    total: float


class PackInput(_Model):
    """Input of `orders.pack`: one line and its position in the order."""

    line: Line
    index: int = Field(ge=0)


class Parcel(_Model):
    """A packed line."""

    parcel_id: str
    sku: str
    quantity: int
    boxes: int
    weight_grams: int


class TidyInput(_Model):
    """Input of `orders.tidy`; it runs whatever happened, so parcels may be missing."""

    parcels: list[Parcel] = Field(default_factory=list[Parcel])


class TidyResult(_Model):
    """Bench places that were cleared."""

    released: list[str]


@activity("orders.validate")
def validate(input: ValidateInput, ctx: Context) -> ValidOrder:
    """Totals of the order. Raises `PermanentError` OrderRejected if a SKU comes twice."""
    order = input.order
    skus = [line.sku for line in order.lines]
    twice = sorted({sku for sku in skus if skus.count(sku) > 1})
    if twice:
        raise PermanentError(f"SKUs more than once: {', '.join(twice)}", type="OrderRejected")
    total = sum((line.unit_price * line.quantity for line in order.lines), Decimal(0))
    ctx.logger.info("order validated", extra={"lines": len(skus)})
    return ValidOrder(
        order_id=order.order_id,
        currency=order.currency,
        units=sum(line.quantity for line in order.lines),
        total=float(round(total, 2)),
    )


@activity("orders.pack", dependency="warehouse")
def pack(input: PackInput, ctx: Context) -> Parcel:
    """One parcel per line. Its id comes from the idempotency key: a retry packs nothing new."""
    seed = f"{ctx.idempotency_key}/{input.index}".encode()
    boxes = math.ceil(input.line.quantity / BOX_UNITS)
    return Parcel(
        parcel_id=f"P-{hashlib.sha256(seed).hexdigest()[:12].upper()}",
        sku=input.line.sku,
        quantity=input.line.quantity,
        boxes=boxes,
        weight_grams=input.line.quantity * UNIT_GRAMS + boxes * BOX_GRAMS,
    )


@activity("orders.tidy")
def tidy(input: TidyInput | None) -> TidyResult:
    """Clear the packing bench."""
    parcels = input.parcels if input else []
    return TidyResult(released=sorted({parcel.parcel_id for parcel in parcels}))
