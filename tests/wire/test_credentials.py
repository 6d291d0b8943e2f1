"""The one credential of a process."""

from __future__ import annotations

from typing import Any

import pytest
from azure.identity.aio import ChainedTokenCredential, ManagedIdentityCredential

from orchestrator.adapters.azure.credentials import make_credential


async def test_in_azure_only_the_managed_identity_is_asked() -> None:
    credential: Any = make_credential(managed_identity=True, client_id="some-id")
    assert isinstance(credential, ManagedIdentityCredential)
    await credential.close()


async def test_a_developer_is_whoever_is_signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_ID", "x")  # alone it is no service principal
    credential: Any = make_credential(managed_identity=False)
    assert isinstance(credential, ChainedTokenCredential)
    names = [type(link).__name__ for link in credential.credentials]
    assert names == ["EnvironmentCredential", "AzureDeveloperCliCredential", "AzureCliCredential"]
    await credential.close()
