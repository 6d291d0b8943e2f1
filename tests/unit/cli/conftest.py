"""The scripted API server in a thread, and a runner for command lines against it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web
from cli_fake_api import FakeApi, Weft
from typer.testing import CliRunner, Result

from orchestrator.local.cli import app


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    loop = asyncio.new_event_loop()
    started = threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        application = web.Application()
        application.router.add_route("*", "/{rest:.*}", fake.handle)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        fake.url = f"http://{host}:{port}"
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    started.wait()
    yield fake
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


@pytest.fixture
def offline() -> Weft:
    """Runs `weft ARGS` with stdout and stderr apart; a traceback fails the test."""

    def run(*args: str, input: str | bytes | None = None, url: str = "") -> Result:
        env = {"WEFT_URL": url or None, "COLUMNS": None, "NO_COLOR": None}
        result = CliRunner(env=env).invoke(app, list(args), input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def weft(api: FakeApi, offline: Weft) -> Weft:
    """Runs `weft ARGS` against the fake API."""

    def run(*args: str, input: str | bytes | None = None) -> Result:
        return offline(*args, input=input, url=api.url)

    return run
