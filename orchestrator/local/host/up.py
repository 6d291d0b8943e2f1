"""`weft up`: the platform on this machine, in one process or several, until a signal."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

from orchestrator import settings_ignored
from orchestrator.local.host import console_log
from orchestrator.local.host.listening import check_private, listening_socket, url
from orchestrator.local.host.supervisor import Supervisor, child_command
from orchestrator.settings import load_settings

ADDRESS = "127.0.0.1"
"""Nobody is asked who they are in the embedded mode as it comes, so only this machine connects."""


def up(
    data: Path,
    port: int,
    workers: int,
    on_ready: Callable[[str], None],
    *,
    address: str = ADDRESS,
) -> int:
    """Run until SIGTERM or SIGINT; the exit code (0 after a clean stop, 1 after a failure that the
    log explains).

    `data`: directory of all state, created if missing. `port` 0 takes a free one. `on_ready(url)`
    is called once everything serves. `address`: where to listen. Before anything is opened, raises
    `OpenToOthers` if others could connect while nobody is asked who they are, and `PortInUse`; then
    `IndexingError` and `HostJsonError` for an app or `host.json` that the real host would refuse,
    `SettingsError`, and `ValueError` for fewer than one worker."""
    if workers < 1:
        raise ValueError("workers must be at least 1")
    settings = load_settings({**os.environ, "WEFT_BACKEND": "local", "WEFT_DATA_DIR": str(data)})
    check_private(address, anybody=settings.auth_development)
    sock = listening_socket(address, port)
    console_log.start(form=settings.log_form)
    settings_ignored.tell(os.environ)
    if workers == 1:
        # Imported here: a supervisor runs no functions and needs no engine.
        from orchestrator.local.host.host import ALL_ROLES
        from orchestrator.local.host.serve import serve

        return asyncio.run(serve(data=data, sock=sock, on_ready=on_ready, roles=ALL_ROLES))
    return asyncio.run(_supervise(data, sock, workers, on_ready))


async def _supervise(
    data: Path, sock: socket.socket, workers: int, on_ready: Callable[[str], None]
) -> int:
    host, port = sock.getsockname()[:2]
    try:
        supervisor = Supervisor(child_command(data), workers, sock)
        return await supervisor.run(lambda: on_ready(url(host, port)))
    finally:
        sock.close()
