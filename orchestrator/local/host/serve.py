"""One process of the embedded platform: engine, app and host, until a signal or a fault ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator import bootstrap, bootstrap_code
from orchestrator.engine.core import Engine
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host import host_json
from orchestrator.local.host.host import HostOptions, LocalHost
from orchestrator.local.host.listening import check_private
from orchestrator.ports import Receiver
from orchestrator.settings import load_settings

logger = logging.getLogger("orchestrator.local.host")

HOST_JSON: Final = Path(__file__).parents[3] / "host.json"
"""Beside `function_app.py`, where the real host looks."""
DEFAULT_SETTINGS: Final = {"COSMOS_DATABASE": "weft"}
"""App settings that only name things of the cloud."""
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
FORCED_EXIT: Final = 130


async def serve(
    *,
    data: Path,
    sock: socket.socket,
    on_ready: Callable[[str], None],
    roles: frozenset[str],
    stop: asyncio.Event | None = None,
    signals: Sequence[signal.Signals] = STOPPING,
) -> int:
    """Build the engine and the app over `data` (created if missing), then `run` them; the exit
    code. `sock`: a listening socket, taken over."""
    code = bootstrap_code.load()
    try:
        engine = await bootstrap.build(
            load_settings({**os.environ, "WEFT_BACKEND": "local", "WEFT_DATA_DIR": str(data)}),
            code=code.workflows,
            orchestrations=code.hub,
        )
    except BaseException:
        sock.close()
        raise

    async def built() -> Engine:
        return engine

    provider = EngineProvider(built, learn=code.hub.learn if code.hub else None)
    await provider.get()
    address = sock.getsockname()[0]
    try:
        # Asked here too: this process may have inherited a socket that others chose.
        check_private(address, anybody=bool(engine.authenticator.warning))
        host = LocalHost(
            compose(provider, code.orchestrators),
            provider=provider,
            broker=_receiver(engine),
            store=engine.store,
            clock=engine.clock,
            host_json=host_json.load(HOST_JSON) if HOST_JSON.exists() else host_json.WEFT,
            options=HostOptions(
                address=address,
                roles=roles,
                data=data,
                settings={**DEFAULT_SETTINGS, **os.environ},
            ),
            sock=sock,
        )
    except BaseException:
        sock.close()
        await provider.close()
        raise
    spare_the_collector()
    return await run(host, on_ready=on_ready, stop=stop, signals=signals)


def spare_the_collector() -> None:
    """Keep what start-up made, and what lives as long as the process, out of all later garbage
    collections: a full one walks all of it, some 50 ms in which no message moves (Python 3.11)."""
    gc.collect()
    gc.freeze()


async def run(
    host: LocalHost,
    *,
    on_ready: Callable[[str], None],
    stop: asyncio.Event | None = None,
    signals: Sequence[signal.Signals] = STOPPING,
) -> int:
    """Start `host`, call `on_ready(url)` once every trigger is served, stop cleanly on one of
    `signals` or `stop`. The exit code: 1 if a listener died, which the log explains."""
    stopping = stop or asyncio.Event()
    with _caught(signals, stopping):
        try:
            await host.start()
            on_ready(host.url)
            failed = asyncio.create_task(host.failed())
            asked = asyncio.create_task(stopping.wait())
            await asyncio.wait((failed, asked), return_when=asyncio.FIRST_COMPLETED)
            code = 1 if failed.done() else 0
            failed.cancel()
            asked.cancel()
        finally:
            await host.stop()
    return code


def _receiver(engine: Engine) -> Receiver:
    """The embedded broker is both halves of the transport; hosts use the receiving one."""
    broker: Any = engine.transport
    return broker


@contextlib.contextmanager
def _caught(signals: Sequence[signal.Signals], stopping: asyncio.Event) -> Iterator[None]:
    """A signal sets `stopping`; a second one ends the process at once, which loses nothing that was
    reported done."""

    def on_signal() -> None:
        if stopping.is_set():
            os._exit(FORCED_EXIT)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
