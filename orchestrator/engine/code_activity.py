"""What the activity functions of code workflows do: a step of the user's, and Weft's own."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.orchestration_result import MAX_STEP_BYTES, encode_output, step_too_large
from orchestrator.domain.payload import Payload
from orchestrator.domain.redaction import Redactor, redacting
from orchestrator.engine import claimcheck, orchestrations
from orchestrator.engine.core import Engine
from orchestrator.engine.secret_book import SecretBook
from orchestrator.ports import (
    ActivityCall,
    ActivityFailed,
    PayloadNotFound,
    SecretNotFound,
    StoreError,
)


async def run(engine: Engine, request: dict[str, Any]) -> str:
    """One attempt of an activity that a code workflow calls; its output (`encode_output`).

    `request`: activity, input (JSON text), key, timeoutMs, tenant, execution, task, item, attempt
    (1 if absent), traceparent, secrets (`[[path, name], …]`, places in the input). Raises
    `ActivityFailed`.
    """
    given, secrets = await _with_secrets(engine, request)
    redactor = Redactor(secrets)
    call = ActivityCall(
        activity=request["activity"],
        input=given,
        tenant=request["tenant"],
        execution=request["execution"],
        task=request["task"],
        item=request.get("item"),
        attempt=request.get("attempt", 1),
        idempotency_key=request["key"],
        timeout_ms=request["timeoutMs"],
        traceparent=request.get("traceparent", ""),
        last_heartbeat_at=engine.clock.now(),
        redactor=redactor,
    )
    try:
        async with asyncio.timeout(call.timeout_ms / 1000):
            with redacting(redactor):
                output = await engine.activities.run(call)
    except TimeoutError:
        call.cancelled = True
        raise _failed(FailureType.TIMEOUT, f"no result within {call.timeout_ms} ms", True) from None
    except ActivityFailed as error:
        for _, name in request.get("secrets", ()):
            engine.part(SecretBook).doubt(call.tenant, name)
        raise ActivityFailed(redactor.failure(error.failure)) from None
    data = redactor.data(jsonvalues.dumps(output))
    if len(data) > MAX_STEP_BYTES:
        message = step_too_large(f"the output of {call.activity}", len(data))
        raise _failed(FailureType.PAYLOAD_TOO_LARGE, message)
    return encode_output(data.decode())


async def ended(engine: Engine, word: dict[str, Any]) -> None:
    """An instance is about to end (`orchestrations.ended`). Raises `TransportError`."""
    await orchestrations.ended(
        engine, word["tenant"], word["execution"], word["task"], word["item"], word["instance"]
    )


async def support(engine: Engine, request: dict[str, Any]) -> str:
    """What an orchestrator function may not do itself. Raises `ActivityFailed`.

    `{"op": "load", "payload"}`: JSON text of a stored payload; `{"op": "store", "tenant",
    "execution", "text"}`: the stored payload (`Payload.to_doc`, JSON); `{"op": "latest",
    "workflow"}`: the latest version of a code workflow that is deployed.
    """
    operation = request["op"]
    try:
        if operation == "load":
            payload = Payload.from_doc(request["payload"])
            if payload.size > MAX_STEP_BYTES:
                message = step_too_large("the stored payload", payload.size)
                raise _failed(FailureType.PAYLOAD_TOO_LARGE, message)
            return (await claimcheck.read_text(engine, payload)).decode()
        if operation == "store":
            where = (request["tenant"], request["execution"])
            data = request["text"].encode()
            return jsonvalues.dumps(
                (await claimcheck.store(engine, where, "output", data)).to_doc()
            ).decode()
    except (StoreError, PayloadNotFound, OSError) as error:
        raise _failed(
            type(error).__name__, f"the platform could not do it: {error}", True
        ) from None
    versions = engine.code.versions(request["workflow"])
    if not versions:
        raise _failed("UNKNOWN_WORKFLOW", f"no code workflow {request['workflow']} is deployed")
    return str(versions[-1])


async def _with_secrets(engine: Engine, request: dict[str, Any]) -> tuple[Json, list[str]]:
    """The input with the secrets in their places, and the secrets."""
    value: Any = jsonvalues.loads(request["input"])
    found: list[str] = []
    for path, name in request.get("secrets", ()):
        try:
            secret = await engine.part(SecretBook).get(request["tenant"], name)
        except SecretNotFound as error:
            raise _failed("SECRET_NOT_FOUND", str(error)) from None
        except StoreError as error:
            message = f"the secret {name} cannot be read now: {error}"
            raise _failed(type(error).__name__, message, True) from None
        found.append(secret)
        if not path:
            value = secret
            continue
        inside = value
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = secret
    return value, found


def _failed(type: str, message: str, retryable: bool = False) -> ActivityFailed:
    return ActivityFailed(Failure(type=type, message=message, retryable=retryable))
