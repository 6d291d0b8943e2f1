"""A worker process of the supervisor: `python -m orchestrator.local.host`. Not for people; they use
`weft up`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from activities.errors import RegistrationError
from orchestrator.local.host import console_log
from orchestrator.local.host.errors import HostError
from orchestrator.local.host.host import ALL_ROLES, WORKER_ROLES
from orchestrator.local.host.serve import serve
from orchestrator.local.host.supervisor import READY
from orchestrator.ports import StoreError, TransportError
from orchestrator.settings import SettingsError, load_settings


def main(argv: list[str] | None = None) -> int:
    """Serve the inherited socket until SIGTERM or until the supervisor is gone."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator.local.host")
    parser.add_argument("--data", type=Path, required=True, help="directory of all state")
    parser.add_argument("--worker", type=int, required=True, help="0 runs timers and feed too")
    parser.add_argument("--socket", type=int, required=True, help="inherited listening socket")
    parser.add_argument("--control", type=int, required=True, help="inherited end of a socket pair")
    arguments = parser.parse_args(argv)
    # Ctrl-C reaches the whole process group; the supervisor then sends SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        settings = load_settings(
            {**os.environ, "WEFT_BACKEND": "local", "WEFT_DATA_DIR": str(arguments.data)}
        )
        console_log.start(f"worker {arguments.worker}", settings.log_form)
        return asyncio.run(
            _work(
                arguments.data,
                socket.socket(fileno=arguments.socket),
                socket.socket(fileno=arguments.control),
                ALL_ROLES if arguments.worker == 0 else WORKER_ROLES,
            )
        )
    except (HostError, RegistrationError, SettingsError, StoreError, TransportError) as error:
        # The user's own code, settings or files: what is wrong, not where we were.
        sys.stderr.write(f"worker {arguments.worker} cannot start: {error}\n")
        return 1


async def _work(
    data: Path, sock: socket.socket, control: socket.socket, roles: frozenset[str]
) -> int:
    stop = asyncio.Event()
    reader, writer = await asyncio.open_connection(sock=control)

    async def watch() -> None:
        await reader.read()  # ends when the supervisor does
        stop.set()

    watching = asyncio.create_task(watch(), name="watch-supervisor")
    try:
        return await serve(
            data=data,
            sock=sock,
            on_ready=lambda _url: writer.write(READY),
            roles=roles,
            stop=stop,
            signals=(signal.SIGTERM,),
        )
    finally:
        watching.cancel()
        writer.close()


if __name__ == "__main__":
    sys.exit(main())
