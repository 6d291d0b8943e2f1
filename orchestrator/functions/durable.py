"""Durable Functions: one orchestrator function per version of a code workflow, and the activity
functions behind all of them.

Imported only where there is a code workflow: the library takes a quarter of a second, and an app
without these functions has no Durable extension that would poll a storage account.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import azure.durable_functions as df

from orchestrator.domain.orchestration_result import failure_text
from orchestrator.engine import code_activity
from orchestrator.functions.durable_replay import DurableReplay
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports import ActivityFailed
from orchestrator.ports_durable import (
    ACTIVITY_FUNCTION,
    ENDED_FUNCTION,
    SUPPORT_FUNCTION,
    OrchestratorFunction,
)


class StepFailed(Exception):
    """Ends an activity function. Raised, not returned, so that Durable knows the step as failed
    and a rewind repeats it; the text holds the failure (`failure_text`)."""


def blueprint(
    provider: EngineProvider, orchestrators: tuple[OrchestratorFunction, ...]
) -> df.Blueprint:
    """The orchestrator functions, and `weft_activity`, `weft_ended`, `weft_support`."""
    bp = df.Blueprint()
    for one in orchestrators:
        bp.function_name(one.name)(
            bp.orchestration_trigger(context_name="context")(_orchestrator(one))
        )

    @bp.function_name(ACTIVITY_FUNCTION)
    @bp.activity_trigger(input_name="request")
    async def weft_activity(request: str) -> str:
        return await _step(provider, code_activity.run, request)

    @bp.function_name(SUPPORT_FUNCTION)
    @bp.activity_trigger(input_name="request")
    async def weft_support(request: str) -> str:
        return await _step(provider, code_activity.support, request)

    @bp.function_name(ENDED_FUNCTION)
    @bp.activity_trigger(input_name="request")
    async def weft_ended(request: str) -> str:
        await code_activity.ended(await provider.get(), _read(request))
        return "null"

    return bp


def _orchestrator(
    one: OrchestratorFunction,
) -> Callable[[df.DurableOrchestrationContext], Generator[Any, Any, Any]]:
    def orchestrator(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
        return one.drive(DurableReplay(context))

    orchestrator.__name__ = orchestrator.__qualname__ = one.name.replace("-", "_")
    return orchestrator


async def _step(provider: EngineProvider, step: Callable[..., Awaitable[str]], request: str) -> str:
    try:
        return await step(await provider.get(), _read(request))
    except ActivityFailed as error:
        raise StepFailed(failure_text(error.failure)) from None


def _read(request: Any) -> dict[str, Any]:
    """Durable takes the quotes off text on some ways, and leaves them on others."""
    while isinstance(request, str):
        request = json.loads(request)
    return request
