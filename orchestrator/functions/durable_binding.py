"""The `durableClient` binding: how a process learns where its Durable extension listens."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import azure.functions as func

from orchestrator.functions.provider import EngineProvider

CLIENT: Final = "durable_client"
"""Name of the binding, and of the parameter."""

logger = logging.getLogger("orchestrator.functions")


def client_bound(bp: func.Blueprint, provider: EngineProvider) -> Callable[[Any], Any]:
    """Decorator, under the trigger's: each call first tells the provider where the extension is.
    Does nothing where there is no code workflow: a binding alone would load the extension."""
    learn = provider.learn
    if learn is None:
        return lambda fn: fn

    def decorate(fn: Callable[..., Awaitable[Any]]) -> Any:
        @functools.wraps(fn)
        async def bound(*args: Any, **given: Any) -> Any:
            try:
                learn(given.pop(CLIENT))
            except ValueError as error:  # this function may need no client: whoever does is told
                logger.warning("%s", error, extra={"action": "durable.binding"})
            return await fn(*args, **given)

        # The worker looks for a parameter of the binding's name, and refuses any other.
        signature = inspect.signature(fn)
        extra = inspect.Parameter(CLIENT, inspect.Parameter.KEYWORD_ONLY, annotation=str)
        parameters = [*signature.parameters.values(), extra]
        bound.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        bound.__annotations__ = {**fn.__annotations__, CLIENT: str}
        return bp.generic_input_binding(arg_name=CLIENT, type="durableClient")(bound)

    return decorate
