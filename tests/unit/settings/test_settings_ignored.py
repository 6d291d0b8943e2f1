"""A misspelt setting has no effect and says so, with the name that was meant and no value."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path

import pytest

import function_app
from orchestrator.settings import SettingsError
from orchestrator.settings_ignored import ignored, known, tell


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("WEFT_LEESE_MS", "WEFT_LEASE_MS"),
        ("WEFT_BACKNED", "WEFT_BACKEND"),
        ("weft_lease_ms", "WEFT_LEASE_MS"),  # the prefix is not seen in lower case
        ("WEFT_LIMIT_START_PER_SECOND", "WEFT_LIMIT_STARTS_PER_SECOND"),
        ("KeyVault__vaultUrl", "KeyVault__vaultUri"),
        ("Payloads__blobserviceuri", "Payloads__blobServiceUri"),
    ],
)
def test_the_nearest_name_is_told(name: str, meant: str) -> None:
    assert ignored([name]) == [f'no setting is called {name}; did you mean "{meant}"?']


def test_a_name_that_is_like_no_other_is_told_alone() -> None:
    assert ignored(["WEFT_QQQQQQQQQQQQQQQQQQQQQ"]) == [
        "no setting is called WEFT_QQQQQQQQQQQQQQQQQQQQQ"
    ]


@pytest.mark.parametrize(
    "name",
    [
        *sorted(known()),
        "WEFT_Lease_Ms",
        "WEFT_SECRET_ACME_KEY",
        "PATH",
        "Cosmos__tenantId",  # the extension's
        "AZURE_TENANT_ID",
    ],
)
def test_what_somebody_reads_is_not_told(name: str) -> None:
    assert ignored([name]) == []


def test_it_is_told_once_and_without_its_value(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        tell({"WEFT_LEASE_MSS": "hush"})
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "WEFT_LEASE_MS" in record.getMessage()
    assert "hush" not in caplog.text


async def test_the_functions_app_tells_even_if_it_cannot_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FUNCTIONS_WORKER_RUNTIME", "python")
    monkeypatch.setenv("WEFT_BACKENT", "azure")
    monkeypatch.delenv("WEFT_BACKEND", raising=False)
    with pytest.raises(SettingsError, match="WEFT_BACKEND: missing"):
        await function_app.build()
    assert 'no setting is called WEFT_BACKENT; did you mean "WEFT_BACKEND"?' in caplog.text


def test_the_embedded_platform_tells_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEFT_SILENSE_MS", "1000")
    up = importlib.import_module("orchestrator.local.host.up")  # the package has a function `up`
    monkeypatch.setattr(up.console_log, "start", lambda *_, **__: None)

    class Stopped(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(up, "Supervisor", stop)
    with pytest.raises(Stopped):
        up.up(tmp_path, 0, 2, lambda _: None)
    assert "WEFT_SILENCE_MS" in caplog.text
