"""When a cron expression fires: by the domain's own calendar, which is the scheduler's too."""

from __future__ import annotations

import time

from orchestrator.domain import schedule_cron, schedule_spec
from orchestrator.domain.codec import iso
from orchestrator.domain.errors import MalformedError
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.schedule import next_ticks


def preview(cron: str, tz: str, count: int, after: str | None) -> list[dict[str, str]]:
    """The first `count` ticks later than `after` (ISO 8601 with offset; None: now), each as
    {at: UTC, local}. Raises `InvalidError`, `MalformedError`."""
    now = time.time_ns() // 1_000_000
    if after is not None:
        given = schedule_spec.instant(after)
        if given is None:
            raise MalformedError(
                "--after must be an ISO 8601 time with an offset, of the years 1971 to 2900"
            )
        now = given
    raw: dict[str, Json] = {"name": "preview", "workflow": "preview", "cron": cron, "timeZone": tz}
    found = schedule_spec.parse(raw, created_at=now)
    return [
        {"at": iso(tick), "local": schedule_cron.from_ms(tick, found.zone).isoformat()}
        for tick in next_ticks(found, now, count)
    ]
