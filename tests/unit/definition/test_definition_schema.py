"""The JSON Schema for editors accepts what may be written and marks what is wrong."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestrator.domain.schema import definition_schema

from definition_helpers import from_yaml, tasks  # isort: skip
from test_definition_values import EVERYTHING  # isort: skip

SCHEMA = definition_schema()
VALIDATOR: Any = Draft202012Validator(SCHEMA)


def test_it_is_a_valid_schema_and_accepts_everything_that_may_be_written() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert list(VALIDATOR.iter_errors(from_yaml(EVERYTHING))) == []


@pytest.mark.parametrize(
    "task",
    [
        {"type": "transform"},
        {"type": "nothing"},
        {"type": "transform", "output": 1, "tiemout": "1s"},
        {"type": "transform", "output": 1, "timeout": 5},
        {"type": "transform", "output": 1, "timeout": "soon"},
        {"type": "transform", "output": 1, "timeout": "P1M"},
        {"type": "wait", "duration": "1h30"},
        {"type": "transform", "output": 1, "retry": {"maxAttempts": 0}},
        {"type": "map", "items": [], "do": {"type": "map", "items": []}},
        {"type": "map", "items": [], "do": {"type": "transform", "output": 1, "needs": []}},
    ],
)
def test_it_marks_what_is_wrong(task: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid({"name": "w", "tasks": {"a": task}})


@pytest.mark.parametrize(
    "text", ["500ms", "30s", "5m", "2h", "1d", "1h30m", "PT1H30M", "P1DT2H", "P2W", "1.5s"]
)
def test_durations_are_accepted(text: str) -> None:
    raw = {**tasks("{a: {type: transform, output: 1}}"), "timeout": text}
    assert VALIDATOR.is_valid(raw)


def test_task_ids_are_checked_and_fields_described() -> None:
    assert not VALIDATOR.is_valid(tasks("{a/b: {type: transform, output: 1}}"))
    assert SCHEMA["properties"]["timeout"]["description"]
    assert "runWhen" in SCHEMA["$defs"]["ActivityTask"]["properties"]
    assert SCHEMA["properties"]["tasks"]["type"] == "object"
