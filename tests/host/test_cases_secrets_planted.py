"""CASES: secrets are masked in logs but show in rendered inputs, audit, error text or outputs.

A value is planted as a secret, used everywhere where secrets may be used, and echoed by the service
in every form. Then every byte that the platform has written, logged or answered is searched.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from activities import Context, PermanentError
from activities.egress import EgressPolicy
from activities.http import HttpActivity
from activities.registry import Registry
from activities.runner import HTTP, TRANSFORM, Runner
from activities.transform import transform
from orchestrator import bootstrap
from orchestrator.engine.core import Engine
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.cli import app as weft
from orchestrator.local.host.host import HostOptions, LocalHost
from orchestrator.local.host.host_json import WEFT
from orchestrator.settings import load_settings
from tests.support.planted import FORMS, PLANTED, UTF8, found_in

LARGE = 70_000  # bytes: beyond what is kept inline
RETRY = {"maxAttempts": 2, "initialInterval": "1ms", "jitter": "none"}


# --- the service ----------------------------------------------------------------------------------


class Echo:
    """A service that gives back what it was sent, as it came and in every form of the secret."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            fields = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
            lengths = [int(value) for name, _, value in fields if name.lower() == b"content-length"]
            request = head + (await reader.readexactly(lengths[0]) if lengths else b"")
            self.requests.append(request)
            path = request.split(b" ")[1]
            writer.write(self.answer(path, request))
            await writer.drain()
        writer.close()

    def answer(self, path: bytes, request: bytes) -> bytes:
        status = (
            b"400 Bad" if b"/refuse" in path else b"500 Down" if b"/down" in path else b"200 OK"
        )
        if b"/move" in path:
            return (
                b"HTTP/1.1 307 Moved\r\nlocation: /ok?k="
                + FORMS["percent all"].encode()
                + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
        text = request.decode("latin-1")
        body: Any = {"forms": FORMS, PLANTED: 1, "request": text, "raw": request.decode()}
        if b"/large" in path:
            body["padding"] = "x" * LARGE
        data, kind = json.dumps(body, ensure_ascii=b"/ascii" in path).encode(), b"application/json"
        if b"/binary" in path:
            data, kind = b"\xff\xfe" + UTF8 + b"\x00", b"application/octet-stream"
        if b"/text" in path:
            data, kind = "\n".join(FORMS.values()).encode(), b"text/plain"
        headers = b"x-echo: " + UTF8 + b"\r\nx-basic: " + FORMS["basic"].encode()
        length = str(len(data)).encode()
        head = b"HTTP/1.1 " + status + b"\r\ncontent-type: " + kind + b"\r\n" + headers
        return head + b"\r\nconnection: close\r\ncontent-length: " + length + b"\r\n\r\n" + data


def leaky() -> Registry:
    """Activities of an author who is careless with what he is given."""
    registry = Registry()

    async def leak(value: dict[str, Any], ctx: Context) -> Any:
        ctx.logger.warning("called with %s", value, extra={"given": value})
        logging.getLogger("somebody.else").debug("key %r", value["key"])
        ctx.heartbeat({"at": value["key"], "forms": FORMS})
        await asyncio.sleep(0)
        return {"echo": value, "forms": FORMS}

    def fail(value: dict[str, Any], ctx: Context) -> Any:
        try:
            raise KeyError(value["key"])
        except KeyError as cause:
            logging.getLogger("somebody.else").exception("it failed")
            ctx.heartbeat(value)
            # Cut in the middle of the value by the limit of errors.
            long = "x" * (value["pad"] % 16_384) + "".join(FORMS.values()) * 20
            raise (PermanentError if value["final"] else ValueError)(long) from cause

    registry.register("leak", leak)
    registry.register("fail", fail)
    return registry


# --- the platform ---------------------------------------------------------------------------------


class Log(logging.Handler):
    """Every record of every logger, formatted and as it is."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        told = traceback.format_exception(record.exc_info[1]) if record.exc_info else []
        self.lines.append(f"{record.getMessage()} {vars(record)} {''.join(told)}")


@pytest.fixture
def log() -> Iterator[Log]:
    root, log = logging.getLogger(), Log()
    level, factory = root.level, logging.getLogRecordFactory()
    root.addHandler(log)
    root.setLevel(logging.DEBUG)
    yield log
    root.removeHandler(log)
    root.setLevel(level)
    logging.setLogRecordFactory(factory)


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[LocalHost, httpx.AsyncClient, Engine]]:
    secrets = folder / "secrets.json"
    secrets.write_text(json.dumps({"default": {"K": PLANTED, "SHORT": "e"}}))
    secrets.chmod(0o600)
    registry = leaky()
    http = HttpActivity(policy=EgressPolicy(("127.0.0.0/8",)))
    registry.register(HTTP, http.run, built_in=True)
    registry.register(TRANSFORM, transform, built_in=True)
    data = {"WEFT_DATA_DIR": str(folder / "data"), "WEFT_SECRETS_FILE": str(secrets)}
    engine = await bootstrap.build(
        load_settings(data), activities=Runner(registry, closers=(http.close,))
    )

    async def build() -> Engine:
        return engine

    provider = EngineProvider(build)
    await provider.get()
    host = LocalHost(
        compose(provider),
        provider=provider,
        broker=engine.transport,  # type: ignore[arg-type]
        store=engine.store,
        clock=engine.clock,
        host_json=WEFT,
        options=HostOptions(settings={"COSMOS_DATABASE": "weft"}),
    )
    await host.start()
    async with httpx.AsyncClient(base_url=host.url, timeout=60) as client:
        yield host, client, engine
    await host.stop()


def definition(url: str) -> dict[str, Any]:
    """Every place where a secret may stand, on the ways of success and of failure."""

    def http(path: str, **request: Any) -> dict[str, Any]:
        body = {"k": "${secrets.K}", "nested": [{"${x}": "a ${secrets.K} b"}]}
        headers = {
            "x-key": "${secrets.K}",
            "authorization": "Basic ${base64.encode(bytes('user:' + secrets.K))}",
        }
        given = {"method": "POST", "url": url + path, "headers": headers, "body": body}
        return {"type": "http", "request": {**given, **request}, "retry": RETRY}

    def activity(name: str, **more: Any) -> dict[str, Any]:
        given = {"key": "${secrets.K}", "text": "see ${secrets.K}", **more}
        return {"type": "activity", "activity": name, "input": given, "retry": RETRY}

    done = {"runWhen": "allDone"}
    tasks: dict[str, Any] = {
        "plain": http("/ok"),
        "ascii": http("/ascii"),
        "path": http("/ok/${secrets.K}?q=${secrets.K}", query={"k": ["${secrets.K}"]}),
        "large": http("/large"),
        "text": http("/text"),
        "binary": http("/binary"),
        "moved": http("/move"),
        "short": http("/ok", body={"k": "${secrets.SHORT}"}),
        "whole": http("/ok", url="${'" + url + "/ok?k=' + secrets.K}", body=None),
        "badUrl": http("/ok", url="http://${secrets.K}:x/"),
        "badHeader": http("/ok", headers={"x": "${secrets.K + '\\n'}"}),
        "noHost": http("/ok", url="${'http://' + secrets.K + '.invalid/'}"),
        "refused": http("/refuse?k=${secrets.K}"),
        "down": http("/down"),
        "wrong": http("/ok", successCodes=["${secrets.K}"]),
        "expression": activity("leak", n="${int(secrets.K)}"),
        "leak": activity("leak"),
        "fail": activity("fail", final=False, pad=16_200),
        "failFinal": activity("fail", final=True, pad=5),
        "map": {
            "type": "map",
            "items": "${[1, 2]}",
            "do": activity("leak", item="${item}"),
            "tolerateFailures": 2,
        },
        "mapFails": {
            "type": "map",
            "items": "${[1, 2]}",
            "do": activity("fail", final=True, pad=1),
            "tolerateFailures": 2,
        },
        "mapHttp": {"type": "map", "items": "${[1]}", "do": http("/ok")},
        "pass": {
            "type": "transform",
            "needs": ["plain", "leak"],
            "output": {"a": "${tasks.plain.output}", "b": "text: ${tasks.leak.output}"},
        },
        "child": {
            "type": "workflow",
            "needs": ["pass"],
            "workflow": "child",
            "input": "${tasks.pass.output}",
        },
        "told": {
            "type": "publish",
            "needs": ["pass"],
            "event": {"type": "e", "data": "${tasks.pass.output}"},
        },
        "undone": {**http("/ok"), "compensate": http("/refuse/undo")},
    }
    for name, task in tasks.items():
        task.setdefault("needs", [])
        task["continueOnError"] = name not in ("pass",)
    waits = [name for name in tasks if name != "end"]
    tasks["end"] = {
        "type": "activity",
        "activity": "fail",
        "needs": waits,
        **done,
        "input": {"key": "${secrets.K}", "final": True, "pad": 1},
        "retry": RETRY,
    }
    return {
        "name": "planted",
        "onFailure": "failFast",
        "notify": [
            {
                "on": ["completed", "failed", "cancelled"],
                "webhook": {"url": url + "/ok/hook", "secret": "K"},
                "includeOutput": True,
            }
        ],
        "tasks": tasks,
        "output": {"all": "${tasks.pass.output}"},
    }


CHILD = {
    "name": "child",
    "tasks": {
        "a": {
            "type": "activity",
            "activity": "leak",
            "input": {"key": "${secrets.K}", "from": "${input}"},
        }
    },
    "output": "${tasks.a.output}",
}


async def crawl(client: httpx.AsyncClient, ids: dict[str, list[str]]) -> dict[str, bytes]:
    """The answer of every GET route, for every id that is known."""
    paths = (await client.get("/openapi.json")).json()["paths"]
    answers: dict[str, bytes] = {}
    for path, operations in paths.items():
        if "get" not in operations:
            continue
        wanted = [path]
        for name, values in ids.items():
            wanted = [
                one.replace(f"{{{name}}}", value) if f"{{{name}}}" in one else one
                for one in wanted
                for value in (values if f"{{{name}}}" in one else [""])
            ]
        for one in dict.fromkeys(wanted):
            if "{" in one:
                continue
            answer = await client.get(one, params={"limit": 200} if one[-1] == "s" else None)
            answers[f"{one} {answer.status_code}"] = answer.content + str(answer.headers).encode()
    return answers


async def everything(client: httpx.AsyncClient, executions: list[str]) -> dict[str, bytes]:
    definitions = (await client.get("/v1/workflows/planted/versions/1")).json()["definition"]
    letters = (await client.get("/v1/deadletters", params={"limit": 200})).json()["items"]
    assert len(letters) > 8
    ids = {
        "id": executions,
        "taskId": [*definitions["tasks"], "a"],
        "letterId": [letter["id"] for letter in letters],
        "name": ["planted", "child"],
        "n": ["1"],
        "tenantId": ["default"],
        "dependency": [
            one["dependency"] for one in (await client.get("/v1/breakers")).json()["items"]
        ],
    }
    answers = await crawl(client, ids)
    for execution in executions:
        for task in ("map", "mapFails", "mapHttp"):
            path = f"/v1/executions/{execution}/tasks/{task}?item=0"
            answers[path] = (await client.get(path)).content
    return answers


def commands(url: str, execution: str, letter: str) -> list[str]:
    """What the command line says."""
    lines = (
        ["show", execution],
        ["list"],
        ["tasks", execution],
        ["history", execution],
        ["deadletters", "list"],
        ["deadletters", "show", letter],
        ["workflows", "show", "planted"],
        ["audit", "list"],
    )
    return [CliRunner(env={"WEFT_URL": url}).invoke(weft, line).output for line in lines]


async def test_case_secrets_are_nowhere_in_any_encoding(tmp_path: Path, log: Log) -> None:
    echo = Echo()
    service = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.url = f"http://127.0.0.1:{service.sockets[0].getsockname()[1]}"
    async with running(tmp_path) as (host, client, _):
        for source in (CHILD, definition(echo.url)):
            published = await client.post("/v1/workflows", json=source)
            assert published.status_code in (200, 201), published.text
        started = await client.post("/v1/workflows/planted/start", json={"input": {"a": 1}})
        id = started.json()["id"]
        await host.run_until_idle()
        view = (await client.get(f"/v1/executions/{id}")).json()
        assert view["status"] in ("FAILED", "COMPENSATED"), view
        letters = (await client.get("/v1/deadletters", params={"limit": 200})).json()["items"]
        edited = next(one for one in letters if one.get("task") == "refused")
        shown = (await client.get(f"/v1/deadletters/{edited['id']}")).json()["input"]
        assert shown["headers"]["x-key"] == "***"
        answers = await everything(client, [id, *await children(client, id)])
        tasks = (await client.get(f"/v1/executions/{id}/tasks")).json()["items"]
        said = await asyncio.to_thread(commands, host.url, id, edited["id"])
    service.close()
    check_uses(echo.requests, tasks, answers)
    for where, answer in answers.items():
        assert not found_in(answer), where
    for text in said:
        assert not found_in(text)
    assert len(log.lines) > 100
    assert not found_in("\n".join(log.lines))
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert len(files) > 2
    for path in files:
        assert not found_in(path.read_bytes()), path


async def children(client: httpx.AsyncClient, id: str) -> list[str]:
    task = await client.get(f"/v1/executions/{id}/tasks/child")
    return [task.json()["child"]]


def check_uses(requests: list[bytes], tasks: list[Any], answers: dict[str, bytes]) -> None:
    """The test is about something: the secret was sent, and texts beside it are still there."""
    sent = b"".join(requests)
    for form in ("raw", "percent all", "basic"):
        assert FORMS[form].encode() in sent, form
    done = {task["id"]: task["status"] for task in tasks}
    for id in ("plain", "path", "large", "moved", "whole", "leak", "map", "child", "told", "short"):
        assert done[id] == "COMPLETED", (id, done)
    for id in ("refused", "down", "fail", "failFinal", "badUrl", "noHost", "expression"):
        assert done[id] == "DEAD_LETTERED", (id, done)
    short = next(value for path, value in answers.items() if path.endswith("/tasks/short 200"))
    assert b'"status":200' in short
    assert b"content-type" in short
