"""Cosmos DB triggers of the `executions` container: the outbox's slow path, and the read model.

Two functions with a lease prefix each, so that neither waits for the other. A feed's checkpoint
moves on even if its function raises, so both catch per document. The sweeper alone must be enough
for the relay; what the projection has missed for good, a rebuild mends.
"""

from __future__ import annotations

from typing import Any, Final

import azure.functions as func

from orchestrator.domain.topology import EXECUTIONS, LEASES
from orchestrator.engine import project, relay
from orchestrator.functions.provider import EngineProvider

FEED: Final[dict[str, Any]] = {
    "arg_name": "documents",
    "connection": "Cosmos",
    "database_name": "%COSMOS_DATABASE%",
    "container_name": EXECUTIONS,
    # The lease container is Bicep's: data-plane roles cannot create containers.
    "lease_container_name": LEASES,
    "create_lease_container_if_not_exists": False,
}
FROM_THE_BEGINNING: Final[dict[str, Any]] = {
    # Executions older than the first deployment of the function belong to the lists too. (A flag;
    # the decorator's annotation says time of day.)
    "start_from_beginning": True,
    # How far lists may be behind on a quiet platform. The default, 5 s, is enough for the relay,
    # which only finds something when the fast path failed.
    "feed_poll_delay": 1_000,
}


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The functions `relay` and `project_visibility`, bound to `provider`'s engine."""
    bp = func.Blueprint()

    @bp.function_name("relay")
    @bp.cosmos_db_trigger(**FEED, lease_container_prefix="relay")
    async def relay_outbox(documents: func.DocumentList) -> None:
        engine = await provider.get()
        await relay.relay_documents(engine, list(documents))

    @bp.function_name("project_visibility")
    @bp.cosmos_db_trigger(**FEED, **FROM_THE_BEGINNING, lease_container_prefix="visibility")
    async def project_visibility(documents: func.DocumentList) -> None:
        engine = await provider.get()
        await project.project_documents(engine, list(documents))

    return bp
