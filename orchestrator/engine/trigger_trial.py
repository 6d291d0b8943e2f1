"""What a trigger would do with an event, without doing it: for those who write triggers."""

from __future__ import annotations

from orchestrator.domain.cloudevents import CloudEvent
from orchestrator.domain.errors import ConflictError, InvalidError, NotFoundError
from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.triggers import TriggerFailed
from orchestrator.engine import catalog, events, shapes, submit, trigger_store
from orchestrator.engine.aside import aside
from orchestrator.engine.core import Engine
from orchestrator.engine.views_events import TriggerTest


async def trial(engine: Engine, tenant: str, name: str, event: CloudEvent) -> TriggerTest:
    """Match, filter, map and check the input against the workflow as it is now. A paused trigger is
    asked as if it were not. Raises `NotFoundError` for an unknown trigger."""
    trigger = trigger_store.compiled((await trigger_store.read(engine, tenant, name)).body)
    if not trigger.meets(event):
        return TriggerTest(starts=False, stopped="match")
    try:
        if not await aside(lambda: trigger.passes(event), heavy=trigger.heavy):
            return TriggerTest(starts=False, stopped="filter")
        events.check_hops(event)
        input, tags = await aside(lambda: trigger.mapped(event), heavy=trigger.heavy)
    except TriggerFailed as failed:
        places = {"filterFailed": "filter", "tooManyHops": "start"}
        stopped = places.get(failed.reason, "input")
        error = shapes.failure(failed.failure.to_doc())
        return TriggerTest(starts=False, stopped=stopped, error=error)
    try:
        await _startable(engine, tenant, trigger.workflow, input, tags)
    except (NotFoundError, ConflictError, InvalidError) as refusal:
        causes = tuple(
            Failure(type=detail.code or refusal.code, message=detail.message, field=detail.field)
            for detail in refusal.details
        )
        failure = Failure(type=refusal.code, message=refusal.message, causes=causes).bounded()
        error = shapes.failure(failure.to_doc())
        return TriggerTest(starts=False, stopped="start", input=input, tags=tags, error=error)
    return TriggerTest(starts=True, input=input, tags=tags)


async def _startable(
    engine: Engine, tenant: str, workflow: str, input: Json, tags: dict[str, str]
) -> None:
    submit.check_tags(tags)
    head = await catalog.head(engine, tenant, workflow)
    if head.body["archived"]:
        raise ConflictError(f"workflow {workflow!r} is archived", code="WORKFLOW_ARCHIVED")
    version = await catalog.runnable(engine, tenant, head)
    await submit.check_input(version, input)
