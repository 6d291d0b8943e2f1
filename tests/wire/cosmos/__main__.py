"""`python -m tests.wire.cosmos --port N`: the endpoint on its own, for several client processes.

Creates the containers of `topology.CONTAINERS` in the database given, prints one line with the
endpoint, and runs until it is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

from orchestrator.adapters.azure.cosmos_containers import definitions
from tests.wire.cosmos import CosmosServer


async def _run(port: int, database: str) -> None:
    async with CosmosServer(port=port) as server:
        server.account.create(database, *definitions())
        sys.stdout.write(f"{server.endpoint}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire.cosmos")
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--database", default="weft")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(options.port, options.database))


if __name__ == "__main__":
    main()
