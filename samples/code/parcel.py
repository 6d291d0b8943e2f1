"""An order of several parcels, each delivered by a workflow of its own: sub-orchestrations.

A parcel has a history of its own, so an order of fifty parcels has not fifty times the history. One
that is lost does not stop the others.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pydantic import BaseModel, Field

from activities import (
    CodeContext,
    Context,
    PermanentError,
    Retry,
    TaskFailed,
    activity,
    code_workflow,
)


class Parcel(BaseModel):
    """One parcel; `grams` decides who carries it."""

    id: str
    grams: int = Field(gt=0)


class Order(BaseModel):
    """What one customer gets."""

    id: str
    parcels: list[Parcel] = Field(min_length=1, max_length=50)


class Delivered(BaseModel):
    """Tracking codes by parcel, and the parcels that nobody takes."""

    order: str
    tracking: dict[str, str]
    refused: list[str]


@activity("parcels.book")
def book(parcel: Parcel, ctx: Context) -> str:
    """Stands for a carrier's API: its tracking code. The key makes a second call the same one."""
    if parcel.grams > 30_000:
        raise PermanentError(f"{parcel.id} is heavier than 30 kg", type="TooHeavy")
    return f"{parcel.id}-{ctx.idempotency_key}"


@activity("parcels.announce")
def announce(order: str) -> None:
    """Stands for a mail to the customer."""


@code_workflow("parcel-delivery", input=Parcel, output=str)
def parcel_delivery(ctx: CodeContext, parcel: Parcel) -> Generator[Any, Any, str]:
    """One parcel: book it, and give the carrier an hour to fetch it."""
    code = yield ctx.call_activity("parcels.book", parcel, retry=Retry(max_attempts=3))
    yield ctx.sleep("1h")
    return code


@code_workflow("parcel", input=Order, output=Delivered)
def parcel(ctx: CodeContext, order: Order) -> Generator[Any, Any, Delivered]:
    """All parcels at once, then word to the customer."""
    children = {
        one.id: ctx.call_workflow("parcel-delivery", one, version=1) for one in order.parcels
    }
    tracking: dict[str, str] = {}
    refused: list[str] = []
    try:
        yield ctx.all(list(children.values()))
    except TaskFailed:
        ctx.log.warning("not every parcel can be delivered")
    for id, child in children.items():
        try:
            tracking[id] = yield child
        except TaskFailed as failed:
            if failed.type != "TooHeavy":
                raise
            refused.append(id)
    yield ctx.call_activity("parcels.announce", order.id)
    return Delivered(order=order.id, tracking=tracking, refused=refused)
