"""The embedded host: fires the triggers of the same FunctionApp that Azure runs.

`up` is what the command line calls. The rest is in the modules: `host.LocalHost` is one process's
host, for tests and embedding. This file imports no more than `up` needs: a supervisor starts its
workers first, and a taken port is told before anything slow is imported.
"""

from __future__ import annotations

from orchestrator.local.host.errors import (
    HostError,
    HostJsonError,
    IndexingError,
    OpenToOthers,
    PortInUse,
)
from orchestrator.local.host.up import up

__all__ = ["HostError", "HostJsonError", "IndexingError", "OpenToOthers", "PortInUse", "up"]
