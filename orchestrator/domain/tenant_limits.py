"""What one tenant may use of the platform: the numbers, and how they are written.

Every limit may be absent: then there is none. A tenant's own limits stand over the platform's
defaults one by one; a field that is written as null lifts the default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from orchestrator.domain.topology import MAX_PAYLOAD_BYTES

MIN_PAYLOAD_BYTES: Final = 1024
MOST: Final = 1_000_000_000
MOST_STARTS: Final = 100_000


class Limit(StrEnum):
    """Names of limits, as users write and read them."""

    STARTS = "startsPerSecond"
    BURST = "startsBurst"
    OPEN = "openExecutions"
    TASKS = "concurrentTasks"
    DEFINITIONS = "storedDefinitions"
    PAYLOAD = "payloadBytes"
    SCHEDULES = "schedules"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """The limits in force for a tenant. None: no limit."""

    starts_per_second: float | None = None
    starts_burst: int | None = None
    open_executions: int | None = None
    concurrent_tasks: int | None = None
    stored_definitions: int | None = None
    payload_bytes: int | None = None
    schedules: int | None = None

    @property
    def burst(self) -> int:
        """How many starts may come at once; without a number of its own, those of a second."""
        if self.starts_burst is not None:
            return self.starts_burst
        return max(1, math.ceil(self.starts_per_second or 0))

    @property
    def max_payload(self) -> int:
        """Bytes of JSON; never above what the platform takes."""
        return min(self.payload_bytes or MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES)

    def shown(self) -> dict[str, float | None]:
        """All of them under the names that users know. The platform's own limit of payloads holds
        where there is no other."""
        shown = {to_camel(one.name): getattr(self, one.name) for one in fields(self)}
        return {**shown, Limit.PAYLOAD.value: self.max_payload}


class LimitsModel(BaseModel):
    """Limits of a tenant. Left out: the platform's default. null: no limit."""

    model_config = ConfigDict(
        title="Limits",
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
    )

    starts_per_second: float | None = Field(
        None,
        ge=0.001,
        le=MOST_STARTS,
        allow_inf_nan=False,
        description="Executions that may be started per second, in the long run",
    )
    starts_burst: int | None = Field(
        None,
        ge=1,
        le=MOST_STARTS,
        description="… and at once, after a quiet time. Left out or null: those of one second",
    )
    open_executions: int | None = Field(
        None, ge=0, le=MOST, description="Executions that have not ended. 0: nothing may be started"
    )
    concurrent_tasks: int | None = Field(
        None, ge=1, le=MOST, description="Tasks that run at the same time"
    )
    stored_definitions: int | None = Field(
        None, ge=0, le=MOST, description="Workflows, by name; archived ones count, versions do not"
    )
    payload_bytes: int | None = Field(
        None,
        ge=MIN_PAYLOAD_BYTES,
        le=MAX_PAYLOAD_BYTES,
        description="Of JSON: an input, a signal, an event's data, a task's output",
    )
    schedules: int | None = Field(None, ge=0, le=MOST, description="Schedules, paused ones too")

    def over(self, defaults: TenantLimits) -> TenantLimits:
        """What is in force: these, and the defaults where nothing is said. A rate without a burst
        has its own burst, not the one that goes with the default's rate."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if "starts_per_second" in given:
            given.setdefault("starts_burst", None)
        return replace(defaults, **given)

    def stored(self) -> dict[str, Any]:
        """What was said, as JSON; `read` takes it back."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def read(stored: Mapping[str, Any]) -> LimitsModel:
    """Stored limits, also those of newer code: what cannot be read counts as not said."""
    kept: dict[str, Any] = {}
    for name, value in stored.items():
        try:
            LimitsModel.model_validate({name: value})
        except ValidationError:
            continue
        kept[name] = value
    return LimitsModel.model_validate(kept)
