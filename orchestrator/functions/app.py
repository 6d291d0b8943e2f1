"""Puts the app together: every blueprint, bound to one provider.

`function_app.py` calls it for Azure; the embedded host and the tests call it with their own
provider, so that all of them run the same functions.
"""

from __future__ import annotations

import azure.functions as func

from orchestrator.functions import (
    change_feed,
    event_grid,
    http_api,
    http_operations,
    queue_deadletter,
    queue_events,
    queue_orchestration,
    queue_tasks,
    timers,
)
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports_durable import OrchestratorFunction


def compose(
    provider: EngineProvider, orchestrators: tuple[OrchestratorFunction, ...] = ()
) -> func.FunctionApp:
    """A new app with all functions. Builds nothing else: `provider` is first asked by a trigger.
    `orchestrators`: the code workflows; without one nothing of Durable Functions is there."""
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    for routes in (*http_api.TABLES, http_operations.ROUTES):
        app.register_functions(routes.blueprint(provider))
    for triggers in (
        queue_orchestration,
        queue_tasks,
        queue_events,
        queue_deadletter,
        event_grid,
        change_feed,
        timers,
    ):
        app.register_functions(triggers.blueprint(provider))
    if orchestrators:
        # Imported here: the library takes a quarter of a second.
        from orchestrator.functions import durable

        app.register_functions(durable.blueprint(provider, orchestrators))
    return app
