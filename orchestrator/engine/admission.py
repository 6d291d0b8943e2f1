"""Whether a tenant may start or store one more: the only place that refuses because of limits.

Asked for what somebody starts: executions, replays, events, ticks and manual runs of schedules. Not
for children, retries and other consequences of admitted work: refusing those would leave an
execution half done. Asked last, when the request itself was found right and before anything is
written, so that a wrong or repeated request uses up nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from orchestrator.domain.errors import ErrorDetail, LimitError, TooLargeError
from orchestrator.domain.failure import FailureType
from orchestrator.domain.orchestration_result import MAX_STEP_BYTES, step_too_large
from orchestrator.domain.tenant_limits import MIN_PAYLOAD_BYTES, Limit
from orchestrator.domain.topology import CATALOG
from orchestrator.engine.claimcheck import PayloadTooLarge
from orchestrator.engine.core import Engine
from orchestrator.engine.open_executions import OpenExecutions
from orchestrator.engine.resilience import patiently
from orchestrator.engine.start_tokens import StartTokens, refusal
from orchestrator.engine.tenant_limits import LimitBook
from orchestrator.ports import Query, Unavailable, Where

COUNT_MS: Final = 5_000
"""When to come again about a count: it falls when work ends, and nobody knows when."""
SPREAD: Final = 0.5
"""Those that are refused together come again over this share of the wait, not all at once."""


@dataclass(slots=True)
class Seat:
    """What an admitted start holds. `created` says how it ended: False if the execution was there
    before, None if nothing is known of it."""

    created: bool | None = None


@asynccontextmanager
async def start(engine: Engine, tenant: str, execution: str) -> AsyncGenerator[Seat, None]:
    """Around the storing of a new execution: what it did not need is given back. Raises
    `LimitError`."""
    limits = await engine.part(LimitBook).of(tenant)
    opened, tokens = engine.part(OpenExecutions), engine.part(StartTokens)
    counted = limits.open_executions is not None
    if limits.open_executions is not None:
        current = await opened.enter(tenant, execution, limits.open_executions)
        if current is not None:
            raise refuse(engine, Limit.OPEN, limits.open_executions, current, execution)
    wait = await tokens.take(tenant, limits)
    if wait is not None:
        if counted:
            opened.leave(tenant, execution)
        engine.metrics.count("weft_limited_total", Limit.STARTS)
        raise refusal(limits, spread(wait, execution))
    seat = Seat()
    try:
        yield seat
    except Unavailable:
        seat.created = True  # it may have been stored
        raise
    finally:
        if seat.created is None and counted:
            opened.leave(tenant, execution)
        if not seat.created and limits.starts_per_second is not None:
            tokens.give_back(tenant)


async def payload(engine: Engine, tenant: str, size: int, what: str, field: str = "") -> None:
    """Raises `TooLargeError` if `what` (such as "the input") has more bytes of JSON than the tenant
    may use."""
    limits = await engine.part(LimitBook).of(tenant)
    allowed = limits.max_payload
    if size <= allowed:
        return
    engine.metrics.count("weft_limited_total", Limit.PAYLOAD)
    message = (
        f"{what} has {size} bytes of JSON, the limit {Limit.PAYLOAD} is {allowed}; store the data "
        "elsewhere and pass a reference"
    )
    code = FailureType.PAYLOAD_TOO_LARGE
    details = [ErrorDetail(field or Limit.PAYLOAD, f"{allowed} allowed, now {size}", code)]
    raise TooLargeError(message, code=code, details=details)


def step(size: int, what: str, field: str) -> None:
    """Raises `TooLargeError` if `what` has more bytes of JSON than one step of a code workflow may:
    it would fail there, which does not help whoever sent it."""
    if size > MAX_STEP_BYTES:
        code = FailureType.PAYLOAD_TOO_LARGE
        details = [ErrorDetail(field, f"{MAX_STEP_BYTES} allowed, now {size}", code)]
        raise TooLargeError(step_too_large(what, size), code=code, details=details)


async def output(engine: Engine, tenant: str, size: int) -> None:
    """Raises `PayloadTooLarge` if a task's output has more bytes than the tenant may use."""
    allowed = await most_output(engine, tenant, size)
    if allowed is not None:
        raise PayloadTooLarge(size, allowed)


async def most_output(engine: Engine, tenant: str, size: int) -> int | None:
    """The bytes that an output may have, if `size` is more than the tenant may use."""
    if size <= MIN_PAYLOAD_BYTES:
        return None
    allowed = (await engine.part(LimitBook).of(tenant)).max_payload
    if size <= allowed:
        return None
    engine.metrics.count("weft_limited_total", Limit.PAYLOAD)
    return allowed


async def stored(engine: Engine, tenant: str, limit: Limit, type: str, name: str) -> None:
    """Ask before a new document of `type` is created in the catalog, for the limit of those. Those
    who create at the same moment may go over it together. Raises `LimitError`, and what the store
    raises."""
    limits = await engine.part(LimitBook).of(tenant)
    allowed = limits.schedules if limit is Limit.SCHEDULES else limits.stored_definitions
    if allowed is None:
        return
    current = await stored_count(engine, tenant, type, most=allowed)
    if current >= allowed:
        raise refuse(engine, limit, allowed, current, name)


async def stored_count(engine: Engine, tenant: str, type: str, *, most: int) -> int:
    """Documents of `type` in the tenant's catalog, counted up to `most`."""
    query = Query(
        partition=(tenant,),
        where=(Where("type", "=", type), Where("tenantId", "=", tenant)),
        limit=max(1, most),
    )
    return await patiently(engine, engine.store.count, CATALOG, query)


def refuse(engine: Engine, limit: Limit, allowed: int, current: int, about: str) -> LimitError:
    """The refusal for a count."""
    engine.metrics.count("weft_limited_total", limit)
    return LimitError(limit, allowed, current, retry_after_ms=spread(COUNT_MS, about))


def spread(ms: int, about: str) -> int:
    """`ms`, and up to half of that (a second at least) more, derived from what it is about."""
    share = int.from_bytes(hashlib.blake2b(about.encode(), digest_size=4).digest()) / (1 << 32)
    return ms + round(share * max(1_000, ms * SPREAD))
