"""What stops the host from starting, each with what to change."""

from __future__ import annotations

from collections.abc import Sequence


class HostError(Exception):
    """Base: the host cannot start."""


class IndexingError(HostError):
    """The function app would be refused by the real Functions host or worker. `problems` has every
    one, each naming its function."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class HostJsonError(HostError):
    """`host.json` is missing, unreadable, or asks for what this host cannot do."""


class OpenToOthers(HostError):
    """Nobody would be asked who they are, and others than this machine could connect."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"at {host} others could connect, and nobody would be asked who they are; set "
            "WEFT_AUTH_ISSUERS, or WEFT_AUTH_LOCAL=true for tokens of `weft token`, or listen at "
            "127.0.0.1 (docs/security.md)"
        )


class PortInUse(HostError):
    """Somebody listens on the port already. `port` is the one that was asked for."""

    def __init__(self, port: int, host: str) -> None:
        super().__init__(
            f"port {port} on {host} is in use; stop what listens there or choose another port"
        )
        self.port = port
        self.host = host
