"""Secrets: given to their tenant only, never readable by others."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract_support import SECRETS

from orchestrator.adapters.local.env_secrets import EnvSecrets, SecretsFileError
from orchestrator.ports import SecretNotFound


@pytest.mark.parametrize("adapter", SECRETS)
async def test_a_secret_is_its_tenants_only(adapter: str, tmp_path: Path) -> None:
    values = {"t": {"KEY": "s3cr3t-Ω/+=", "EMPTY": ""}}
    async with SECRETS[adapter](tmp_path, values) as secrets:
        assert await secrets.get("t", "KEY") == "s3cr3t-Ω/+="
        assert await secrets.get("t", "EMPTY") == ""
        for tenant, name in (("t2", "KEY"), ("t", "OTHER"), ("", "KEY"), ("t", ""), ("T", "KEY")):
            with pytest.raises(SecretNotFound):
                await secrets.get(tenant, name)


async def test_a_variable_never_belongs_to_two_tenants() -> None:
    """`WEFT_SECRET_A_B_C`: tenant a's `b_c`, not tenant a_b's or a-b's `c`."""
    secrets = EnvSecrets({"WEFT_SECRET_A_B_C": "v"})
    assert await secrets.get("a", "b_c") == "v"
    for tenant in ("a_b", "a-b", "A", "ａ"):
        with pytest.raises(SecretNotFound):
            await secrets.get(tenant, "c" if len(tenant) > 1 else "b_c")


async def test_the_file_serves_any_tenant_and_must_be_private(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    path.write_text('{"a_b": {"c": "from file"}, "t": {"k": "file"}}')
    for mode in (0o640, 0o604, 0o620, 0o601):
        path.chmod(mode)
        with pytest.raises(SecretsFileError, match="chmod 600"):
            EnvSecrets({}, path)
    path.chmod(0o600)
    secrets = EnvSecrets({"WEFT_SECRET_T_K": "environment"}, path)
    assert await secrets.get("a_b", "c") == "from file"
    assert await secrets.get("t", "k") == "environment"


@pytest.mark.parametrize("text", ["", "[]", '{"t": "hunter2"}', '{"t": {"k": 1}}', "hunter2"])
def test_a_malformed_file_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secrets.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SecretsFileError) as caught:
        EnvSecrets({}, path)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SecretsFileError):
        EnvSecrets({}, tmp_path / "missing.json")
