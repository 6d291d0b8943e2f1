"""The audit over HTTP: list it, check its chain."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.domain.authz import Scope
from orchestrator.engine import audit_reads
from orchestrator.engine.audit_reads import AuditFilter
from orchestrator.engine.views import Page
from orchestrator.engine.views_audit import AuditCheck, AuditView
from orchestrator.functions import http_params
from orchestrator.functions.http_routes import Answer, Call, Reply, Routes
from orchestrator.functions.requests import Param

ROUTES: Final = Routes("Audit")
MAX_CHECKED: Final = 5_000
_MOST: Final = 2**53
_KNOWN: Final = re.compile(r"([1-9][0-9]{0,15}):([0-9a-f]{64})")


def _known(text: str) -> tuple[int, str]:
    """Reader of a record's number and the hash that somebody kept of it."""
    match = _KNOWN.fullmatch(text)
    if match is None:
        raise ValueError("must be NUMBER:HASH, as an earlier check gave them (`head`, `headHash`)")
    return int(match[1]), match[2]


_FILTERS: Final = (
    http_params.text_filter("action", "Only this action", "workflow.publish"),
    http_params.text_filter(
        "resource", "Only changes of this, as kind:name", "workflow:order-fulfilment"
    ),
    http_params.text_filter(
        "execution", "Only what concerns this execution", "019ad1f0-7f2c-7c11-a6f1-0d8a5ec4"
    ),
    http_params.text_filter("by", "Only what this person or program did", "developer"),
    http_params.time_filter("from", "Only from this time on"),
    http_params.time_filter("to", "Only up to this time"),
)


@ROUTES.add(
    "GET",
    "v1/audit",
    scope=Scope.ADMIN,
    summary="List the audit",
    query=(*_FILTERS, *http_params.PAGING),
    replies={200: Reply(description="A page, newest first", model=Page[AuditView])},
)
async def list_audit(call: Call) -> Answer:
    """Every change that somebody made: who, what, when, from where, why. All filters given must
    hold. A cursor belongs to the filters it came with."""
    query = call.query
    items, after = await audit_reads.page(
        await call.engine(),
        call.tenant,
        AuditFilter(
            action=query["action"],
            resource=query["resource"],
            execution=query["execution"],
            by=query["by"],
            since=query["from"],
            until=query["to"],
        ),
        limit=query["limit"],
        after=call.after(),
    )
    return call.page(items, after, Page[AuditView])


@ROUTES.add(
    "GET",
    "v1/audit/verify",
    scope=Scope.ADMIN,
    summary="Check the audit's chain",
    query=(
        Param(
            name="from",
            description="Number of the first record to check; `next` of the part before",
            schema={"type": "integer", "minimum": 1, "default": 1},
            read=http_params.integer(1, _MOST),
            default=1,
        ),
        Param(
            name="limit",
            description="How many records at most",
            schema={"type": "integer", "minimum": 1, "maximum": MAX_CHECKED, "default": 1000},
            read=http_params.integer(1, MAX_CHECKED),
            default=1_000,
        ),
        Param(
            name="known",
            description="A record's number and hash that were kept elsewhere: `head:headHash` of "
            "an earlier check",
            schema={"type": "string", "pattern": f"^{_KNOWN.pattern}$"},
            read=_known,
        ),
    ),
    replies={200: Reply(description="What this part shows", model=AuditCheck)},
)
async def verify_audit(call: Call) -> Answer:
    """Finds the first record that was altered, removed, inserted or reordered. A part that is all
    right says where the `next` one begins, until it is null."""
    query = call.query
    found = await audit_reads.verify(
        await call.engine(),
        call.tenant,
        start=query["from"],
        limit=query["limit"],
        known=query["known"],
    )
    return Answer(body=found)
