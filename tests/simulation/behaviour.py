"""What simulated activities do: told by their input, the same in every run.

The output depends on the input alone, so that a run under faults can be compared with one without.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json
from orchestrator.ports import ActivityCall, ActivityFailed
from tests.simulation.loop import sleep

BIG_BYTES = 70 * 1024


async def behave(call: ActivityCall) -> Json:
    """Run one attempt. `do.kind`:

    ok      answers after `ms`
    flaky   fails `times` attempts, then answers
    hang    never answers in the first `times` attempts
    fatal   fails in a way that may not be tried again
    exhaust fails always
    nan     answers what is not JSON
    big     answers more than fits inline
    """
    given: Any = call.input
    do: dict[str, Any] = given["do"]
    kind, times = do["kind"], do.get("times", 0)
    await sleep(do.get("ms", 0) / 1000)
    if kind == "hang" and call.attempt <= times:
        await sleep(10**9)
    if kind == "exhaust" or (kind == "flaky" and call.attempt <= times):
        raise ActivityFailed(Failure(type="Flaky", message=f"attempt {call.attempt}"))
    if kind == "fatal":
        raise ActivityFailed(Failure(type="Fatal", message="no", retryable=False))
    if kind == "nan":
        return {"n": float("nan")}
    text = orjson.dumps(given, option=orjson.OPT_SORT_KEYS)
    number = int.from_bytes(hashlib.sha256(text).digest()[:4], "big") % 1000
    result: dict[str, Any] = {"n": number, "list": list(range(number % 5))}
    if kind == "big":
        result["pad"] = "x" * BIG_BYTES
    return result
