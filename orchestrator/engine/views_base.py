"""What all shapes of the API are made of: pydantic models, camelCase on the wire, times in ISO 8601
(UTC)."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from orchestrator.domain.codec import iso

Instant = Annotated[
    int,
    PlainSerializer(iso, return_type=str),
    Field(json_schema_extra={"format": "date-time"}),
]
"""Epoch milliseconds inside, ISO 8601 outside."""


class View(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


T = TypeVar("T")


class Page(View, Generic[T]):
    """One page of a list; `nextCursor` is null at the end."""

    items: list[T]
    next_cursor: str | None = None
