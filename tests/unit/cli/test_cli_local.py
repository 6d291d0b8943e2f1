"""`validate`, `schema` and `up`: what needs no server that runs already."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_fake_api import Weft
from jsonschema import Draft202012Validator

from activities.code import registry as code_registry
from orchestrator.domain.parsing import parse_yaml
from orchestrator.local import host
from orchestrator.ports import Unavailable
from orchestrator.settings import SettingsError
from tests.support.code_samples import load

SAMPLES = sorted(Path(__file__).parents[3].glob("samples/*/workflow.yaml"))

BAD = """
name: X
steps: {}
tasks:
  a: {type: activity, activity: census.lst_files, needs: [c]}
  b: {type: wait, duration: 5x, needs: [a]}
  c: {type: transform, output: "${tasks.b.output + }", needs: [b]}
  d: {type: http, request: {url: "http://x"}, needs: [chek, d]}
  check: {type: wait, duration: 1s}
"""


def test_validate_prints_every_problem_with_its_path_and_hint(
    offline: Weft, tmp_path: Path
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    result = offline("validate", str(path))
    assert result.exit_code == 1
    assert result.stderr == ""
    for told in (
        "$.name: ",
        "$.steps: ",
        "$.tasks.a.activity: ",
        'did you mean "census.list_files"?',
        "$.tasks.b.duration: ",
        "a -> c -> b -> a",
        "$.tasks.c.output: ",
        "$.tasks.d.needs[0]: ",
        'did you mean "check"?',
        "$.tasks.d.needs[1]: ",
    ):
        assert told in result.stdout, told
    assert result.stdout.startswith(f"8 problems in {path}\n")


def test_validate_knows_the_code_workflows_that_are_here(
    offline: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.registry.discover", lambda: None)
    monkeypatch.setattr(code_registry, "_DEFAULT", load("parcel").code)
    path = tmp_path / "one.yaml"
    cases = (("parcel", 1, "valid"), ("parcle", 1, '"parcel"'), ("parcel", 2, "version"))
    for name, version, said in cases:
        task = f"{{type: durable, orchestration: {name}, version: {version}}}"
        path.write_text(f"name: one\ntasks:\n  a: {task}\n")
        result = offline("validate", str(path))
        assert (result.exit_code, said in result.stdout) == (int(said != "valid"), True)


def test_validate_as_json_has_the_same_problems(offline: Weft) -> None:
    result = offline("validate", "-", "--json", input=BAD)
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["valid"], found["name"], len(found["problems"])) == (False, None, 8)
    assert set(found["problems"][0]) == {"field", "message", "code", "hint"}


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("a: 1\na: 2\n", "$.a: "),
        ("{bad json", "1 problem"),
        ("- 1\n", "must be an object"),
        ("", "1 problem"),
    ],
)
def test_validate_of_what_is_no_definition_lists_it_as_a_problem(
    offline: Weft, source: str, told: str
) -> None:
    result = offline("validate", "-", input=source)
    assert result.exit_code == 1
    assert told in result.stdout


def test_validate_of_a_missing_file_is_a_usage_error(offline: Weft) -> None:
    assert offline("validate", "/no/such/file.yaml").exit_code == 2


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_samples_are_valid_for_us_and_for_editors(offline: Weft, path: Path) -> None:
    result = offline("validate", str(path))
    assert result.stdout == f"valid: {path.parent.name}\n"
    assert result.exit_code == 0
    schema = json.loads(offline("schema").stdout)
    # Read as editors do, by YAML 1.2: `on` is text.
    Draft202012Validator(schema).validate(parse_yaml(path.read_bytes()))


def test_there_are_samples() -> None:
    found = {path.parent.name for path in SAMPLES}
    assert found >= {
        "big-order",
        "expense-approval",
        "order-fulfilment",
        "parcel-handover",
        "payout",
        "source-census",
    }


def test_schema_writes_a_file_or_says_why_not(offline: Weft, tmp_path: Path) -> None:
    path = tmp_path / "weft.schema.json"
    result = offline("schema", "--output", str(path))
    assert (result.exit_code, result.stdout) == (0, f"wrote {path}\n")
    assert path.read_text() == offline("schema").stdout
    assert offline("schema", "-o", str(tmp_path / "no" / "folder")).exit_code == 2


# --- up -------------------------------------------------------------------------------------------


def test_up_says_when_it_is_ready_and_returns_what_the_host_returns(
    offline: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called: list[Any] = []

    def fake(
        data: Path, port: int, workers: int, on_ready: Callable[[str], None], *, address: str
    ) -> int:
        called.append((data, port, workers, address))
        on_ready("http://127.0.0.1:5")
        return 1

    monkeypatch.setattr(host, "up", fake)
    command = ["up", "--data", str(tmp_path), "--port", "0", "--workers", "3"]
    result = offline(*command)
    assert result.exit_code == 1
    assert result.stdout.startswith("Weft is up at http://127.0.0.1:5\n")
    as_json = offline(*command, "--json")
    assert json.loads(as_json.stdout) == {"url": "http://127.0.0.1:5", "data": str(tmp_path)}
    assert as_json.stdout.count("\n") == 1  # a line, so that a parent process can wait for it
    assert called == [(tmp_path, 0, 3, "127.0.0.1")] * 2


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (host.PortInUse(7071, "127.0.0.1"), 2),
        (host.HostJsonError("host.json is missing"), 1),
        (PermissionError(13, "Permission denied"), 2),
        (Unavailable("cannot open weft.db: file is not a database"), 1),
        (SettingsError("settings are not usable:\n  WEFT_LEASE_MS: too small"), 2),
    ],
)
def test_up_that_cannot_start_says_why_without_a_traceback(
    offline: Weft, monkeypatch: pytest.MonkeyPatch, error: Exception, exit_code: int
) -> None:
    def fake(*args: Any, **more: Any) -> int:
        raise error

    monkeypatch.setattr(host, "up", fake)
    result = offline("up")
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert str(error) in result.stderr
