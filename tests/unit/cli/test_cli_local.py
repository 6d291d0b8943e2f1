"""`validate` and `schema`: what can be known without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_fake_api import Weft
from jsonschema import Draft202012Validator

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
    Draft202012Validator(schema).validate(yaml.safe_load(path.read_text()))


def test_there_are_samples() -> None:
    assert [path.parent.name for path in SAMPLES] == ["order-fulfilment", "source-census"]


def test_schema_writes_a_file_or_says_why_not(offline: Weft, tmp_path: Path) -> None:
    path = tmp_path / "weft.schema.json"
    result = offline("schema", "--output", str(path))
    assert (result.exit_code, result.stdout) == (0, f"wrote {path}\n")
    assert path.read_text() == offline("schema").stdout
    assert offline("schema", "-o", str(tmp_path / "no" / "folder")).exit_code == 2
