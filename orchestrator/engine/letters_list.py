"""Dead letters for people: find them, look at one.

The id that the API shows is `{execution}~{task}[~{item}]~{attempt}`: opaque to clients, and of
characters that every URL may hold as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from orchestrator.domain.errors import NotFoundError
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.payload import Payload
from orchestrator.domain.redaction import MASK
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import UNDO_SUFFIX
from orchestrator.engine import claimcheck, documents, inspect, sensitive, shapes
from orchestrator.engine.core import Engine
from orchestrator.engine.event_letters import KIND
from orchestrator.engine.letters import TYPE, LetterStatus
from orchestrator.engine.resilience import patiently
from orchestrator.engine.sensitive import Reveal, hidden
from orchestrator.engine.views_letters import DeadLetterSummary, DeadLetterView, Resolution
from orchestrator.ports import Document, Query, Where

After = tuple[str | int, str] | None
PREFIX = "dead:"
SEPARATOR = "~"
MOMENT = 5_000
"""Of one millisecond, more than this is not looked at."""
_DATA: Final = frozenset({"data", "data_base64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """What to list; all that is given must hold. Times in epoch ms."""

    status: LetterStatus | None = None
    workflow: str | None = None
    execution: str | None = None
    task: str | None = None
    error_type: str | None = None
    created_after: int | None = None
    created_before: int | None = None


def public_id(doc: dict[str, Any]) -> str:
    """The id of a letter in the API."""
    own = doc["id"].removeprefix(PREFIX).replace(":", SEPARATOR)
    return f"{doc['executionId']}{SEPARATOR}{own}"


def stored_id(id: str) -> tuple[str, str]:
    """(execution, id of the document). Raises `NotFoundError` for what is no such id."""
    execution, _, own = id.partition(SEPARATOR)
    if not execution or not own or ":" in own:
        raise unknown(id)
    task, *rest = own.split(SEPARATOR)
    if len(rest) > 1 and SEPARATOR + rest[0] == UNDO_SUFFIX:  # no item is called like that
        task, rest = task + UNDO_SUFFIX, rest[1:]
    return execution, PREFIX + ":".join([task, *rest])


def unknown(id: str) -> NotFoundError:
    """There is no such dead letter."""
    return NotFoundError(
        f"no dead letter {id!r}; see GET /v1/deadletters", code="DEAD_LETTER_NOT_FOUND"
    )


async def read(engine: Engine, tenant: str, id: str) -> Document:
    """The stored letter. Raises `NotFoundError`."""
    execution, stored = stored_id(id)
    found = await patiently(
        engine, engine.store.read_many, EXECUTIONS, (tenant, execution), [stored]
    )
    if stored not in found:
        raise unknown(id)
    return documents.checked(found)[stored]


async def page(
    engine: Engine, tenant: str, filter: LetterFilter, *, limit: int, after: After
) -> tuple[list[DeadLetterSummary], After]:
    """The tenant's dead letters, newest first, and where the next page begins."""
    found, more = await find(engine, tenant, filter, limit=limit, after=after)
    return [DeadLetterSummary(**_summary(letter.body)) for letter in found], more


async def find(
    engine: Engine, tenant: str, filter: LetterFilter, *, limit: int, after: After
) -> tuple[list[Document], After]:
    """Like `page`, as stored.

    Letters of many executions are made in the same millisecond, under the same id: the store's
    own order says no more about them. So those of the moment at which a page ends are always read
    together, and ordered here."""
    where = [Where("type", "=", TYPE), Where("tenantId", "=", tenant)]
    wanted: list[tuple[str, str | None]] = [
        ("status", filter.status.value if filter.status else None),
        ("workflow", filter.workflow),
        ("executionId", filter.execution),
        ("task", filter.task),
        ("errorType", filter.error_type),
    ]
    where += [Where(field, "=", value) for field, value in wanted if value is not None]
    if filter.created_after is not None:
        where.append(Where("createdAt", ">=", filter.created_after))
    if filter.created_before is not None:
        where.append(Where("createdAt", "<", filter.created_before))
    partition = (tenant,) if filter.execution is None else (tenant, filter.execution)

    async def query(condition: Where | None, most: int) -> tuple[list[Document], bool]:
        more = () if condition is None else (condition,)
        asked = Query(
            partition=partition,
            where=(*where, *more),
            order_by="createdAt",
            descending=True,
            limit=most,
        )
        found = await patiently(engine, engine.store.query, EXECUTIONS, asked)
        own = [doc for doc in found if doc.body["tenantId"] == tenant]
        engine.metrics.count("weft_foreign_rows_total", by=len(found) - len(own))
        return own, len(found) == most

    async def of_moment(at: str | int) -> list[Document]:
        together, _ = await query(Where("createdAt", "=", at), MOMENT)
        return sorted(together, key=_place, reverse=True)

    found: list[Document] = []
    older, full = None, False
    if after is not None:
        older = Where("createdAt", "<", after[0])
        found = [one for one in await of_moment(after[0]) if _place(one) < after]
    if len(found) < limit:
        rest, full = await query(older, limit - len(found))
        if full and rest:
            last = rest[-1].body["createdAt"]
            rest = [one for one in rest if one.body["createdAt"] != last]
            rest += await of_moment(last)
        found += rest
    shown = found[:limit]
    return shown, _place(shown[-1]) if shown and (full or len(found) >= limit) else None


def _place(letter: Document) -> tuple[int, str]:
    return letter.body["createdAt"], f"{letter.id} {letter.body['executionId']}"


async def show(engine: Engine, tenant: str, id: str, *, reveal: Reveal = hidden) -> DeadLetterView:
    """One letter with everything known, what is sensitive of it masked unless `reveal` says
    otherwise. Raises `NotFoundError`."""
    return await view(engine, (await read(engine, tenant, id)).body, reveal)


async def view(engine: Engine, doc: dict[str, Any], reveal: Reveal = hidden) -> DeadLetterView:
    """The view of a stored letter."""
    return DeadLetterView(
        **_summary(doc),
        attempts=shapes.attempts(doc["attempts"]),
        traceparent=doc.get("traceparent"),
        input=await _input(engine, doc, reveal),
        message=doc.get("body"),
        event=await _event(engine, doc),
    )


def without_data(view: DeadLetterView) -> DeadLetterView:
    """The view without what its event or message brought; what it was about stays."""
    event: Json = view.event
    if isinstance(event, dict):
        event = {name: MASK if name in _DATA else value for name, value in event.items()}
    message = None if view.message is None else MASK
    return view.model_copy(update={"event": event, "message": message})


async def _input(engine: Engine, doc: dict[str, Any], reveal: Reveal) -> Any:
    if not doc.get("input"):
        return None
    value = await claimcheck.load(engine, Payload.from_doc(doc["input"]))
    try:
        found = await inspect.aggregate(engine, doc["tenantId"], doc["executionId"])
    except NotFoundError:
        return MASK  # what of it is sensitive, the execution would tell
    seen = await sensitive.shown(engine, found, reveal)
    return seen.value(seen.flow.given(doc["task"], item="item" in doc), value)


async def _event(engine: Engine, doc: dict[str, Any]) -> Any:
    payload = doc.get("event")
    return await claimcheck.load(engine, Payload.from_doc(payload)) if payload else None


def _summary(doc: dict[str, Any]) -> dict[str, Any]:
    resolved = doc.get("resolved")
    return {
        "id": public_id(doc),
        "kind": doc["kind"],
        "status": LetterStatus(doc["status"]),
        "reason": doc["reason"],
        "execution": _execution(doc),
        "trigger": doc.get("trigger"),
        "workflow": doc.get("workflow"),
        "version": doc.get("version"),
        "task": doc.get("task"),
        "item": doc.get("item"),
        "attempt": doc["attempt"],
        "created_at": doc["createdAt"],
        "error": shapes.failure(doc.get("failure")),
        "tolerated": doc.get("tolerated", False),
        "resolved": Resolution(**resolved) if resolved else None,
    }


def _execution(doc: dict[str, Any]) -> str | None:
    """An event belongs to no execution, until it is retried and starts one."""
    if doc["kind"] != KIND:
        return doc["executionId"]
    return next(iter(doc.get("executions", ())), None)
