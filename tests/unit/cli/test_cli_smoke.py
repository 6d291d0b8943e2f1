"""`weft smoke`: a wrong answer is a failed step with its reason, never a pass or a traceback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_fake_api import FakeApi, error

from orchestrator.local import cli_smoke

LETTER = {"id": "e1~fragile~2", "attempts": [{"attempt": 1}, {"attempt": 2}]}
HISTORY = {"items": [{"type": one} for one in cli_smoke.EXPECTED], "nextCursor": None}
STARTED = {"id": "e1", "created": True}


@pytest.fixture(autouse=True)
def nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_smoke.secrets, "token_hex", lambda size: "n" * size)
    monkeypatch.setattr(cli_smoke.time, "sleep", lambda seconds: None)


@pytest.fixture
def sound(api: FakeApi) -> FakeApi:
    api.on("POST", "/v1/workflows", {"name": "weft-smoke", "version": 1}, status=201)
    api.on("POST", "/v1/workflows/weft-smoke/start", STARTED, {**STARTED, "created": False})
    api.on("POST", "/v1/executions/e1/signals", {"id": "n"}, status=202)
    none = {"items": [], "nextCursor": None}
    api.on("GET", "/v1/deadletters", none, {"items": [LETTER], "nextCursor": None})
    api.on("GET", "/v1/deadletters/e1~fragile~2", LETTER)
    api.on("POST", "/v1/deadletters/e1~fragile~2/skip", LETTER)
    done = {"status": "COMPLETED", "endedAt": "x", "output": "n" * 8}
    api.on("GET", "/v1/executions/e1", {"status": "RUNNING", "endedAt": None}, done)
    api.on("GET", "/v1/executions/e1/history", HISTORY)
    api.on("GET", "/v1/executions/e1/verify", {"ok": True, "problems": []})
    api.on("POST", "/v1/executions/e1/cancel", {"id": "e1"})
    api.on("DELETE", "/v1/workflows/weft-smoke", {}, status=200)
    return api


def test_a_sound_platform_passes(sound: FakeApi, weft: Any) -> None:
    result = weft("smoke")
    assert result.exit_code == 0, result.stdout
    assert result.stdout.count("ok ") == 9
    assert not [seen for seen in sound.requests if seen.path.endswith("/cancel")]


@pytest.mark.parametrize(
    ("method", "path", "answer", "step", "reason"),
    [
        ("POST", "/v1/workflows", (422, error("INVALID", "no")), "publish", "INVALID"),
        ("POST", "/v1/workflows/weft-smoke/start", STARTED, "start", "Idempotency-Key"),
        ("GET", "/v1/deadletters/e1~fragile~2", {"attempts": [{}]}, "retry", "1 attempts"),
        ("POST", "/v1/deadletters/e1~fragile~2/skip", (409, error("GONE", "no")), "skip", "GONE"),
        (
            "GET",
            "/v1/executions/e1",
            {"status": "FAILED", "endedAt": "x", "output": None},
            "complete",
            "FAILED, not COMPLETED",
        ),
        (
            "GET",
            "/v1/executions/e1",
            {"status": "COMPLETED", "endedAt": "x", "output": "other"},
            "complete",
            "not what the operator gave",
        ),
        (
            "GET",
            "/v1/executions/e1/history",
            {"items": HISTORY["items"][::-1], "nextCursor": None},
            "history",
            "where it belongs",
        ),
        (
            "GET",
            "/v1/executions/e1/verify",
            {"ok": False, "problems": ["seq 3 is missing"]},
            "history",
            "seq 3 is missing",
        ),
        ("DELETE", "/v1/workflows/weft-smoke", (403, error("NO", "no")), "clean up", "NO"),
    ],
)
def test_a_wrong_answer_fails_its_step(
    method: str, path: str, answer: Any, step: str, reason: str, sound: FakeApi, weft: Any
) -> None:
    sound.on(method, path, answer)
    result = weft("smoke", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"]) == (1, False)
    (failed,) = [one for one in report["steps"] if not one["ok"]]
    assert failed["name"] == step
    assert reason in failed["error"]
    assert report["steps"][-1]["name"] == "clean up"


def test_no_server_is_its_own_exit_code(offline: Any) -> None:
    result = offline("smoke", "--json", url="http://127.0.0.1:9")
    assert result.exit_code == 4
    assert [one["name"] for one in json.loads(result.stdout)["steps"]] == ["publish"]
