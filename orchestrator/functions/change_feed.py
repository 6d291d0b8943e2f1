"""Cosmos DB trigger of the `executions` container: the slow path of the outbox.

The feed's checkpoint moves on even if this raises, so the relay catches per document, and the
sweeper alone must be enough.
"""

from __future__ import annotations

import azure.functions as func

from orchestrator.domain.topology import EXECUTIONS, LEASES
from orchestrator.engine import relay
from orchestrator.functions.provider import EngineProvider


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The function `relay`, bound to `provider`'s engine."""
    bp = func.Blueprint()

    # The lease container is Bicep's: data-plane roles cannot create containers.
    @bp.function_name("relay")
    @bp.cosmos_db_trigger(
        arg_name="documents",
        connection="Cosmos",
        database_name="%COSMOS_DATABASE%",
        container_name=EXECUTIONS,
        lease_container_name=LEASES,
        lease_container_prefix="relay",
        create_lease_container_if_not_exists=False,
    )
    async def relay_outbox(documents: func.DocumentList) -> None:
        engine = await provider.get()
        await relay.relay_documents(engine, list(documents))

    return bp
