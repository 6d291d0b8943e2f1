"""Dead letters over HTTP: list, look at one."""

from __future__ import annotations

from typing import Final

import azure.functions as func

from orchestrator.engine import letters_list
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.views import Page
from orchestrator.engine.views_letters import DeadLetterSummary, DeadLetterView
from orchestrator.functions import http_params
from orchestrator.functions.http_routes import Answer, Call, Reply, Routes
from orchestrator.functions.provider import EngineProvider
from orchestrator.functions.requests import Param

ROUTES: Final = Routes("Dead letters")


def _name(name: str, text: str) -> Param:
    return Param(
        name=name, description=text, schema={"type": "string"}, read=http_params.identifier
    )


_FILTERS: Final = (
    Param(
        name="status",
        description="Only dead letters in this status",
        schema={"type": "string", "enum": [status.value for status in LetterStatus]},
        read=http_params.choice(LetterStatus),
    ),
    _name("workflow", "Only of this workflow"),
    _name("execution", "Only of this execution"),
    _name("task", "Only of this task"),
    _name("errorType", "Only with this type of error"),
    http_params.time("createdAfter", "Only those made at or after this time"),
    http_params.time("createdBefore", "Only those made before this time"),
)


@ROUTES.add(
    "GET",
    "v1/deadletters",
    summary="List dead letters",
    query=(*_FILTERS, *http_params.PAGING),
    replies={200: Reply(description="A page, newest first", model=Page[DeadLetterSummary])},
)
async def list_deadletters(call: Call) -> Answer:
    """What failed for good and was not resolved, or how it was. Newest first. All filters given
    must hold. A cursor belongs to the filters it came with."""
    query = call.query
    wanted = LetterFilter(
        status=query["status"],
        workflow=query["workflow"],
        execution=query["execution"],
        task=query["task"],
        error_type=query["errorType"],
        created_after=query["createdAfter"],
        created_before=query["createdBefore"],
    )
    items, after = await letters_list.page(
        await call.engine(), call.tenant, wanted, limit=query["limit"], after=call.after()
    )
    return call.page(items, after, Page[DeadLetterSummary])


@ROUTES.add(
    "GET",
    "v1/deadletters/{letterId}",
    summary="Show a dead letter",
    replies={200: Reply(description="The dead letter", model=DeadLetterView)},
    errors=(404,),
)
async def get_deadletter(call: Call) -> Answer:
    """With the whole chain of errors, every attempt, and the input of the last one, in which
    secrets are masked."""
    view = await letters_list.show(await call.engine(), call.tenant, call.path["letterId"])
    return Answer(body=view)


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The routes of this module."""
    return ROUTES.blueprint(provider)
