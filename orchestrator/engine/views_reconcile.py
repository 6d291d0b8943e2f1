"""What a reconciliation answers."""

from __future__ import annotations

from pydantic import Field

from orchestrator.engine.views import View


class Gap(View):
    """One thing that is not as it should be. `kind`: see `reconcile`."""

    kind: str
    tenant: str
    execution: str
    document: str
    detail: str = ""
    mended: bool = False


class ReconcileReport(View):
    """What a reconciliation found. `gaps` 0 is the proof that nothing is missing."""

    executions: int = 0  # execution documents looked at
    open: int = 0  # of these, not ended
    waiting: int = 0  # tasks and items in flight whose message must be in a queue: nobody has them
    rows: int = 0  # rows of the read model looked at
    gaps: int = 0
    mended: int = 0  # of these: written, or sent for; what is sent for is done by the platform
    kinds: dict[str, int] = Field(default_factory=dict)  # gaps by kind
    found: list[Gap] = Field(default_factory=list[Gap])  # the first 100
