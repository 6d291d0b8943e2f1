"""What the API shows of circuit breakers."""

from __future__ import annotations

from pydantic import Field

from orchestrator.domain.breakers import BreakerStatus
from orchestrator.engine.views import Instant, View


class BreakerView(View):
    """One dependency's breaker. `failures` and `successes`: what processes have told of the last
    minute; those that see no failures tell nothing."""

    dependency: str
    status: BreakerStatus
    failures: int = 0
    successes: int = 0
    errors: list[str] = Field(default_factory=list)
    """Types of the latest failures."""
    opened_at: Instant | None = None
    until: Instant | None = None
    """Open: when a task will try. Half-open: how long the one that tries has. Null while open: not
    before somebody closes it."""
    manual: bool = False
    by: str = ""
    reason: str = ""
    updated_at: Instant | None = None


class BreakerList(View):
    """All breakers of the tenant, latest first. What is not listed has not failed: closed."""

    items: list[BreakerView]
