"""Dead letters over HTTP: list, look at one, decide about one or many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field

from orchestrator.domain.authz import Scope
from orchestrator.engine import letters_act, letters_bulk, letters_list
from orchestrator.engine.bulk import Target
from orchestrator.engine.control import MAX_REASON_CHARS
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_bulk import MAX_BULK
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.engine.views import ExecutionView, Page
from orchestrator.engine.views_letters import BulkResult, DeadLetterSummary, DeadLetterView
from orchestrator.functions import cursors, guards, http_bulk, http_params, listing, requests
from orchestrator.functions.http_bulk import CONFIG, Time
from orchestrator.functions.http_routes import Answer, Body, Call, Handler, Reply, Routes
from orchestrator.functions.http_shared import BODY_ERRORS, KEY, ControlRequest, json_body

ROUTES: Final = Routes("Dead letters", hub=True)


_FILTERS: Final = (
    http_params.enum_filter("status", "Only dead letters in this status", LetterStatus),
    http_params.text_filter("workflow", "Only of this workflow", read=http_params.identifier),
    http_params.text_filter("execution", "Only of this execution", read=http_params.identifier),
    http_params.text_filter("task", "Only of this task", read=http_params.identifier),
    http_params.text_filter(
        "errorType", "Only with this type of error", read=http_params.identifier
    ),
    http_params.time_filter("createdAfter", "Only those made at or after this time"),
    http_params.time_filter("createdBefore", "Only those made before this time"),
)


@ROUTES.add(
    "GET",
    "v1/deadletters",
    scope=Scope.READ,
    checks=True,
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
    items = await listing.letters(await call.engine(), call.principal, items)
    return call.page(items, after, Page[DeadLetterSummary])


@ROUTES.add(
    "GET",
    "v1/deadletters/{letterId}",
    scope=Scope.READ,
    summary="Show a dead letter",
    replies={200: Reply(description="The dead letter", model=DeadLetterView)},
    errors=(404,),
)
async def get_deadletter(call: Call) -> Answer:
    """With the whole chain of errors, every attempt, and the input of the last one, in which
    secrets are masked. The data of an event, and the text of a message, are for operators."""
    view = await letters_list.show(
        await call.engine(),
        call.tenant,
        call.path["letterId"],
        reveal=guards.reveals(call.principal),
    )
    if view.event is None and view.message is None:
        return Answer(body=view)
    if not await guards.operates_letter(await call.engine(), call.principal, view.id):
        view = letters_list.without_data(view)
    return Answer(body=view)


class RetryRequest(BaseModel):
    """Why, and perhaps another input."""

    model_config = CONFIG

    reason: str = Field("", max_length=MAX_REASON_CHARS)
    input: Any = Field(None, description="Instead of the task's own input; left out: that one")


class SkipRequest(BaseModel):
    """Why, and what the task is said to have given."""

    model_config = CONFIG

    reason: str = Field("", max_length=MAX_REASON_CHARS)
    output: Any = Field(None, description="The task's output, for whoever reads it")


class BulkFilter(BaseModel):
    """Which open dead letters; all that is given must hold."""

    model_config = CONFIG

    workflow: str | None = None
    execution: str | None = None
    task: str | None = None
    error_type: str | None = None
    created_after: Time = None
    created_before: Time = None


class BulkRequest(BaseModel):
    """What to do, to which, and why."""

    model_config = CONFIG

    action: Annotated[Action, BeforeValidator(http_params.choice(Action))]
    filter: BulkFilter = Field(default_factory=BulkFilter)
    reason: str = Field("", max_length=MAX_REASON_CHARS)
    output: Any = Field(None, description="For skip: the output of each")
    limit: int = Field(MAX_BULK, ge=1, le=MAX_BULK)
    cursor: str | None = Field(None, description="`nextCursor` of the part before")


_ERRORS: Final = (404, 409, *BODY_ERRORS)


def _decision(
    path: str, summary: str, done: str, *, body: Body, errors: tuple[int, ...] = _ERRORS
) -> Callable[[Handler], Handler]:
    """The route of a decision about one dead letter, which is `done` then."""
    return ROUTES.add(
        "POST",
        path,
        scope=Scope.OPERATE,
        summary=summary,
        body=body,
        replies={200: Reply(description=done, model=DeadLetterView)},
        errors=errors,
    )


async def _act(call: Call, action: Action, reason: str, **more: Any) -> Answer:
    wish = Wish(action=action, by=call.principal.subject, reason=reason, **more)
    view = await letters_act.act(await call.engine(), call.tenant, call.path["letterId"], wish)
    return Answer(body=view)


@_decision(
    "v1/deadletters/{letterId}/retry",
    "Retry a dead letter",
    "It is RETRIED",
    body=json_body(RetryRequest, {"reason": "address corrected", "input": {"to": "Berlin"}}),
    errors=(*_ERRORS, 429),
)
async def retry_deadletter(call: Call) -> Answer:
    """Runs the task (or the item) again, with all its attempts before it, perhaps with another
    input. A failed execution is taken up again; what had completed is not run again. The same
    request again has no further effect; another one is refused (409)."""
    body = await requests.model(call.req, RetryRequest)
    edited = "input" in body.model_fields_set
    return await _act(call, Action.RETRY, body.reason, value=body.input, edited=edited)


@_decision(
    "v1/deadletters/{letterId}/skip",
    "Skip a dead letter with an output",
    "It is SKIPPED",
    body=json_body(SkipRequest, {"reason": "paid by hand", "output": {"receipt": "A-17"}}),
)
async def skip_deadletter(call: Call) -> Answer:
    """The task counts as completed with this output, and the execution goes on."""
    body = await requests.model(call.req, SkipRequest)
    return await _act(call, Action.SKIP, body.reason, value=body.output)


@_decision(
    "v1/deadletters/{letterId}/fail",
    "Accept the failure of a dead letter",
    "It is FAILED",
    body=json_body(ControlRequest, {"reason": "the customer has gone"}),
)
async def fail_deadletter(call: Call) -> Answer:
    """Nobody will retry it. An execution that holds for the task goes on without it, and ends
    FAILED."""
    body = await requests.model(call.req, ControlRequest)
    return await _act(call, Action.FAIL, body.reason)


@_decision(
    "v1/deadletters/{letterId}/discard",
    "Discard a dead letter",
    "It is DISCARDED",
    body=json_body(ControlRequest, {"reason": "a test"}),
)
async def discard_deadletter(call: Call) -> Answer:
    """Puts it away; the execution stays as it is. Refused (409) while an execution holds for it."""
    body = await requests.model(call.req, ControlRequest)
    return await _act(call, Action.DISCARD, body.reason)


@ROUTES.add(
    "POST",
    "v1/deadletters/bulk",
    scope=Scope.OPERATE,
    checks=True,
    summary="Decide about many dead letters",
    headers=(http_bulk.PREFER, *KEY),
    body=json_body(
        BulkRequest,
        {"action": "retry", "filter": {"errorType": "ConnectionError"}, "reason": "back again"},
        required=True,
    ),
    replies={
        200: Reply(description="What was done", model=BulkResult),
        202: http_bulk.ACCEPTED[202],
    },
    errors=(400, 409, *BODY_ERRORS),
)
async def bulk_deadletters(call: Call) -> Answer:
    """Does the same to all open dead letters that the filter finds, newest first. What makes no
    sense is left as it is and listed. If `more` is true, the same call with the cursor does the
    next part. Interrupted: the same call again does the rest, and nothing twice.

    With `Prefer: respond-async` it answers at once (202), and an execution of `weft-bulk` does it,
    as POST /v1/executions/bulk says: to all of them if `limit` is left out. An Idempotency-Key
    counts then."""
    body = await requests.model(call.req, BulkRequest)
    wish = Wish(
        action=body.action, by=call.principal.subject, reason=body.reason, value=body.output
    )
    found = LetterFilter(**body.filter.model_dump(by_alias=False))
    await listing.may_decide(await call.engine(), call.principal, found)
    scope = (call.tenant, call.route.name, body.filter.model_dump_json())
    behind: Any = None if body.cursor is None else cursors.decode(scope, body.cursor)
    if http_bulk.wanted(call.req):
        given = body.model_dump(mode="json", by_alias=True, exclude_none=True)
        limit = body.limit if "limit" in body.model_fields_set else None
        given |= {"cursor": behind, "limit": limit}
        return await http_bulk.submitted(call, await call.engine(), Target.LETTERS, given)
    result, after = await letters_bulk.part(
        await call.engine(), call.tenant, found, wish, limit=body.limit, after=behind
    )
    return Answer(body=result.model_copy(update={"next_cursor": cursors.encode(scope, after)}))


@ROUTES.add(
    "POST",
    "v1/executions/{id}/retry",
    scope=Scope.OPERATE,
    summary="Retry a failed execution",
    body=json_body(ControlRequest, {"reason": "the service is back"}),
    replies={200: Reply(description="It goes on", model=ExecutionView)},
    errors=_ERRORS,
)
async def retry_execution(call: Call) -> Answer:
    """Retries everything that is dead in it, and takes up what its failure or its time limit had
    stopped. Completed tasks are not run again. A completed or cancelled one is refused (409)."""
    body = await requests.model(call.req, ControlRequest)
    view = await letters_bulk.retry_execution(
        await call.engine(),
        call.tenant,
        call.path["id"],
        by=call.principal.subject,
        reason=body.reason,
    )
    return Answer(body=view)
