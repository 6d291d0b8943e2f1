"""One attempt to tell of an execution's end: a request to a webhook, or an event to a target.

The request goes through the http activity, so that there is one HTTP client and one set of egress
rules; the event takes the way of those that `publish` tasks send.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.payload import Payload
from orchestrator.domain.redaction import NOTHING, Redactor, redacting
from orchestrator.domain.sensitive import masked
from orchestrator.domain.workflow import NotifySpec
from orchestrator.engine import claimcheck, publish, telemetry
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.attempt import HTTP_ACTIVITY
from orchestrator.engine.core import Engine
from orchestrator.engine.egress import EgressBook
from orchestrator.engine.secret_book import SecretBook
from orchestrator.engine.sensitive import Flows
from orchestrator.ports import (
    ActivityCall,
    ActivityFailed,
    PayloadNotFound,
    SecretNotFound,
    StoreError,
)

SEND_MS = 15_000
"""One attempt may take this long. The lease is longer, so nothing has to renew it."""
CONFLICT = 409
"""Another request of ours may be in the receiver's works: tried again, unlike other 4xx."""
REDIRECTS = range(300, 400)
"""Not followed: a POST would become a GET or lose its signature, and some page answer 200."""


async def send(
    engine: Engine, aggregate: Aggregate, spec: NotifySpec, doc: dict[str, Any]
) -> Failure | None:
    """One request; how it failed, or None. Never raises but what ends the process."""
    try:
        async with asyncio.timeout(SEND_MS / 1000):
            body = await _body(engine, aggregate, spec, doc)
            if spec.target:
                await _publish(engine, aggregate, spec, doc, body)
                return None
            call = await _call(engine, aggregate, spec, doc, body)
            with redacting(call.redactor):
                answer: Json = await engine.activities.run(call)
    except TimeoutError:
        return Failure(type=FailureType.TIMEOUT, message=f"no answer within {SEND_MS} ms")
    except ActivityFailed as error:
        if spec.secret is not None:
            engine.part(SecretBook).doubt(aggregate.partition[0], spec.secret)
        return error.failure
    except SecretNotFound as error:
        return Failure(type="SECRET_NOT_FOUND", message=str(error), retryable=False)
    except (StoreError, PayloadNotFound, OSError) as error:
        return Failure(type=type(error).__name__, message="the platform could not send it")
    status = answer.get("status") if isinstance(answer, dict) else None
    if status == CONFLICT:
        return Failure(type="HttpClientError", message="the receiver answered 409 Conflict")
    if status in REDIRECTS:
        text = f"the receiver answered {status}; a webhook is not redirected, name its last address"
        return Failure(type="HttpRedirectRefused", message=text, retryable=False)
    return None


async def _body(
    engine: Engine, aggregate: Aggregate, spec: NotifySpec, doc: dict[str, Any]
) -> dict[str, Any]:
    """An output without its sensitive parts: who is told need not be who may operate it."""
    body = {**doc["about"]}
    if spec.include_output:
        kept = doc.get("output")
        output = await claimcheck.load(engine, Payload.from_doc(kept)) if kept else None
        body["output"] = masked(engine.part(Flows).of(aggregate).output, output)
    return body


async def _publish(
    engine: Engine,
    aggregate: Aggregate,
    spec: NotifySpec,
    doc: dict[str, Any],
    body: dict[str, Any],
) -> None:
    """As an event, like that of a `publish` task of the execution: with its hops, so that workflows
    that start each other by the events of their ends come to an end, too."""
    tenant = aggregate.partition[0]
    await publish.deliver(
        engine,
        spec.target,
        {"type": f"weft.{body['type']}", "subject": aggregate.execution, "data": body},
        tenant=tenant,
        id=body["id"],
        source=f"/weft/{tenant}/{aggregate.workflow.name}",
        time=doc["createdAt"],
        traceparent=telemetry.traceparent(aggregate.traceparent),
        hops=aggregate.header.get("hops", 0),
    )


async def _call(
    engine: Engine,
    aggregate: Aggregate,
    spec: NotifySpec,
    doc: dict[str, Any],
    body: dict[str, Any],
) -> ActivityCall:
    at = str(engine.clock.now() // 1000)
    headers = {"Weft-Event-Id": body["id"], "Weft-Timestamp": at}
    redactor = NOTHING
    if spec.secret is not None:
        secret = await engine.part(SecretBook).get(aggregate.partition[0], spec.secret)
        redactor = Redactor([secret])
        headers["Weft-Signature"] = "v1=" + signature(secret, at, jsonvalues.dumps(body))
    return ActivityCall(
        activity=HTTP_ACTIVITY,
        input={
            "method": "POST",
            "url": spec.url,
            "headers": headers,
            "body": body,
            "successCodes": ["200-399", CONFLICT],  # judged by `_send`
        },
        tenant=aggregate.partition[0],
        execution=aggregate.execution,
        task=f"notify.{doc['key']}",
        item=None,
        attempt=doc["attempt"],
        idempotency_key=body["id"],
        timeout_ms=SEND_MS,
        traceparent=telemetry.traceparent(aggregate.traceparent),
        last_heartbeat_at=engine.clock.now(),
        egress=await engine.part(EgressBook).of(aggregate.partition[0]),
        redactor=redactor,
    )


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Hex of HMAC-SHA-256 over `{timestamp}.{body}`; the body is the bytes that are sent."""
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
