"""The part of `host.json` that the embedded host obeys, so that both hosts run by one file.

A limit that only the cloud knows would first be met there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.domain.topology import (
    FUNCTION_TIMEOUT_SECONDS,
    MAX_CONCURRENT_TASKS,
    MAX_LOCK_RENEWAL_SECONDS,
    MAX_ORCHESTRATION_BATCH,
)
from orchestrator.local.host.errors import HostJsonError

_TIMESPAN: Final = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.\d{1,7})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJson:
    """Settings of the host; the defaults are those of the real one (extension bundle 4)."""

    route_prefix: str = "api"
    max_concurrent_calls: int = 16
    max_message_batch_size: int = 1000
    max_lock_renewal_ms: int = 5 * 60 * 1000
    function_timeout_ms: int = 30 * 60 * 1000


WEFT: Final = HostJson(
    route_prefix="",
    max_concurrent_calls=MAX_CONCURRENT_TASKS,
    max_message_batch_size=MAX_ORCHESTRATION_BATCH,
    max_lock_renewal_ms=MAX_LOCK_RENEWAL_SECONDS * 1000,
    function_timeout_ms=FUNCTION_TIMEOUT_SECONDS * 1000,
)
"""What Weft's own `host.json` says, for an installation without the file (a wheel)."""


def load(path: Path) -> HostJson:
    """Read the file. Raises `HostJsonError`."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HostJsonError(f"{path} cannot be read: {error}") from error
    return parse(raw)


def parse(raw: dict[str, Any]) -> HostJson:
    """Understand the parsed file. Raises `HostJsonError` for what is malformed, and for settings
    that this host cannot follow (prefetch, manual completion, host retries)."""
    if raw.get("version") != "2.0":
        raise HostJsonError('host.json must have "version": "2.0"')
    if "retry" in raw:
        raise HostJsonError("host.json has a retry section: it would double Weft's own retries")
    extensions = _section(raw, "extensions")
    http, bus = _section(extensions, "http"), _section(extensions, "serviceBus")
    if bus.get("prefetchCount", 0) != 0:
        raise HostJsonError(
            "serviceBus.prefetchCount must be 0: prefetched messages lose their locks"
        )
    if bus.get("autoCompleteMessages", True) is not True:
        raise HostJsonError(
            "serviceBus.autoCompleteMessages must be true: no function here settles"
        )
    if bus.get("minMessageBatchSize", 1) != 1:
        raise HostJsonError("serviceBus.minMessageBatchSize must be 1: waiting for more adds delay")
    base = HostJson()
    return HostJson(
        route_prefix=str(http.get("routePrefix", base.route_prefix)).strip("/"),
        max_concurrent_calls=_count(bus, "maxConcurrentCalls", base.max_concurrent_calls),
        max_message_batch_size=_count(bus, "maxMessageBatchSize", base.max_message_batch_size),
        max_lock_renewal_ms=_span(bus, "maxAutoLockRenewalDuration", base.max_lock_renewal_ms),
        function_timeout_ms=_span(raw, "functionTimeout", base.function_timeout_ms),
    )


def timespan_ms(text: str) -> int:
    """A .NET TimeSpan `[d.]hh:mm:ss` in milliseconds. Raises `ValueError`."""
    match = _TIMESPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time span such as 00:05:00")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{text!r} is not a time span: a part is out of range")
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def _section(raw: dict[str, Any], name: str) -> dict[str, Any]:
    found = raw.get(name, {})
    if not isinstance(found, dict):
        raise HostJsonError(f"host.json: {name} must be an object")
    return found


def _count(raw: dict[str, Any], name: str, default: int) -> int:
    value = raw.get(name, default)
    if type(value) is not int or value < 1:
        raise HostJsonError(f"host.json: {name} must be a whole number of at least 1")
    return value


def _span(raw: dict[str, Any], name: str, default: int) -> int:
    if name not in raw:
        return default
    try:
        return timespan_ms(str(raw[name]))
    except ValueError as error:
        raise HostJsonError(f"host.json: {name}: {error}") from error
