"""A real platform under load, whose processes are killed all the time.

    python -m bench.chaos --seconds 60 --kill-every 3 --seed 1

Starts `weft up --workers 3` on a folder and a port of its own, starts executions with idempotency
keys (again with the same key whenever an answer is missing), and kills random workers with SIGKILL.
Then it stops killing, waits until everything has ended, and checks the files (`chaos_checks`). The
exit code is 1 if anything is wrong. The seed fixes what is started and who is killed when, as far
as a real machine lets it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from activities.registry import Registry
from activities.runner import Runner
from bench.chaos_checks import Findings, check, check_broker, documents
from bench.chaos_load import LOADS, Load
from orchestrator import bootstrap
from orchestrator.engine.core import Engine
from orchestrator.settings import load_settings

ROOT: Final = Path(__file__).parents[1]
CLIENTS: Final = 4
CLIENT_PAUSE_S: Final = 0.3
"""The longest pause of a client between two starts: the load must be less than what the workers
that live can do, or the wait for the end measures a backlog and no recovery."""
ANSWER_S: Final = 10.0
STOP_S: Final = 30.0
LOOK_S: Final = 0.5
SHOWN: Final = 5


@dataclass(slots=True)
class Starts:
    """What clients were told. Filled by threads, each with keys of its own."""

    url: str
    accepted: dict[str, tuple[str, Load]] = field(default_factory=dict[str, tuple[str, Load]])
    unanswered: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    differing: list[str] = field(default_factory=list[str])
    stop: threading.Event = field(default_factory=threading.Event)

    def client(self, number: int, seed: int) -> None:
        """Start one execution after the other until told to stop; never give up on a key before."""
        rng = random.Random(f"{seed} client {number}")
        count = 0
        while not self.stop.is_set():
            count += 1
            self._start(f"chaos-{seed}-{number}-{count}", rng.choice(LOADS), rng)
            self.stop.wait(rng.random() * CLIENT_PAUSE_S)

    def _start(self, key: str, load: Load, rng: random.Random) -> None:
        path = f"/v1/workflows/{load.name}/start"
        end = time.monotonic() + 60
        while time.monotonic() < end:
            status, body = ask(self.url, "POST", path, {}, key=key)
            if status in (200, 202):
                if rng.random() < 0.1 and key not in self.accepted:  # asks once more for no reason
                    self.accepted[key] = (body["id"], load)
                    self.counts["repeated on purpose"] += 1
                    continue
                known = self.accepted.setdefault(key, (body["id"], load))
                if known[0] != body["id"]:
                    self.differing.append(f"{key} was told of {known[0]} and of {body['id']}")
                self.counts[load.name] += 1
                return
            self.counts["not answered, sent again" if status == 0 else f"answered {status}"] += 1
            time.sleep(0.1 + rng.random() * 0.3)
        if key not in self.accepted:
            self.unanswered.append(key)


def ask(url: str, method: str, path: str, body: Any = None, *, key: str = "") -> tuple[int, Any]:
    """One request on a connection of its own: (status, body), (0, None) without an answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=ANSWER_S)
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    except (OSError, http.client.HTTPException, ValueError):
        return 0, None
    finally:
        connection.close()


@contextlib.contextmanager
def platform(folder: Path, workers: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`weft up` with the bench's activities; its process and its address. Always ends it, with all
    of its workers."""
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text("import bench.chaos_load\n", encoding="ascii")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(hook), str(ROOT)))}
    command = [sys.executable, "-m", "orchestrator", "up", "--json", "--port", "0"]
    command += ["--workers", str(workers), "--data", str(folder / "data")]
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            log_text = (folder / "log").read_text(encoding="utf-8")
            raise RuntimeError(f"weft up did not start:\n{log_text[-2000:]}")
        yield process, json.loads(line)["url"]
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            print("weft up did not stop in time and is killed")
        with contextlib.suppress(ProcessLookupError):  # workers that outlived it, if any
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Process ids of the workers that live now."""
    found = subprocess.run(
        ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False
    )
    return sorted(int(pid) for pid in found.stdout.split())


def kill_for(process: subprocess.Popen[str], seconds: float, every: float, seed: int) -> int:
    """Kill a random worker now and then; how many were killed."""
    rng = random.Random(f"{seed} killer")
    end = time.monotonic() + seconds
    killed = 0
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, every * (0.5 + rng.random())))
        living = workers_of(process)
        if living and time.monotonic() < end:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(living), signal.SIGKILL)
                killed += 1
    return killed


async def open_files(data: Path) -> Engine:
    """An engine of our own on the files, which runs nothing."""
    settings = load_settings({"WEFT_BACKEND": "local", "WEFT_DATA_DIR": str(data)})
    return await bootstrap.build(settings, activities=Runner(Registry()))


async def ended(engine: Engine, starts: Starts, seconds: float) -> list[str]:
    """Wait until all has ended and nothing is left to be sent; why not, if it takes longer."""
    until = time.monotonic() + seconds
    while True:
        going = [
            f"{body['id']} ({body['workflow']}) is {body['status']}: {body['state']['tasks']}"
            for body in await documents(engine, "execution")
            if body["status"] not in ("COMPLETED", "FAILED", "CANCELLED")
        ]
        going += [f"{body['executionId']}: {body['id']} not sent"
                  for body in await documents(engine, "outbox")]  # fmt: skip
        going += [f"{body['executionId']}/{body['id']} is {body['status']}"
                  for body in await documents(engine, "task")
                  if body["status"] in ("RUNNING", "RETRYING")]  # fmt: skip
        if not going or time.monotonic() > until:
            return going
        await asyncio.sleep(LOOK_S)


async def judged(data: Path, starts: Starts) -> Findings:
    """Every check, on files that nobody uses any more."""
    engine = await open_files(data)
    try:
        found = await check(engine, starts.accepted, starts.unanswered)
    finally:
        await engine.close()
    for text in starts.differing:
        found.check("one execution for each key", False, text)
    check_broker(found, data / bootstrap.BROKER_FILE)
    return found


async def waited(data: Path, starts: Starts, seconds: float) -> list[str]:
    """`ended`, with an engine for as long as it takes."""
    engine = await open_files(data)
    try:
        return await ended(engine, starts, seconds)
    finally:
        await engine.close()


def chaos(given: argparse.Namespace, folder: Path) -> int:
    """The whole run; the exit code."""
    with platform(folder, given.workers) as (process, url):
        for load in LOADS:
            status, body = ask(url, "POST", "/v1/workflows", load.definition)
            if status not in (200, 201):
                raise RuntimeError(f"{load.name} was not published: {status} {body}")
        starts = Starts(url)
        clients = [
            threading.Thread(target=starts.client, args=(number, given.seed), daemon=True)
            for number in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        killed = kill_for(process, given.seconds, given.kill_every, given.seed)
        began = time.monotonic()
        starts.stop.set()
        for client in clients:
            client.join()
        stalled = asyncio.run(waited(folder / "data", starts, given.settle))
        recovery = time.monotonic() - began
        time.sleep(2)  # the last settlements of messages
    found = asyncio.run(judged(folder / "data", starts))
    found.check("everything ended in time", not stalled, f"{len(stalled)} not: {stalled[:SHOWN]}")
    print(f"{len(starts.accepted)} executions started, {killed} workers killed in "
          f"{given.seconds:g} s, all ended {recovery:.1f} s after the last kill")  # fmt: skip
    for name, count in sorted(starts.counts.items()):
        print(f"  {count:7,}  {name}")
    print(f"{'check':42}{'looked at':>10}{'wrong':>7}")
    for name in sorted(found.looked):
        print(f"{name:42}{found.looked[name]:10,}{len(found.wrong.get(name, [])):7,}")
    for name, texts in found.wrong.items():
        print(f"{name}:", *(f"  {text[:500]}" for text in texts[:SHOWN]), sep="\n")
    return 1 if found.wrong else 0


def main(argv: list[str] | None = None) -> int:
    """0: every invariant held."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to kill")
    parser.add_argument("--kill-every", type=float, default=3, help="seconds, on average")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--settle", type=float, default=240, help="seconds to end everything in")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="weft-chaos-") as folder:
        return chaos(given, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
