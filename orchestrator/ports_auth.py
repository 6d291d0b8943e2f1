"""The seam between the API and whoever proves identities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from orchestrator.domain.authz import Principal
from orchestrator.domain.errors import UnauthenticatedError


class Authenticator(Protocol):
    """Says who sent a request."""

    @property
    def warning(self) -> str:
        """What an operator must know about it (nobody is asked who they are); empty if nothing."""
        ...

    async def identify(self, headers: Mapping[str, str]) -> Principal:
        """The sender of a request with these headers (names in lower case). Raises
        `UnauthenticatedError`, and `UnavailableError` if that cannot be told now."""
        ...


class Closed:
    """Nobody is let in: what an engine has that was built without an authenticator."""

    warning = ""

    async def identify(self, headers: Mapping[str, str]) -> Principal:
        """Raises `UnauthenticatedError`."""
        raise UnauthenticatedError("this process has no way to tell who asks; see docs/security.md")
