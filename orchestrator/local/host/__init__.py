"""The embedded host: fires the triggers of the same FunctionApp that Azure runs.

`up` is what the command line calls; `LocalHost` is one process's host, for tests and embedding.
"""

from __future__ import annotations

from orchestrator.local.host.errors import HostError, HostJsonError, IndexingError, PortInUse
from orchestrator.local.host.host import ALL_ROLES, WORKER_ROLES, HostOptions, LocalHost
from orchestrator.local.host.up import up

__all__ = [
    "ALL_ROLES",
    "WORKER_ROLES",
    "HostError",
    "HostJsonError",
    "HostOptions",
    "IndexingError",
    "LocalHost",
    "PortInUse",
    "up",
]
