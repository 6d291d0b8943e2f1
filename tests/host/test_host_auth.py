"""The embedded host and who may reach it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.local.host import OpenToOthers, up
from orchestrator.local.host.host import ALL_ROLES
from orchestrator.local.host.listening import check_private, listening_socket, url
from orchestrator.local.host.serve import serve
from tests.support.identities import bearer

AUTH = ("WEFT_AUTH_LOCAL", "WEFT_AUTH_ISSUERS", "WEFT_AUTH_EASY")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AUTH:
        monkeypatch.delenv(name, raising=False)


@contextlib.asynccontextmanager
async def served(data: Path, sock: socket.socket) -> AsyncIterator[httpx.AsyncClient]:
    """The platform in this process."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    running = asyncio.create_task(
        serve(
            data=data,
            sock=sock,
            on_ready=ready.set_result,
            roles=ALL_ROLES,
            stop=stop,
            signals=(),
        )
    )
    await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        await running
    port = sock.getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        yield client
    stop.set()
    await running


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "192.168.1.2", "weft.test", ""])
def test_without_authentication_only_this_machine_connects(host: str) -> None:
    with pytest.raises(OpenToOthers, match="nobody would be asked"):
        check_private(host, anybody=True)
    check_private(host, anybody=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_is_this_machine(host: str) -> None:
    check_private(host, anybody=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_up_refuses_another_address_before_anything_is_opened(tmp_path: Path, workers: int) -> None:
    def never(url: str) -> None:
        raise AssertionError("served")

    with pytest.raises(OpenToOthers):
        up(tmp_path / "data", 0, workers, never, address="0.0.0.0")
    assert not (tmp_path / "data").exists()


async def test_a_worker_refuses_an_inherited_socket_that_is_open(tmp_path: Path) -> None:
    sock = listening_socket("0.0.0.0", 0)
    with pytest.raises(OpenToOthers):
        async with served(tmp_path, sock):
            raise AssertionError("served")
    assert sock.fileno() == -1


async def test_with_authentication_it_listens_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_AUTH_LOCAL", "true")
    async with served(tmp_path, listening_socket("0.0.0.0", 0)) as client:
        got = await client.get("/v1/workflows")
        assert (got.status_code, got.json()["error"]["code"]) == (401, "TOKEN_MISSING")
        got = await client.get("/v1/workflows", headers=bearer(tmp_path, role="viewer"))
        assert got.status_code == 200
        got = await client.delete("/v1/workflows/x", headers=bearer(tmp_path, role="viewer"))
        assert got.status_code == 403
        got = await client.get("/v1/workflows", headers={"X-MS-CLIENT-PRINCIPAL": "e30="})
        assert got.status_code == 401
        assert (await client.get("/live")).status_code == 200


async def test_the_development_identity_warns_in_the_log_and_in_health(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with served(tmp_path, listening_socket("127.0.0.1", 0)) as client:
            assert (await client.get("/v1/workflows")).status_code == 200
            check: Any = (await client.get("/health")).json()["checks"]["identity"]
            rebound = await client.get("/v1/workflows", headers={"host": "evil.test"})
            page = await client.get("/v1/workflows", headers={"origin": "https://evil.test"})
            tried = await client.get("/v1/workflows", headers=bearer(tmp_path, tenant="acme"))
    assert "development identity" in caplog.text
    assert check["ok"] is True
    assert "development identity" in check["detail"]
    assert (rebound.status_code, page.status_code, tried.status_code) == (401, 401, 200)


def test_addresses_as_clients_write_them() -> None:
    assert url("::1", 80) == "http://[::1]:80"
    assert url("127.0.0.1", 80) == "http://127.0.0.1:80"
