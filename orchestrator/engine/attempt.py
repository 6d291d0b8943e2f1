"""Run one attempt of a claimed task: resolve its input, run the activity, bound it in time.

Whatever goes wrong inside becomes a `Failure`: an attempt has no other way to end.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.domain import dependencies, jsonvalues
from orchestrator.domain.deadlines import exceeded
from orchestrator.domain.egress import ANYWHERE, Egress
from orchestrator.domain.expressions import ExpressionError, Scope, Template
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import NotJson
from orchestrator.domain.payload import Payload
from orchestrator.domain.redaction import MASK, current, redacting
from orchestrator.domain.sensitive import masked
from orchestrator.domain.topology import EXECUTIONS, MAP_CHUNK_ITEMS
from orchestrator.domain.workflow import UNDO_SUFFIX, TaskSpec, TaskType
from orchestrator.engine import (
    admission,
    claimcheck,
    documents,
    facts,
    heartbeats,
    overdue,
    publish,
    telemetry,
)
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.aside import LARGE_BYTES, aside, faults_of
from orchestrator.engine.claimcheck import PayloadTooLarge
from orchestrator.engine.claims import Claim
from orchestrator.engine.confidential import Confidential, filled
from orchestrator.engine.core import Engine
from orchestrator.engine.egress import EgressBook
from orchestrator.engine.gather import ItemMissing, gather
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.engine.resilience import patiently
from orchestrator.ports import (
    ActivityCall,
    ActivityFailed,
    PayloadNotFound,
    SecretNotFound,
    StoreError,
)

log = logging.getLogger(__name__)

HTTP_ACTIVITY = "weft.http"
TRANSFORM_ACTIVITY = "weft.transform"
_INPUT_FIELD = {
    TaskType.ACTIVITY: "input",
    TaskType.HTTP: "request",
    TaskType.TRANSFORM: "output",
    TaskType.PUBLISH: "event",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended: exactly one of the two is set."""

    output: Payload | None = None
    failure: Failure | None = None


class LeaseLost(Exception):
    """The activity has not begun and must not: the lease ended, or somebody ended the task."""


async def run(engine: Engine, claim: Claim) -> Outcome:
    """One attempt. Raises `LeaseLost`, and nothing else unless the caller is cancelled."""
    confidential, tenant = Confidential(), claim.aggregate.partition[0]
    outcome = await _bounded(engine, claim, confidential)
    if outcome.failure is None or not confidential.texts:
        return outcome
    return Outcome(failure=await confidential.judged(engine, tenant, outcome.failure))


async def _bounded(engine: Engine, claim: Claim, confidential: Confidential) -> Outcome:
    due, limit = claim.deadline_at, claim.spec.timeout_ms
    left = limit if due is None else max(0, due - engine.clock.now())
    try:
        async with asyncio.timeout(min(limit, left) / 1000):
            await confidential.read(engine, claim.aggregate.partition[0], claim.spec.template)
            data = await _run(engine, claim, min(limit, left), confidential)
        data = confidential.redactor.data(data)
        await admission.output(engine, claim.aggregate.partition[0], len(data))
        name = f"{claim.id}:{claim.attempt}"
        return Outcome(output=await claimcheck.store(engine, claim.aggregate.partition, name, data))
    except LeaseLost:
        raise
    except TimeoutError:
        if claim.call is not None:
            claim.call.cancelled = True
        if left < limit or _too_late(engine, claim):
            return Outcome(failure=exceeded(claim.spec, overdue.last_error(claim.doc)))
        return _failed(FailureType.TIMEOUT, f"no result within {claim.spec.timeout_ms} ms")
    except ActivityFailed as error:
        return Outcome(failure=error.failure)
    except NotJson as error:
        message = f"the output is not JSON at {error.path}: {error.reason}"
        return _failed(FailureType.OUTPUT_NOT_JSON, message, retryable=False)
    except PayloadTooLarge as error:
        message = f"the output has {error}"
        return _failed(FailureType.PAYLOAD_TOO_LARGE, message, retryable=False)
    except ExpressionError as error:
        return Outcome(
            failure=Failure(
                type=FailureType.EXPRESSION,
                message=error.reason,
                retryable=False,
                field=_field(claim, error.path),
                expression=error.source,
            )
        )
    except SecretNotFound as error:
        return _failed("SECRET_NOT_FOUND", str(error), retryable=False)
    except (StoreError, PayloadNotFound, ItemMissing, OSError) as error:
        return _failed(type(error).__name__, f"the platform could not run it: {error}")
    except Exception as error:
        # A fault of ours or of an adapter. Raised to the host, it would cost a whole lease. Its
        # text may hold anything, also a secret, so only the place is told.
        log.error(
            "attempt could not be run: %s\n%s",
            type(error).__name__,
            "".join(traceback.format_tb(error.__traceback__)),
            extra={"action": "attempt.fault", "execution": claim.aggregate.execution},
        )
        return _failed(type(error).__name__, "the platform could not run it")


def _too_late(engine: Engine, claim: Claim) -> bool:
    return claim.deadline_at is not None and claim.deadline_at <= engine.clock.now()


def _failed(type: str, message: str, *, retryable: bool = True) -> Outcome:
    return Outcome(failure=Failure(type=type, message=message, retryable=retryable))


def _field(claim: Claim, path: str) -> str:
    task: str = claim.doc["task"]
    where = f"$.tasks.{task}"
    if claim.spec.undoes is not None:
        where = f"$.tasks.{task.removesuffix(UNDO_SUFFIX)}.compensate"
    if claim.item is not None:
        where += ".do"
    name = _INPUT_FIELD.get(claim.spec.type, "input")
    separator = "" if not path or path.startswith((".", "[")) else "."
    return f"{where}.{name}{separator}{path}"


async def _run(engine: Engine, claim: Claim, limit_ms: int, confidential: Confidential) -> bytes:
    """The JSON text of the output. `limit_ms`: what the activity is told that it may take."""
    spec, partition = claim.spec, claim.aggregate.partition
    if claim.gathers:
        return await gather(engine, partition, spec.id, claim.count, claim.failed)
    key = f"{partition[1]}:{spec.id}"
    key = key if claim.item is None else f"{key}:{claim.item}"
    edited = claim.doc.get("inputOverride")
    if edited is None:
        given = await resolve(engine, claim.aggregate, spec, claim.item, confidential.secrets)
    else:
        # Another request than the one before: under its key a service would answer with the old
        # result, or refuse it.
        given = await claimcheck.load(engine, Payload.from_doc(edited))
        if confidential.secrets:
            shown = await resolve(engine, claim.aggregate, spec, claim.item)
            real = await resolve(engine, claim.aggregate, spec, claim.item, confidential.secrets)
            given = filled(given, shown, real)
        key = f"{key}:edit{claim.doc['granted']}"
    if not await engine.part(LeaseKeeper).may_begin(claim):
        raise LeaseLost
    if _too_late(engine, claim):
        raise TimeoutError
    call = ActivityCall(
        activity={TaskType.HTTP: HTTP_ACTIVITY, TaskType.TRANSFORM: TRANSFORM_ACTIVITY}.get(
            spec.type, spec.activity
        ),
        input=given,
        tenant=partition[0],
        execution=partition[1],
        task=spec.id,
        item=claim.item,
        attempt=claim.attempt,
        idempotency_key=key,
        timeout_ms=limit_ms,
        traceparent=telemetry.traceparent(claim.aggregate.traceparent),
        last_heartbeat_at=engine.clock.now(),
        egress=await _egress(engine, partition[0], spec),
        redactor=confidential.redactor,
    )
    claim.call = call
    confidential.given(engine, claim, given)
    with redacting(confidential.texts):
        if spec.type is TaskType.PUBLISH:
            # Who reads an event, or what it starts, need not be who may operate the execution.
            call.input = masked(confidential.marks, given)
            workflow, hops = claim.aggregate.workflow.name, claim.aggregate.header.get("hops", 0)
            return jsonvalues.dumps(await publish.run(engine, call, spec.target, workflow, hops))
        if spec.type is TaskType.HTTP:
            output = await _request(engine, call, spec)
        else:
            output = await heartbeats.run(engine, call, spec.heartbeat_timeout_ms)
    if spec.output_schema is not None:
        await _check_output(spec, output)
    return jsonvalues.dumps(output)


async def _check_output(spec: TaskSpec, output: Json) -> None:
    """Raises `ActivityFailed`, not retryable: the work is done, and would be done again."""
    faults = await faults_of(spec.output_schema, output)
    if faults:
        told = "; ".join(f"{one.field}: {one.message}" for one in faults[:20])
        message = f"the output does not fit its outputSchema: {told}"
        raise ActivityFailed(
            Failure(type=FailureType.OUTPUT_INVALID, message=message, retryable=False)
        )


async def _egress(engine: Engine, tenant: str, spec: TaskSpec) -> Egress:
    """Where its requests may go, if it may make any."""
    if spec.type not in (TaskType.HTTP, TaskType.ACTIVITY):
        return ANYWHERE
    return await engine.part(EgressBook).of(tenant)


async def given(engine: Engine, claim: Claim) -> Json:
    """The input of what a claimed task starts: an operator's, or its own. Raises as `resolve`."""
    edited = claim.doc.get("inputOverride")
    if edited is not None:
        return await claimcheck.load(engine, Payload.from_doc(edited))
    return await resolve(engine, claim.aggregate, claim.spec, claim.item)


async def _request(engine: Engine, call: ActivityCall, spec: TaskSpec) -> Json:
    """Run an http task under a span that the service continues. Host only: a path or a query may
    hold anything; masked: it goes into the span and every log record."""
    asked = call.input if isinstance(call.input, dict) else {}
    host = spec.host or dependencies.host_of(current().value(asked.get("url")))
    with telemetry.span(
        engine.tracer, "http", parent=call.traceparent, kind="client", about={"host": host}
    ) as span:
        call.traceparent = span.traceparent
        try:
            return await heartbeats.run(engine, call, spec.heartbeat_timeout_ms)
        except ActivityFailed as error:
            span.fail(error.failure.type)
            raise


async def resolve(
    engine: Engine,
    aggregate: Aggregate,
    spec: TaskSpec,
    index: int | None,
    secrets: Mapping[str, str] | None = None,
) -> Json:
    """The task's input with its expressions evaluated. Data is never evaluated again. Without
    `secrets` it is for people's eyes: every one of them is `MASK`. Raises `ExpressionError`,
    `ItemMissing`, and what the ports raise."""
    if spec.template is None:
        return None
    return await evaluate(engine, aggregate, spec, spec.template, index, secrets)


async def evaluate(
    engine: Engine,
    aggregate: Aggregate,
    spec: TaskSpec,
    template: Template,
    index: int | None,
    secrets: Mapping[str, str] | None = None,
) -> Json:
    """The value of a template of `spec`; see `resolve`."""
    if template.constant:
        return template.evaluate(Scope())
    names = template.names
    item: Json = None
    if index is not None and "item" in names:
        item = await _item(engine, aggregate.partition, spec.id, index)
    scope = Scope(
        input=await claimcheck.load(engine, aggregate.input) if "input" in names else None,
        tasks=await facts.outcomes(engine, aggregate, template.tasks),
        execution=facts.execution_facts(aggregate),
        item=item,
        index=index,
        secrets=dict.fromkeys(template.secrets, MASK) if secrets is None else secrets,
    )
    heavy = template.heavy or aggregate.input.size > LARGE_BYTES
    return await aside(lambda: template.evaluate(scope), heavy=heavy)


async def _item(engine: Engine, partition: tuple[str, str], task: str, index: int) -> Json:
    """The map item's value, from its chunk (read once per process: it never changes)."""
    id = documents.items_id(task, index // MAP_CHUNK_ITEMS)
    key = (*partition, id)
    chunk: list[Json] | None = engine.values.get(key)
    if chunk is None:
        found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [id])
        if id not in found:
            raise ItemMissing(f"the map's items {id} are not there")
        payload = Payload.from_doc(found[id].body["items"])
        loaded = await claimcheck.load(engine, payload)
        assert isinstance(loaded, list)
        chunk = loaded
        engine.values.put(key, chunk, claimcheck.weight(payload))
    return chunk[index % MAP_CHUNK_ITEMS]
