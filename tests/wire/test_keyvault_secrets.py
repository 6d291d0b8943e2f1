"""Secrets through the real Key Vault SDK: names, faults."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.adapters.azure.keyvault_secrets import KeyVaultSecrets, secret_name
from orchestrator.ports import SecretNotFound, Throttled, Unavailable
from tests.wire import tls
from tests.wire.http_service import StaticCredential
from tests.wire.keyvault.server import KeyVaultServer

NAME = secret_name("t", "KEY")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tls.certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def vault(certificate: Path) -> AsyncIterator[KeyVaultServer]:
    async with KeyVaultServer(tls.server_context(certificate)) as running:
        yield running


@pytest.fixture
async def secrets(vault: KeyVaultServer, certificate: Path) -> AsyncIterator[KeyVaultSecrets]:
    opened = KeyVaultSecrets(
        vault_url=vault.url,
        credential=StaticCredential(),
        connection_verify=str(certificate),
        verify_challenge_resource=False,  # this vault is not below vault.azure.net
        retry_total=0,
    )
    yield opened
    await opened.close()


# --- names ----------------------------------------------------------------------------------------

texts = st.text(max_size=12) | st.text("ab-_x1AX", max_size=8)


@given(st.tuples(texts, texts), st.tuples(texts, texts))
@example(("a-x-b", "C"), ("a", "B-x-C"))
@example(("a_b", "C"), ("a", "B_C"))
@example(("t", "key"), ("t", "KEY"))
@example(("t" * 200, "K"), ("t" * 201, "K"))
def test_two_secrets_never_share_a_name_in_either_case(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    names = [secret_name(*first), secret_name(*second)]
    for name in names:
        assert re.fullmatch("[0-9A-Za-z-]{1,127}", name)
    assert (first == second) == (names[0].lower() == names[1].lower())


def test_usual_names_can_be_read() -> None:
    assert secret_name("acme", "APIKEY") == "weft-acme-x-APIKEY"
    assert secret_name("acme-eu", "API_KEY") == "weft-acme--eu-x-API--KEY"
    assert secret_name("t", "a") == "weft-t-x--61"


# --- faults ---------------------------------------------------------------------------------------


async def test_a_disabled_secret_is_missing_but_a_missing_role_is_a_fault(
    vault: KeyVaultServer, secrets: KeyVaultSecrets
) -> None:
    vault.set(NAME, "value")
    vault.disabled.add(NAME.lower())
    with pytest.raises(SecretNotFound):
        await secrets.get("t", "KEY")
    vault.fail_next(403, body='{"error": {"code": "Forbidden", "message": "no role"}}')
    with pytest.raises(Unavailable):
        await secrets.get("t", "OTHER")


async def test_throttling_and_outage_are_told_apart_and_not_remembered(
    vault: KeyVaultServer, secrets: KeyVaultSecrets
) -> None:
    vault.set(NAME, "value")
    vault.fail_next(429)
    with pytest.raises(Throttled):
        await secrets.get("t", "KEY")
    vault.fail_next(500)
    with pytest.raises(Unavailable):
        await secrets.get("t", "KEY")
    assert await secrets.get("t", "KEY") == "value"


async def test_a_ping_needs_an_answer_and_no_secret(
    vault: KeyVaultServer, secrets: KeyVaultSecrets
) -> None:
    """Each time anew: an answer that was remembered would say nothing."""
    await secrets.ping()
    vault.fail_next(403, body='{"error": {"code": "Forbidden", "message": "no role"}}')
    with pytest.raises(Unavailable):
        await secrets.ping()


async def test_no_value_is_shown(vault: KeyVaultServer, secrets: KeyVaultSecrets) -> None:
    vault.set(NAME, "hunter2")
    assert await secrets.get("t", "KEY") == "hunter2"
    assert "hunter2" not in repr(secrets)
    with pytest.raises(SecretNotFound) as caught:
        await secrets.get("t", "OTHER")
    assert "hunter2" not in str(caught.value)
