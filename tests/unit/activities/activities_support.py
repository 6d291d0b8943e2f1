"""Helpers of the activity tests: calls, runners, and an HTTP server that sends any bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from activities import Context
from activities.registry import Registry
from activities.runner import Runner
from activities.threads import ThreadHost
from orchestrator.domain.failure import Failure
from orchestrator.ports import ActivityCall, ActivityFailed

NOW_MS = 1_800_000_000_000  # the wall clock of the http activity in tests
LIMIT = 200_000  # the largest answer that it takes, bytes
WAIT = 20.0  # seconds until a test that waits for a thread gives up; never reached when all is well


def make_call(activity: str, input: Any = None, **fields: Any) -> ActivityCall:
    """One attempt of `activity`."""
    defaults: dict[str, Any] = {
        "tenant": "t1",
        "execution": "e1",
        "task": "work",
        "item": None,
        "attempt": 1,
        "idempotency_key": "key-1",
        "timeout_ms": 30_000,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    return ActivityCall(activity=activity, input=input, **(defaults | fields))


def runner_of(*functions: Callable[..., Any], **limits: Any) -> Runner:
    """A runner whose activities are named like the functions."""
    registry = Registry()
    for function in functions:
        registry.register(function.__name__, function)
    return Runner(registry, threads=ThreadHost(**limits))


async def failure_from(run: Awaitable[Any]) -> Failure:
    """The failure that `run` ends with."""
    try:
        result = await run
    except ActivityFailed as failed:
        return failed.failure
    raise AssertionError(f"it did not fail, it gave {result!r}")


@dataclass
class Received:
    """A request as it came over the wire."""

    method: str
    target: str
    headers: list[tuple[str, bytes]]
    body: bytes

    def header(self, name: str) -> str | None:
        """The only header of that name, or None."""
        found = [value for key, value in self.headers if key == name]
        assert len(found) <= 1, found
        return found[0].decode() if found else None


Answer = bytes | Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Answers each request with the next of `answers`, then with the last one for ever."""

    answers: list[Answer] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
                method, target, _ = head[0].decode().split(" ", 2)
                pairs = [line.split(b":", 1) for line in head[1:]]
                headers = [(name.decode().lower(), value.strip(b" ")) for name, value in pairs]
                size = int(dict(headers).get("content-length", b"0"))
                request = Received(method, target, headers, await reader.readexactly(size))
                self.received.append(request)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
                else:
                    await answer(request, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.hung_up.set()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[Server]:
    """A server on a free loopback port."""
    server = Server(list(answers))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}"
    try:
        yield server
    finally:
        listener.close()


def answer(
    status: int = 200, body: bytes = b"", *, phrase: str = "Whatever", **headers: str
) -> bytes:
    """An HTTP answer; `headers` with underscores for hyphens."""
    lines = [f"HTTP/1.1 {status} {phrase}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def json_answer(value: Any, status: int = 200) -> bytes:
    """A JSON answer."""
    return answer(status, json.dumps(value).encode(), content_type="application/json")


async def until_ended(runner: Runner) -> None:
    """Let the loop run until nothing is stuck any more."""
    async with asyncio.timeout(WAIT):
        while runner.stuck():  # noqa: ASYNC110 - an abandoned thread tells nobody
            await asyncio.sleep(0.001)


async def cancelled_run(runner: Runner, call: ActivityCall, started: asyncio.Event) -> None:
    """Start, wait until it runs, cancel, and see that `run` returns at once."""
    run = asyncio.create_task(runner.run(call))
    async with asyncio.timeout(WAIT):
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert call.cancelled


class Gate:
    """A plain activity that tells that it runs, and waits until it is let go."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.started = asyncio.Event()
        self.release = threading.Event()
        self.thread: threading.Thread | None = None

    def hold(self, ctx: Context) -> str:
        self.thread = threading.current_thread()
        release = self.release
        self.loop.call_soon_threadsafe(self.started.set)
        assert release.wait(WAIT)
        return "late"


async def get(runner: Runner, url: str, **request: Any) -> Any:
    """Send a request; its output."""
    return await runner.run(make_call("weft.http", {"url": url, **request}))


async def failure(runner: Runner, response: Any, **request: Any) -> Any:
    """The failure of a request to a server that answers `response`."""
    async with serving(response) as server:
        return await failure_from(get(runner, server.url, **request))
