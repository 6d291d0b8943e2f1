"""Adds up the sales of all regions side by side, then writes one report: fan-out and fan-in."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from typing import Any

from pydantic import BaseModel, Field

from activities import CodeContext, Retry, activity, code_workflow


class Query(BaseModel):
    """Which sales. `regions`: their names, each once."""

    month: str = Field(pattern=r"^\d{4}-\d{2}$")
    regions: list[str] = Field(min_length=1, max_length=100)


class Part(BaseModel):
    """One region to be added up."""

    month: str
    region: str


class Total(BaseModel):
    """Sales of a region, in cents."""

    region: str
    cents: int


class Report(BaseModel):
    """All regions, the best one first."""

    month: str
    cents: int
    regions: list[Total]


@activity("sales.total")
def total(part: Part) -> Total:
    """Stands for a query of the region's own database: figures out of a hash."""
    digest = hashlib.sha256(f"{part.month}/{part.region}".encode()).digest()
    return Total(region=part.region, cents=int.from_bytes(digest[:3], "big"))


@activity("sales.report")
def report(totals: list[Total]) -> list[Total]:
    """Stands for a document that is written and sent."""
    return sorted(totals, key=lambda one: (-one.cents, one.region))


@code_workflow("regional-report", input=Query, output=Report)
def regional_report(ctx: CodeContext, query: Query) -> Generator[Any, Any, Report]:
    """Every region at once; one that cannot be reached is tried again without the others waiting
    for anything but its result."""
    again = Retry(max_attempts=4, initial_interval="10s")
    parts = [Part(month=query.month, region=region) for region in query.regions]
    totals = yield ctx.all([ctx.call_activity("sales.total", part, retry=again) for part in parts])
    ranked = yield ctx.call_activity("sales.report", totals)
    return Report(
        month=query.month,
        cents=sum(one["cents"] for one in totals),
        regions=[Total(**one) for one in ranked],
    )
