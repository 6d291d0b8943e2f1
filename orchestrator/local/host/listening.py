"""The listening socket, made before anything slow is imported or opened."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Final

from orchestrator.local.host.errors import OpenToOthers, PortInUse

BACKLOG: Final = 1024


def check_private(host: str, *, anybody: bool) -> None:
    """`anybody`: whoever connects may do everything. Raises `OpenToOthers` if that were others than
    this machine."""
    try:
        private = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        private = False  # a name: it may mean anything, and tomorrow something else
    if anybody and not private:
        raise OpenToOthers(host)


def url(host: str, port: int) -> str:
    """The address as clients write it."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound, listening TCP socket; port 0 takes a free one. Raises `PortInUse`, also for a port
    that this user may not have."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Only skips TIME_WAIT of an earlier run; a listener that lives is still refused.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise PortInUse(port, host) from error
        raise
    sock.setblocking(False)
    return sock
