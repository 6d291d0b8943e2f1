"""The body of a start: a shape of its own, so that OpenAPI shows it and faults name its fields."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.domain.priority import Priority


class StartRequest(BaseModel):
    """What to start a workflow with. Everything may be left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    input: Any = Field(None, description="Checked against the definition's input schema")
    version: int | None = Field(None, ge=1, description="Left out: the latest")
    tags: dict[str, str] = Field(default_factory=dict, description="Free labels, for filters")
    priority: Priority | None = Field(
        None, strict=False, description="Class of its tasks; left out: as the definition says"
    )
