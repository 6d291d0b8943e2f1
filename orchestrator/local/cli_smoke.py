"""`weft smoke`: does the whole path work there, with the real services behind it?

A canary goes through everything that a deployment can break: publish, start, the relay, both
queues, a signal, an attempt that fails and its delayed retry, a dead letter and an operator's
decision on it, the history. What fails on purpose is a name that cannot exist (`.invalid` is
reserved for that), so the test needs nothing beside the platform.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from orchestrator.local.cli_faults import (
    DONE,
    FAILED,
    UNREACHABLE,
    Fault,
    console,
    print_json,
    printable,
)
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit
from orchestrator.local.cli_workflows import WorkflowsClient

NAME: Final = "weft-smoke"
CANARY: Final[dict[str, Any]] = {
    "name": NAME,
    "description": "Canary of `weft smoke`; may be archived at any time.",
    "timeout": "10m",
    "onFailure": "hold",
    "tasks": {
        "begin": {"type": "transform", "output": "${input.nonce}"},
        "approve": {"type": "signal", "needs": ["begin"], "signal": "go", "timeout": "5m"},
        "fragile": {
            "type": "http",
            "needs": ["approve"],
            "timeout": "10s",
            "request": {"method": "GET", "url": "https://canary.invalid/"},
            "retry": {"maxAttempts": 2, "initialInterval": "1s", "jitter": "none"},
        },
        "end": {"type": "transform", "needs": ["fragile"], "output": "${tasks.fragile.output}"},
    },
    "output": "${tasks.end.output}",
}
EXPECTED: Final = (
    "executionAccepted",
    "executionStarted",
    "signalReceived",
    "taskFailed",
    "taskOverridden",
    "executionCompleted",
)
"""Event types that the canary's history must hold, in this order."""
POLL_SECONDS: Final = 0.5
LONG_POLL_MS: Final = 20_000


class _Wrong(Exception):
    """The platform answered, and the answer is not what it must be."""


class SmokeTest:
    """One run against one server; `steps` says what was done, how long it took, and what failed."""

    def __init__(self, client: WorkflowsClient, seconds: float) -> None:
        """`seconds`: how long the whole test may take, cleaning up left out."""
        self.steps: list[dict[str, Any]] = []
        self.execution: str | None = None
        self.exit_code = DONE
        self._client = client
        self._nonce = secrets.token_hex(8)
        self._until = time.monotonic() + seconds

    def run(self) -> None:
        """All steps up to the first that fails, then the cleaning up. Raises nothing of the API."""
        letter: list[str] = []
        plan: list[tuple[str, Callable[[], None]]] = [
            ("publish", self._publish),
            ("start", self._start),
            ("signal", self._signal),
            ("dead letter", lambda: letter.append(self._dead_letter())),
            ("retry", lambda: self._retried(letter[0])),
            ("skip", lambda: self._skip(letter[0])),
            ("complete", self._complete),
            ("history", self._history),
        ]
        for name, step in plan:
            with self._step(name):
                step()
            if self.exit_code != DONE:
                break
        if self.execution is not None and self.exit_code != DONE:
            with suppress(Fault):
                self._client.act(self.execution, "cancel", reason="weft smoke failed")
        if self.exit_code != UNREACHABLE:
            with self._step("clean up"):
                self._client.archive(NAME)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began, error = time.monotonic(), None
        try:
            yield
        except Fault as fault:
            error = f"{fault.code}: {fault.message}"
            self.exit_code = UNREACHABLE if fault.exit_code == UNREACHABLE else FAILED
        except _Wrong as wrong:
            error = str(wrong)
            self.exit_code = FAILED
        took = round((time.monotonic() - began) * 1000)
        self.steps.append({"name": name, "ok": error is None, "ms": took, "error": error})

    def _publish(self) -> None:
        body = json.dumps(CANARY).encode()
        self._client.publish(body, content_type="application/json", dry_run=False)

    def _start(self) -> None:
        request = {"input": {"nonce": self._nonce}, "tags": {"smoke": self._nonce}}
        first = self._client.start(NAME, request, key=self._nonce)
        self.execution = first["id"]
        again = self._client.start(NAME, request, key=self._nonce)
        if again["id"] != first["id"] or again["created"]:
            raise _Wrong(f"the same Idempotency-Key started {first['id']} and {again['id']}")

    def _signal(self) -> None:
        self._client.signal(self._id, {"name": "go", "id": self._nonce})

    def _dead_letter(self) -> str:
        while True:
            page = self._client.dead_letters({"execution": self._id}, limit=1)
            if page["items"]:
                return page["items"][0]["id"]
            self._wait("no dead letter of the task that must fail")

    def _retried(self, letter: str) -> None:
        attempts = len(self._client.dead_letter(letter)["attempts"])
        if attempts != 2:
            raise _Wrong(f"{attempts} attempts were made; 2 were due")

    def _skip(self, letter: str) -> None:
        body = {"output": self._nonce, "reason": "weft smoke"}
        self._client.resolve(letter, "skip", body)

    def _complete(self) -> None:
        while True:
            left_ms = max(1, int((self._until - time.monotonic()) * 1000))
            found = self._client.execution(self._id, wait_ms=min(LONG_POLL_MS, left_ms))
            if found["status"] == "COMPLETED":
                break
            if found["endedAt"] is not None:
                raise _Wrong(f"the execution is {found['status']}, not COMPLETED")
            self._wait(f"the execution is still {found['status']}")
        if found["output"] != self._nonce:
            raise _Wrong("the output is not what the operator gave")

    def _history(self) -> None:
        types = iter([event["type"] for event in self._client.history(self._id)["items"]])
        for wanted in EXPECTED:
            if wanted not in types:  # consumes up to it, so the order counts
                raise _Wrong(f"the history has no {wanted} where it belongs")
        report = self._client.verify(self._id)
        if not report["ok"]:
            raise _Wrong(f"the history does not fold to the state: {report['problems'][0]}")

    @property
    def _id(self) -> str:
        assert self.execution is not None
        return self.execution

    def _wait(self, missing: str) -> None:
        if time.monotonic() >= self._until:
            raise _Wrong(f"{missing}, and the time is up")
        time.sleep(POLL_SECONDS)


def smoke(
    seconds: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds that the test may take.")
    ] = 120,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Run a canary through the whole platform; exit 1 if anything is not as it must be."""
    with WorkflowsClient(url) as client:
        test = SmokeTest(client, seconds)
        test.run()
        report = {
            "ok": test.exit_code == DONE,
            "url": client.url,
            "execution": test.execution,
            "ms": sum(step["ms"] for step in test.steps),
            "steps": test.steps,
        }
    if as_json:
        print_json(report)
        return test.exit_code
    out = console()
    for step in test.steps:
        mark = Text("ok    ", "green") if step["ok"] else Text("failed", "red")
        said = f"  {step['name']:<12} {step['ms']:>6} ms"
        wrong = f"  {printable(step['error'])}" if step["error"] else ""
        emit(out, mark.append(said + wrong, "default"))
    return test.exit_code


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(smoke)
