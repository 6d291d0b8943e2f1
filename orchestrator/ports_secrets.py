"""The seam to where secrets are kept."""

from __future__ import annotations

from typing import Protocol


class Secrets(Protocol):
    """Named secrets of a tenant. Values never leave the worker."""

    async def get(self, tenant: str, name: str) -> str:
        """As it is now: nothing is remembered here. Raises `SecretNotFound`, `Throttled`,
        `Unavailable`."""
        ...


class SecretNotFound(Exception):
    """No such secret for this tenant."""
