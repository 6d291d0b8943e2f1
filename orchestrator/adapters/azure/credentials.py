"""The one credential of a process, shared by all clients.

Each credential keeps its own token cache and HTTP session: one per client would fetch four tokens
where one does, and leak as many sessions.
"""

from __future__ import annotations

from azure.core.credentials_async import AsyncTokenCredential
from azure.identity.aio import (
    AzureCliCredential,
    AzureDeveloperCliCredential,
    ChainedTokenCredential,
    EnvironmentCredential,
    ManagedIdentityCredential,
)


def make_credential(*, managed_identity: bool, client_id: str = "") -> AsyncTokenCredential:
    """A credential; its owner must `close()` it. No network is touched before the first token.

    In Azure only the managed identity is asked: a chain would hide a missing role behind "no
    credential worked". On a developer's machine: a service principal in the environment, else
    whoever is signed in with `az` or `azd`. Nowhere is an account key needed.
    """
    if managed_identity:
        return ManagedIdentityCredential(client_id=client_id or None)
    return ChainedTokenCredential(
        EnvironmentCredential(), AzureDeveloperCliCredential(), AzureCliCredential()
    )
