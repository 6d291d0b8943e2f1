"""Bulk operations that take longer than an HTTP call: submitted as an execution of Weft's own code
workflow `weft-bulk`, which calls `run` for each of its steps.

What is to be done stands in the execution's input, and in whose name in its header; the field
`bulk` of the header says that its rights were checked when it was submitted. Without it no step
does anything, whoever asks for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from orchestrator.domain import jsonvalues
from orchestrator.domain.built_in import BULK, NAMES
from orchestrator.domain.errors import (
    ConflictError,
    InvalidError,
    LimitError,
    NotFoundError,
    UnavailableError,
    WeftError,
)
from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.orchestration_result import encode_output
from orchestrator.domain.priority import Priority
from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus
from orchestrator.engine import (
    claimcheck,
    control,
    inspect,
    letters_act,
    letters_bulk,
    letters_list,
    submit,
)
from orchestrator.engine.control import CANCEL, CANCEL_COMPENSATING, PAUSE, RESUME, TERMINATE
from orchestrator.engine.core import Engine
from orchestrator.engine.inspect import After, ExecutionFilter
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.engine.views import ExecutionSummary, StartResult
from orchestrator.engine.views_letters import BulkRefusal
from orchestrator.ports import ActivityFailed, PayloadNotFound, StoreError, TransportError

MARK: Final = "bulk"
RETRY: Final = "retry"
EXECUTION_ACTIONS: Final = {one.name: one for one in (PAUSE, RESUME, CANCEL, TERMINATE)}
SCANNED_PAGES = 10
"""Of executions that the action has no business with, before a step ends without any."""
AT_ONCE = 8
MAX_MESSAGE_CHARS = 200
_FIELDS: Final = {
    "errorType": "error_type",
    "createdAfter": "created_after",
    "createdBefore": "created_before",
}


class Target(StrEnum):
    """What a bulk operation is about."""

    LETTERS = "deadletters"
    EXECUTIONS = "executions"


async def start(
    engine: Engine,
    tenant: str,
    target: Target,
    request: Mapping[str, Json],
    *,
    by: str,
    key: str | None = None,
    traceparent: str = "",
) -> StartResult:
    """Submit it; the caller has checked the rights of `by` over all that the filter can find.

    `request`: action, filter (of the API; times in epoch ms), and perhaps reason, output (of a
    skip), compensate (of a cancel), limit (how many at most), cursor (a place in the list).
    Raises what `submit.start` raises."""
    given = {name: value for name, value in request.items() if value is not None}
    letters_act.check_reason(str(given.get("reason", "")))
    wanted: Any = given.get("filter", {})
    return await submit.start(
        engine,
        tenant,
        BULK,
        {"target": target.value, **given},
        key=key,
        started_by=by,
        traceparent=traceparent,
        priority=Priority.HIGH,
        more={MARK: {"workflow": wanted.get("workflow")}},
        own=True,
    )


async def run(engine: Engine, request: dict[str, Any]) -> str:
    """One step of a bulk operation; its output (`encode_output`). Raises `ActivityFailed`.

    `{"op": "find", "after", "limit"}`: `items` (`[id, endedAt]`, the time only where it matters),
    and where the next part begins (`after`, null: there is no more). `{"op": "act", "items"}`:
    `done`, how many are as wished, and `refused` (id, code, message each). Done again, nothing
    happens twice, and the answer is the same."""
    tenant, execution = request["tenant"], request["execution"]
    try:
        found = await inspect.aggregate(engine, tenant, execution)
        if found.workflow.name != BULK or MARK not in found.header:
            raise _failed("FORBIDDEN", f"{execution} was not submitted as a bulk operation")
        if found.state.status in TERMINAL_EXECUTION:
            raise _failed("BULK_ENDED", f"the bulk operation is {found.state.status.value}")
        spec: Any = await claimcheck.load(engine, found.input)
        by = found.header["startedBy"]
        answer: dict[str, Any]
        if request["op"] == "find":
            begin = request["after"]
            after = None if begin is None else (begin[0], begin[1])
            items, more = await _find(engine, tenant, execution, spec, after, request["limit"])
            answer = {"items": items, "after": None if more is None else list(more)}
        else:
            done, refused = await _act(engine, tenant, spec, request["items"], by)
            answer = {"done": done, "refused": [_shown(one) for one in refused]}
    except (UnavailableError, StoreError, TransportError, PayloadNotFound, OSError) as error:
        message = f"the platform could not do it: {error}"
        raise _failed(type(error).__name__, message, retryable=True) from None
    except WeftError as error:
        raise _failed(error.code, error.message) from None
    return encode_output(jsonvalues.dumps(answer).decode())


async def _find(
    engine: Engine, tenant: str, own: str, spec: Mapping[str, Any], after: After, limit: int
) -> tuple[list[list[Any]], After]:
    filled: dict[str, Any] = spec.get("filter", {})
    given: dict[str, Any] = {_FIELDS.get(name, name): value for name, value in filled.items()}
    if spec["target"] == Target.LETTERS:
        wanted = LetterFilter(**given, status=LetterStatus.OPEN)
        letters, more = await letters_list.find(engine, tenant, wanted, limit=limit, after=after)
        return [[letters_list.public_id(one.body), None] for one in letters], more
    if "status" in given:
        given["status"] = ExecutionStatus(given["status"])
    if "tag" in given:
        given["tag"] = given["tag"].partition("=")[::2]
    filter, more = ExecutionFilter(**given), after
    chosen: list[list[Any]] = []
    for _ in range(SCANNED_PAGES):
        rows, more = await inspect.executions(engine, tenant, filter, limit=limit, after=more)
        for row in rows:
            if row.id != own and _meant(row, spec, filter):
                chosen.append([row.id, row.ended_at if spec["action"] == RETRY else None])
        if chosen or more is None:
            break
    return chosen, more


def _meant(row: ExecutionSummary, spec: Mapping[str, Any], filter: ExecutionFilter) -> bool:
    """Unless the filter says otherwise: not Weft's own, and in a state that has anything to do with
    the action."""
    if row.workflow in NAMES and filter.workflow not in NAMES:
        return False
    if filter.status is not None:
        return True
    if spec["action"] == RETRY:
        return row.status is ExecutionStatus.FAILED
    action = _action(spec)
    return row.status not in action.done | action.refused


def _action(spec: Mapping[str, Any]) -> control.Action:
    return CANCEL_COMPENSATING if spec.get("compensate") else EXECUTION_ACTIONS[spec["action"]]


async def _act(
    engine: Engine, tenant: str, spec: Mapping[str, Any], items: list[list[Any]], by: str
) -> tuple[int, list[BulkRefusal]]:
    reason = spec.get("reason", "")
    if spec["target"] == Target.LETTERS:
        action = Action(spec["action"])
        wish = Wish(action=action, by=by, reason=reason, value=spec.get("output"))
        return await letters_bulk.these(engine, tenant, [id for id, _ in items], wish)
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(id: str, ended_at: int | None) -> BulkRefusal | None:
        async with turns:
            try:
                if spec["action"] == RETRY:
                    await _retry(engine, tenant, id, ended_at, by, reason)
                else:
                    await control.do(engine, tenant, id, _action(spec), by=by, reason=reason)
            except (ConflictError, NotFoundError, LimitError, InvalidError) as error:
                return BulkRefusal(id=id, code=error.code, message=error.message)
        return None

    told = await asyncio.gather(*(one(id, ended_at) for id, ended_at in items))
    refused = [refusal for refusal in told if refusal is not None]
    return len(items) - len(refused), refused


async def _retry(
    engine: Engine, tenant: str, id: str, ended_at: int | None, by: str, reason: str
) -> None:
    """One that has gone on since it was found has been retried; if it has failed again, too."""
    if ended_at is not None:
        found = await inspect.aggregate(engine, tenant, id)
        if found.state.ended_at != ended_at:
            return
    await letters_bulk.retry(engine, tenant, id, by=by, reason=reason)


def _shown(refusal: BulkRefusal) -> dict[str, str]:
    message = refusal.message[:MAX_MESSAGE_CHARS]
    return {"id": refusal.id, "code": refusal.code, "message": message}


def _failed(type: str, message: str, *, retryable: bool = False) -> ActivityFailed:
    return ActivityFailed(Failure(type=type, message=message, retryable=retryable))
