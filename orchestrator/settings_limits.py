"""`WEFT_LIMIT_…`: what a tenant may use unless limits are written for it.

The defaults bound a runaway, and are nothing that one tenant meets by working.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field

from orchestrator.domain.tenant_limits import MIN_PAYLOAD_BYTES, MOST, MOST_STARTS, TenantLimits
from orchestrator.domain.topology import MAX_PAYLOAD_BYTES

N = TypeVar("N", int, float)


def _none(value: Any) -> Any:
    return None if isinstance(value, str) and value.strip().lower() in ("", "none") else value


Lifted = Annotated[N | None, BeforeValidator(_none)]
"""A number, or `none`."""


class LimitSettings(BaseModel):
    """Part of `Settings`."""

    limit_starts_per_second: Lifted[float] = Field(
        default=None,
        ge=0.001,
        le=MOST_STARTS,
        allow_inf_nan=False,
        description="Executions that a tenant may start per second; `none`: any number. This and "
        "the next six are defaults, see docs/limits.md",
    )
    limit_starts_burst: Lifted[int] = Field(
        default=None,
        ge=1,
        le=MOST_STARTS,
        description="… and at once; `none`: those of one second",
    )
    limit_open_executions: Lifted[int] = Field(
        default=100_000, ge=0, le=MOST, description="Executions of a tenant that have not ended"
    )
    limit_concurrent_tasks: Lifted[int] = Field(
        default=None, ge=1, le=MOST, description="Tasks of a tenant that run at the same time"
    )
    limit_stored_definitions: Lifted[int] = Field(
        default=5_000, ge=0, le=MOST, description="Workflows of a tenant, archived ones too"
    )
    limit_payload_bytes: Lifted[int] = Field(
        default=None,
        ge=MIN_PAYLOAD_BYTES,
        le=MAX_PAYLOAD_BYTES,
        description="JSON of one input, signal, event or output; `none`: 50 MiB, which nothing "
        "exceeds",
    )
    limit_schedules: Lifted[int] = Field(
        default=10_000, ge=0, le=MOST, description="Schedules of a tenant"
    )

    @property
    def tenant_limits(self) -> TenantLimits:
        """They as the engine takes them."""
        return TenantLimits(
            starts_per_second=self.limit_starts_per_second,
            starts_burst=self.limit_starts_burst,
            open_executions=self.limit_open_executions,
            concurrent_tasks=self.limit_concurrent_tasks,
            stored_definitions=self.limit_stored_definitions,
            payload_bytes=self.limit_payload_bytes,
            schedules=self.limit_schedules,
        )
