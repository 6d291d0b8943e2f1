"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.domain.priority import Priority
from orchestrator.domain.status import ExecutionStatus
from orchestrator.local.cli_client import DEFAULT_URL

Url = Annotated[
    str,
    typer.Option("--url", envvar="WEFT_URL", help="Root of the server.", show_default=True),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the execution.")]
File = Annotated[
    str, typer.Argument(metavar="FILE", help="Definition in YAML or JSON; `-` reads stdin.")
]
Class = Annotated[
    Priority | None,
    typer.Option("--priority", help="Class of its tasks; what the definition says if left out."),
]
CreatedAfter = Annotated[
    str | None,
    typer.Option(
        "--created-after",
        "--after",
        metavar="TIME",
        help="Only created then (2026-11-30T12:00:00Z) or later.",
    ),
]
CreatedBefore = Annotated[
    str | None,
    typer.Option(
        "--created-before",
        "--before",
        metavar="TIME",
        help="Only created before that.",
    ),
]
Status = Annotated[
    ExecutionStatus | None, typer.Option(case_sensitive=False, help="Only in this status.")
]

__all__ = [
    "DEFAULT_URL",
    "AsJson",
    "Class",
    "CreatedAfter",
    "CreatedBefore",
    "File",
    "Id",
    "Status",
    "Url",
]
