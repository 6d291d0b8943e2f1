"""Exit codes, `--json` purity and hostile text: what scripts and terminals depend on."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cli_shapes as shapes
import httpx
import pytest
from cli_fake_api import FakeApi, Weft, error

from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import Fault

EXECUTION_COMMANDS = ["show", "watch", "history", "verify"]


@pytest.fixture
def unused() -> Iterator[str]:
    """Taken and not listened at, so that no server of another test comes there meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


COMMANDS = [["list"], ["start", "x"], ["publish", "-"], *([c, "e1"] for c in EXECUTION_COMMANDS)]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_unreachable_exits_4_and_says_what_to_do(
    offline: Weft, unused: str, command: list[str]
) -> None:
    result = offline(*command, "--url", unused, input="name: x")
    assert (result.exit_code, result.stdout) == (4, "")
    assert unused in result.stderr
    assert "weft up" in result.stderr
    as_json = offline(*command, "--json", "--url", unused, input="name: x")
    assert as_json.exit_code == 4
    assert json.loads(as_json.stdout)["error"]["code"] == "UNREACHABLE"
    assert as_json.stderr == ""


@pytest.mark.parametrize("command", EXECUTION_COMMANDS)
def test_unknown_execution_exits_3_also_as_json(weft: Weft, command: str) -> None:
    result = weft(command, "nope")
    assert (result.exit_code, result.stdout) == (3, "")
    as_json = weft(command, "nope", "--json")
    assert as_json.exit_code == 3
    assert json.loads(as_json.stdout) == error("NOT_FOUND", "no such thing")


@pytest.mark.parametrize(
    ("status", "exit_code"), [(400, 2), (409, 2), (429, 4), (500, 4), (503, 4)]
)
def test_status_decides_the_exit_code(
    api: FakeApi, weft: Weft, status: int, exit_code: int
) -> None:
    api.on("GET", "/v1/executions", error("SOME_CODE", "words"), status=status)
    result = weft("list")
    assert result.exit_code == exit_code
    assert "error SOME_CODE: words" in result.stderr
    assert "trace id: t-1" in result.stderr


@pytest.mark.parametrize(
    "answer", [(404, "<html>not here</html>"), (200, "hello"), (200, {"x": 1}), (404, {"x": 1})]
)
def test_a_server_that_is_not_weft_exits_4(api: FakeApi, weft: Weft, answer: Any) -> None:
    api.on("GET", "/v1/executions", answer)
    result = weft("list")
    assert result.exit_code == 4
    assert "not like a Weft server" in result.stderr


@pytest.mark.parametrize(
    "command", [["lst"], ["show"], ["list", "--nope"], ["list", "--limit", "x"]]
)
def test_a_mistyped_command_line_exits_2_also_as_json(weft: Weft, command: list[str]) -> None:
    result = weft(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr
    as_json = weft(*command, "--json")
    assert as_json.exit_code == 2
    assert json.loads(as_json.stdout)["error"]["code"] == "USAGE"
    assert as_json.stderr == ""


def test_json_output_is_one_document_and_nothing_else(api: FakeApi, weft: Weft) -> None:
    execution, task = shapes.execution(status="COMPLETED"), shapes.task("a")
    event = shapes.event(1, "executionAccepted", tasks=1)
    started = {"id": "e1", "workflow": "c", "version": 1, "status": "PENDING", "created": True}
    api.on("GET", "/v1/executions", shapes.page(execution, cursor="c"))
    api.on("GET", "/v1/executions/e1", execution)
    api.on("GET", "/v1/executions/e1/tasks", shapes.page(task))
    api.on("GET", "/v1/executions/e1/history", shapes.page(event))
    api.on("POST", "/v1/workflows/c/start", started, status=202)
    expected = {
        ("list", "--limit", "1"): shapes.page(execution, cursor="c"),
        ("show", "e1"): {**execution, "tasks": [task]},
        ("watch", "e1"): execution,
        ("history", "e1"): shapes.page(event),
        ("start", "c"): started,
        ("start", "c", "--watch"): execution,
    }
    for command, document in expected.items():
        result = weft(*command, "--json")
        assert (result.exit_code, result.stderr) == (0, ""), command
        assert json.loads(result.stdout) == document, command


def test_text_of_users_cannot_command_the_terminal_or_rich(api: FakeApi, weft: Weft) -> None:
    hostile = "a\x1b[2Jb [red]c[/red] [/] \x9b31m \ud800 d"
    failed = shapes.execution(status="FAILED")
    failed["error"] = {"type": "ValueError", "message": hostile, "task": "t"}
    api.on("GET", "/v1/executions/e1", failed)
    api.on("GET", "/v1/executions/e1/tasks", shapes.page(shapes.task("t", error=None)))
    result = weft("show", "e1")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "\x9b" not in result.stdout
    assert "a\\x1b[2Jb [red]c[/red] [/] \\x9b31m \ufffd d" in result.stdout
    assert json.loads(weft("show", "e1", "--json").stdout)["error"]["message"] == hostile


def test_piped_output_has_no_colour_and_cuts_no_id(api: FakeApi, weft: Weft) -> None:
    long_id = "x" * 200
    api.on("GET", "/v1/executions", shapes.page(shapes.execution(long_id, tags={})))
    line = weft("list").stdout.splitlines()[1]
    assert line.startswith(long_id + "  census v3")
    assert "\x1b" not in line
    assert line == line.rstrip()


def test_ids_are_one_path_segment(api: FakeApi, weft: Weft) -> None:
    assert weft("show", "..").exit_code == 2
    assert weft("show", "").exit_code == 2
    assert api.requests == []
    assert weft("show", "a/b?c#d").exit_code == 3
    assert api.requests[-1].path == "/v1/executions/a/b?c#d"  # decoded from one %-quoted segment
    assert api.requests[-1].query == {}


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    api: FakeApi, weft: Weft, monkeypatch: pytest.MonkeyPatch, unused: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", unused)
    monkeypatch.setenv("http_proxy", unused)
    api.on("GET", "/v1/executions", shapes.page())
    assert weft("list").exit_code == 0


class _Breaking:
    """A server whose worker dies in the middle of the first `times` answers."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.asked = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        if self.left:
            self.left -= 1
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        return httpx.Response(200, json={"id": "x"})

    def client(self) -> Client:
        """A client of it."""
        client = Client("http://127.0.0.1:1")
        client._http.close()
        client._http = httpx.Client(
            base_url="http://127.0.0.1:1", transport=httpx.MockTransport(self)
        )
        return client


def test_a_read_whose_connection_breaks_is_asked_again() -> None:
    """One of several workers died; watching must go on."""
    server = _Breaking(2)
    with server.client() as client:
        assert client.execution("x") == {"id": "x"}
    assert server.asked == 3


def test_a_read_that_breaks_every_time_is_a_server_that_cannot_be_reached() -> None:
    server = _Breaking(99)
    with server.client() as client, pytest.raises(Fault) as caught:
        client.execution("x")
    assert caught.value.exit_code == 4
    assert server.asked == 4


def test_a_write_whose_connection_breaks_is_not_sent_again() -> None:
    """Its outcome is unknown: without a key it would start a second execution."""
    server = _Breaking(1)
    with server.client() as client, pytest.raises(Fault) as caught:
        client.start("flow", {})
    assert caught.value.exit_code == 4
    assert server.asked == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_an_output_that_cannot_be_written_is_told_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "orchestrator", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (found.returncode, found.stderr) == (1, "error: No space left on device\n")
