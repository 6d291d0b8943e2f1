"""Real processes: clean stops, workers that die, a supervisor that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from host_fakes import port_is_free, until

from orchestrator.local.host import PortInUse, up
from orchestrator.local.host.listening import listening_socket
from orchestrator.local.host.supervisor import Supervisor, child_command
from orchestrator.settings import SettingsError

ROOT = Path(__file__).parents[2]

UP = """
import sys
from pathlib import Path
from orchestrator.local.host import up
sys.exit(up(Path(sys.argv[1]), 0, int(sys.argv[2]), lambda url: print(url, flush=True)))
"""


def python(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A process of this interpreter that finds this repository."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@contextlib.asynccontextmanager
async def platform(data: Path, workers: int) -> AsyncIterator[tuple[subprocess.Popen[str], str]]:
    """`up` in a process of its own, ready; its url."""
    process = python(UP, str(data), str(workers), cwd=data)
    assert process.stdout is not None
    try:
        url = (await asyncio.to_thread(process.stdout.readline)).strip()
        yield process, url
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_one_process_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    async with platform(tmp_path, 1) as (process, url):
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{url}/live")).status_code == 200
        process.send_signal(number)
        assert await asyncio.to_thread(process.wait) == 0
        assert port_is_free(port_of(url))


DRAIN = """
import asyncio, sys
import azure.functions as func
sys.path.insert(0, sys.argv[1])
from host_fakes import local_host
from orchestrator.local.host.serve import run

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)

@app.route(route="slow")
async def slow(req: func.HttpRequest) -> str:
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return "finished"

async def main():
    host = local_host(app, roles=frozenset({"http"}), grace_ms=60_000)
    return await run(host, on_ready=lambda url: print(url, flush=True))

sys.exit(asyncio.run(main()))
"""


async def test_sigterm_lets_a_running_function_finish() -> None:
    process = python(DRAIN, str(Path(__file__).parent), stdin=subprocess.PIPE)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = (await asyncio.to_thread(process.stdout.readline)).strip()
        async with httpx.AsyncClient(timeout=30) as client:
            asking = asyncio.create_task(client.get(f"{url}/slow"))
            assert await asyncio.to_thread(process.stdout.readline) == "begun\n"
            process.send_signal(signal.SIGTERM)
            await until(lambda: port_is_free(port_of(url)), 0.01)  # the signal has arrived
            process.stdin.write("go\n")
            process.stdin.flush()
            assert (await asking).text == "finished"
        assert await asyncio.to_thread(process.wait) == 0


def test_up_refuses_a_taken_port_before_it_opens_anything(tmp_path: Path) -> None:
    taken = listening_socket("127.0.0.1", 0)
    data = tmp_path / "data"
    with pytest.raises(PortInUse, match="in use"):
        up(data, taken.getsockname()[1], 1, lambda url: None)
    taken.close()
    assert not data.exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_up_refuses_bad_settings_once_and_lets_the_port_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Not with a traceback of every worker."""
    monkeypatch.setenv("WEFT_LEASE_MS", "5")
    with pytest.raises(SettingsError, match="WEFT_LEASE_MS"):
        up(tmp_path, 0, workers, lambda url: None)


def test_a_worker_that_cannot_start_says_what_is_wrong_and_not_where_it_was(
    tmp_path: Path,
) -> None:
    ours, theirs = socket.socketpair()
    with listening_socket("127.0.0.1", 0) as sock, ours, theirs:
        worker = subprocess.run(
            [
                *(sys.executable, "-m", "orchestrator.local.host", "--data", str(tmp_path)),
                *("--worker", "1", "--socket", str(sock.fileno())),
                *("--control", str(theirs.fileno())),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT), "WEFT_LEASE_MS": "5"},
            pass_fds=(sock.fileno(), theirs.fileno()),
            capture_output=True,
            text=True,
            check=False,
        )
    assert worker.returncode == 1
    assert worker.stderr.startswith("worker 1 cannot start: settings are not usable")
    assert "Traceback" not in worker.stderr


def test_up_needs_a_worker(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        up(tmp_path, 0, 0, lambda url: None)


# --- several workers ------------------------------------------------------------------------------


async def test_two_workers_serve_one_port_and_die_with_their_supervisor(tmp_path: Path) -> None:
    """SIGKILL cannot be handled, so the workers must notice by themselves."""
    async with platform(tmp_path, 2) as (process, url):
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{url}/health")).json()["status"] == "ok"
        process.kill()
        process.wait()
        # The workers inherited the socket: the port is free once both are gone.
        await until(lambda: port_is_free(port_of(url)), 0.05)


async def test_sigterm_stops_all_workers(tmp_path: Path) -> None:
    async with platform(tmp_path, 2) as (process, url):
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == 0
        assert port_is_free(port_of(url))


# Workers that do nothing, so that the supervisor alone is tested. argv: kind, control fd.
WORKER = """
import signal, socket, sys, time
control = socket.socket(fileno=int(sys.argv[2]))
if sys.argv[1] == "broken":
    sys.exit(3)
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
control.sendall(b"ready\\n")
control.recv(1)
while sys.argv[1] == "stubborn":
    time.sleep(1)
"""


class Bench:
    """A supervisor in this process over workers of one kind."""

    def __init__(self, kind: str, workers: int = 2) -> None:
        self.sock = listening_socket("127.0.0.1", 0)
        self.kind = kind
        self.supervisor = Supervisor(self.command, workers, self.sock)
        self.ready = asyncio.Event()
        self.running = asyncio.create_task(self.supervisor.run(self.ready.set))

    def command(self, worker: int, sock: int, control: int) -> Sequence[str]:
        return (sys.executable, "-c", WORKER, self.kind, str(control))

    async def end(self) -> int:
        self.supervisor.stop()
        code = await self.running
        self.sock.close()
        return code


async def test_a_worker_that_dies_is_started_again() -> None:
    bench = Bench("good")
    await bench.ready.wait()
    before = bench.supervisor.pids
    assert set(before) == {0, 1}
    os.kill(before[0], signal.SIGKILL)
    await until(lambda: bench.supervisor.pids.get(0) not in (None, before[0]), 0.01)
    assert bench.supervisor.pids[1] == before[1]
    after = bench.supervisor.pids
    assert await bench.end() == 0
    for pid in (before[0], *after.values()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_worker_that_never_gets_ready_ends_the_platform() -> None:
    bench = Bench("broken")
    assert await bench.running == 1
    assert not bench.ready.is_set()
    assert bench.supervisor.pids == {}
    bench.sock.close()


async def test_a_worker_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.local.host.supervisor.KILL_AFTER_S", 0.05)
    bench = Bench("stubborn", workers=1)
    await bench.ready.wait()
    (pid,) = bench.supervisor.pids.values()
    assert await bench.end() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_listening_socket_outlives_a_worker() -> None:
    """A request that waits in the socket's queue is answered by the next worker."""
    bench = Bench("good", workers=1)
    await bench.ready.wait()
    with socket.create_connection(bench.sock.getsockname()[:2]) as client:
        os.kill(bench.supervisor.pids[0], signal.SIGKILL)
        await asyncio.to_thread(client.sendall, b"still connected")
    assert await bench.end() == 0


def test_a_worker_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    """A script `cel.py` beside the data ended every worker, over and over."""
    command = child_command(tmp_path)(1, 3, 4)
    python_itself = command[: list(command).index("-m")]
    (tmp_path / "cel.py").write_text("print('not ours')")
    look = "import importlib.util; print(importlib.util.find_spec('cel').origin)"
    found = subprocess.check_output([*python_itself, "-c", look], cwd=tmp_path, text=True)
    assert str(tmp_path) not in found
