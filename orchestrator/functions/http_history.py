"""The history of an execution over HTTP, and of the orchestrations that it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from orchestrator.domain.authz import Scope
from orchestrator.engine import durable_history, inspect
from orchestrator.engine.views import HistoryEvent, Page
from orchestrator.functions import guards, http_params
from orchestrator.functions.http_routes import Answer, Call, Reply, Routes
from orchestrator.functions.requests import Param

ROUTES: Final = Routes("Executions", hub=True)


class Include(StrEnum):
    """What a history may hold besides."""

    ORCHESTRATION = "orchestration"


_INCLUDE: Final = Param(
    name="include",
    description="Also the events inside its orchestrations, behind its own",
    schema={"type": "string", "enum": [one.value for one in Include]},
    read=http_params.choice(Include),
)


@ROUTES.add(
    "GET",
    "v1/executions/{id}/history",
    scope=Scope.READ,
    summary="List an execution's history",
    query=(*http_params.PAGING, _INCLUDE),
    replies={200: Reply(description="A page, oldest first", model=Page[HistoryEvent])},
    errors=(404,),
)
async def list_history(call: Call) -> Answer:
    """Every event, oldest first: enough to rebuild the state. Behind the last page come, if they
    are included, the events of its orchestrations, as Durable Functions tells them (`source`)."""
    engine = await call.engine()
    items, after = await inspect.history(
        engine,
        call.tenant,
        call.path["id"],
        limit=call.query["limit"],
        after=call.after(int, int),
        reveal=guards.reveals(call.principal),
    )
    if after is None and call.query["include"] is Include.ORCHESTRATION:
        items += await durable_history.of_execution(engine, call.tenant, call.path["id"])
    return call.page(items, after, Page[HistoryEvent])
