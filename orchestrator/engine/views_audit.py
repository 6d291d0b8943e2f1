"""What the API shows of the audit."""

from __future__ import annotations

from pydantic import Field

from orchestrator.domain.audit_chain import Fault
from orchestrator.engine.views import Instant, View


class OriginView(View):
    """Where a request came from. `address`: as the platform in front tells it; `agent`: as the
    client says itself; `trace`: the request's id in answers and logs."""

    address: str = ""
    agent: str = ""
    trace: str = ""


class AuditView(View):
    """One record. `resource` is what was changed, as kind:name."""

    n: int
    at: Instant
    action: str
    resource: str
    by: str
    reason: str = ""
    execution: str = ""
    task: str = ""
    details: dict[str, str | int] = Field(default_factory=dict)
    """Hashes before and after, versions."""
    origin: OriginView | None = None
    hash: str
    prev: str


class AuditFinding(View):
    """The first record that is not what was written."""

    n: int
    fault: Fault
    message: str


class AuditCheck(View):
    """What a part of the chain shows. `next`: where to go on; null at its end, or at a finding."""

    ok: bool
    checked: int
    first: int | None = None
    last: int | None = None
    head: int = 0
    head_hash: str = ""
    finding: AuditFinding | None = None
    next: int | None = None
