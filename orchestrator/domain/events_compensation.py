"""What happened when completed work was undone. Part of `events`; import them from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.domain.state import FailureRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class CompensationStarted:
    """What completed is undone, last first, before the execution ends as `ending` says. FAILED:
    because of `failure`, everything else has settled. CANCELLED: at the wish of `by`; what is in
    flight ends first."""

    at: int
    ending: Literal["FAILED", "CANCELLED"]
    failure: FailureRecord | None = None
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompensationReopened:
    """An operator took up a compensation that had failed; the execution ends as before."""

    at: int
    by: str
    reason: str = ""
