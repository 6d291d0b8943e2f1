"""How the API shows archives."""

from __future__ import annotations

from orchestrator.domain.status import ExecutionStatus
from orchestrator.engine.views import Instant, View


class ArchiveView(View):
    """An archived execution."""

    id: str
    execution: str
    workflow: str
    version: int
    status: ExecutionStatus
    created_at: Instant
    ended_at: Instant
    archived_at: Instant
    expires_at: Instant | None = None
    """When the archive is removed, too, by the settings as they are now."""
    tags: dict[str, str]
    started_by: str
    documents: int
    bytes: int
    """Of the compressed text."""
