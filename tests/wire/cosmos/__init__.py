"""A Cosmos DB endpoint for tests: small, in memory, over plain http, as awkward as the real one.

It follows the REST API of Azure Cosmos DB for NoSQL as the Python SDK 4.17 uses it, and only what
`orchestrator/adapters/azure` needs; anything else is refused loudly (501 or 400). It proves our use
of the SDK and our reading of the protocol, not the service. Signatures are not checked.

    server     requests to answers: headers, statuses, the account, containers, provisioning
    documents  what is stored; single writes, all-or-nothing batches, ETags, time to live
    feeds      queries over one partition or range, and the change feed
    sql        the query shapes that our adapter sends, and no others
    ranges     effective partition keys, physical partitions, splits
    faults     what can be made to go wrong
    charges    the estimate of request units
"""

from tests.wire.cosmos.faults import Fault
from tests.wire.cosmos.server import CosmosServer
from tests.wire.cosmos.state import Account

__all__ = ["Account", "CosmosServer", "Fault"]
