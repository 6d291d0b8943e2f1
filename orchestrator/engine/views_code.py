"""What the API shows of code workflows and their orchestrations."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from orchestrator.engine.views_base import Instant, View


class OrchestrationView(View):
    """An orchestration as Durable Functions sees it at this moment."""

    instance: str
    name: str | None = None
    """The orchestrator function."""
    status: str | None = None
    """`runtimeStatus`, such as Running or Suspended."""
    custom_status: Any = None
    updated_at: Instant | None = None
    note: str | None = None
    """Why there is nothing to show."""


class CodeWorkflowView(View):
    """One version of a code workflow."""

    name: str
    version: int
    deployed: bool
    """It is part of the app that answers."""
    published: bool
    """It was when somebody last published: it may be gone only if nothing runs of it."""
    built_in: bool = False
    """It is Weft's own: only its route of the API starts it."""
    function: str | None = None
    """The Azure function that runs it."""
    input_schema: Any = None
    output_schema: Any = None


class CodeWorkflowsView(View):
    """All code workflows."""

    items: list[CodeWorkflowView] = Field(default_factory=list)
    published_at: Instant | None = None
    published_by: str = ""
