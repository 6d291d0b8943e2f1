"""How long ended executions are kept, and what becomes of them then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.domain.durations import DurationError, parse_duration
from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus

NEVER: Final = "never"
DAY_MS: Final = 86_400_000
DEFAULT_MS: Final = 30 * DAY_MS
DEFAULT_ARCHIVE_MS: Final = 365 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Times in milliseconds since the end of the execution (or its restoration); None: for ever.
    `archive`: keep a compressed copy, for `archive_ms` from then on."""

    completed_ms: int | None = DEFAULT_MS
    failed_ms: int | None = DEFAULT_MS
    cancelled_ms: int | None = DEFAULT_MS
    archive: bool = True
    archive_ms: int | None = DEFAULT_ARCHIVE_MS

    def keep_ms(self, status: ExecutionStatus) -> int | None:
        """How long executions that ended like this are kept."""
        return {
            ExecutionStatus.COMPLETED: self.completed_ms,
            ExecutionStatus.FAILED: self.failed_ms,
            ExecutionStatus.CANCELLED: self.cancelled_ms,
        }[status]


def parse_ages(text: str) -> dict[ExecutionStatus, int | None]:
    """`30d`, `never`, or one for each status: `completed=7d,failed=90d,cancelled=never` (those left
    out: 30 days). Raises `ValueError` that names the fault and the mend."""
    text = text.strip()
    if "=" not in text:
        age = parse_age(text)
        return dict.fromkeys(TERMINAL_EXECUTION, age)
    found: dict[ExecutionStatus, int | None] = dict.fromkeys(TERMINAL_EXECUTION, DEFAULT_MS)
    named: set[ExecutionStatus] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, age_text = part.partition("=")
        status = next((one for one in TERMINAL_EXECUTION if one.value.lower() == name), None)
        if status is None:
            raise ValueError(f"{name!r} is no end: write completed, failed or cancelled")
        if status in named:
            raise ValueError(f"{name} is given twice")
        named.add(status)
        found[status] = parse_age(age_text)
    return found


def parse_age(text: str) -> int | None:
    """A duration in milliseconds, None for `never`. Raises `ValueError`."""
    text = text.strip()
    if text == NEVER:
        return None
    try:
        return parse_duration(text)
    except DurationError as error:
        raise ValueError(f"{error.message}; or write never") from None
