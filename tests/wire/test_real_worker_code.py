"""An app with a code workflow in the real Functions worker library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.orchestration_result import failure_from
from tests.wire.test_real_worker import ROOT, pytestmark, result, worker  # noqa: F401 - the mark

APP = f"""
from pathlib import Path
from activities import CodeContext, activity, code_workflow

@activity("greet.hello")
def hello(name: str) -> str:
    return f"hello {{name}}"

@code_workflow("greet", input=str, output=str)
def greet(ctx: CodeContext, name: str):
    return (yield ctx.call_activity("greet.hello", name))

exec(Path({str(ROOT / "function_app.py")!r}).read_text())
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    app = tmp_path_factory.mktemp("code")
    (app / "function_app.py").write_text(APP)
    done = worker("code", app, app=app, WEFT_BACKEND="local")
    assert done.returncode == 0, done.stderr
    assert "Unclosed" not in done.stderr
    return json.loads(done.stdout)


def test_each_version_is_a_function_and_helpers_stand_beside(found: Any) -> None:
    assert found["bindings"] == {
        "code_greet_v1": [{"type": "orchestrationTrigger", "direction": "IN", "name": "context"}],
        "weft_call": [{"type": "orchestrationTrigger", "direction": "IN", "name": "context"}],
        "weft_activity": [{"type": "activityTrigger", "direction": "IN", "name": "request"}],
    }


def test_a_step_runs_through_the_librarys_decoding(found: Any) -> None:
    assert found["asked"] == "weft_activity"
    assert json.loads(found["output"]) == {"v": 1, "output": "hello Ada"}
    assert json.loads(found["latest"]) == 1


def test_a_failed_step_fails_in_durables_eyes_and_says_why(found: Any) -> None:
    failure = failure_from(found["failed"])
    assert failure is not None
    assert (failure.type, failure.retryable) == ("UNKNOWN_ACTIVITY", True)


def test_the_word_of_the_end_has_the_task_looked_at(found: Any) -> None:
    message = found["message"]
    assert (message["type"], message["execution"], message["task"]) == ("runTask", "e1", "main")


def test_whoever_asks_the_hub_learns_its_address(found: Any) -> None:
    assert found["address"] == "http://127.0.0.1:9/durabletask/"
    assert {"tasks_standard", "orchestration", "get_execution", "send_signal"} <= set(
        found["bound"]
    )


def test_without_a_code_workflow_nothing_of_durable_is_indexed(tmp_path: Path) -> None:
    """A binding alone would make the host load the extension, and that poll a storage account."""
    types = {
        one["type"] for bindings in result("index", tmp_path)["bindings"].values()
        for one in bindings
    }  # fmt: skip
    assert not [one for one in types if "durable" in one.lower() or "orchestr" in one]
