"""Secrets through the real Key Vault SDK: names, memory, faults."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.adapters.azure.keyvault_secrets import (
    KEEP_MISSING_MS,
    KEEP_MS,
    KeyVaultSecrets,
    secret_name,
)
from orchestrator.ports import SecretNotFound, Throttled, Unavailable
from tests.wire import tls
from tests.wire.http_service import StaticCredential
from tests.wire.keyvault.server import KeyVaultServer

NAME = secret_name("t", "KEY")


class Clock:
    """Stands still unless told."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        return self.time

    async def sleep(self, ms: int) -> None:
        self.time += ms


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tls.certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def vault(certificate: Path) -> AsyncIterator[KeyVaultServer]:
    async with KeyVaultServer(tls.server_context(certificate)) as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def secrets(
    vault: KeyVaultServer, certificate: Path, clock: Clock
) -> AsyncIterator[KeyVaultSecrets]:
    opened = KeyVaultSecrets(
        vault_url=vault.url,
        credential=StaticCredential(),
        clock=clock,
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


# --- memory ---------------------------------------------------------------------------------------


async def test_a_value_is_asked_for_once_in_its_time_and_rotation_is_noticed(
    vault: KeyVaultServer, secrets: KeyVaultSecrets, clock: Clock
) -> None:
    vault.set(NAME, "old")
    got = await asyncio.gather(*(secrets.get("t", "KEY") for _ in range(50)))
    assert set(got) == {"old"}
    asked = len(vault.requests)
    assert asked == 2  # the first request of a client is answered with a challenge
    vault.replace(NAME, "new")
    clock.time = KEEP_MS - 1
    assert await secrets.get("t", "KEY") == "old"
    assert len(vault.requests) == asked
    clock.time = KEEP_MS
    assert await secrets.get("t", "KEY") == "new"
    assert len(vault.requests) == asked + 1


async def test_a_missing_secret_is_remembered_briefly(
    vault: KeyVaultServer, secrets: KeyVaultSecrets, clock: Clock
) -> None:
    for _ in range(3):
        with pytest.raises(SecretNotFound):
            await secrets.get("t", "KEY")
    assert len(vault.requests) == 2
    vault.set(NAME, "value")
    clock.time = KEEP_MISSING_MS
    assert await secrets.get("t", "KEY") == "value"


async def test_one_who_gives_up_does_not_take_the_others_answer(
    vault: KeyVaultServer, secrets: KeyVaultSecrets
) -> None:
    vault.set(NAME, "value")
    impatient = asyncio.create_task(secrets.get("t", "KEY"))
    patient = asyncio.create_task(secrets.get("t", "KEY"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == "value"


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
