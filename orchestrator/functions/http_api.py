"""The whole HTTP API: the routes of every module, in the order in which they are documented.

The one list of them: `app` makes functions of it, `http_operations` describes it, and the tests of
the API call it.
"""

from __future__ import annotations

from typing import Final

from orchestrator.functions import (
    http_archive,
    http_audit,
    http_breakers,
    http_bulk,
    http_code,
    http_control,
    http_deadletters,
    http_egress,
    http_events,
    http_executions,
    http_grants,
    http_history,
    http_limits,
    http_schedules,
    http_signals,
    http_triggers,
    http_workflows,
)
from orchestrator.functions.http_routes import Route

TABLES: Final = (
    http_workflows.ROUTES,
    http_executions.ROUTES,
    http_history.ROUTES,
    http_control.ROUTES,
    http_deadletters.ROUTES,
    http_schedules.ROUTES,
    http_signals.ROUTES,
    http_breakers.ROUTES,
    http_bulk.ROUTES,
    http_code.ROUTES,
    http_triggers.ROUTES,
    http_events.ROUTES,
    http_audit.ROUTES,
    http_archive.ROUTES,
    http_grants.ROUTES,
    http_egress.ROUTES,
    http_limits.ROUTES,
)
"""All but those of `http_operations`, which describes them."""


def routes() -> list[Route]:
    """The routes of `TABLES`, in order."""
    return [route for table in TABLES for route in table.all]
