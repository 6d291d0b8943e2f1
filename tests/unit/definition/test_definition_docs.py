"""`docs/definition.md` and the code must say the same: defaults, limits and problem codes."""

import re
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from orchestrator.domain import defaults
from orchestrator.domain import definition as models
from orchestrator.domain.definition_http import HttpRequest
from orchestrator.domain.durations import format_duration

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "definition.md").read_text(encoding="utf-8")
MODULES = (
    *(
        "yamltext",
        "parsing",
        "textrules",
        "validation",
        "references",
        "task_checks",
        "durable_checks",
        "faults",
    ),
    *("jsonschemas", "support", "definition_types", "definition_http"),
)


TASKS = get_args(get_args(models.Task)[0])


def row(name: str) -> str:
    return next(line for line in PAGE.splitlines() if line.startswith(f"| {name}"))


def test_the_page_states_the_defaults_of_the_code() -> None:
    assert format_duration(defaults.DEFAULT_TIMEOUT_MS) in row("`timeout` of a task")
    assert format_duration(defaults.MAX_ATTEMPT_TIMEOUT_MS) in row("`timeout` of a task")
    assert f"| {defaults.DEFAULT_MAX_ATTEMPTS} |" in row("`retry.maxAttempts`")
    assert f"{defaults.MAX_ATTEMPTS:,}" in row("`retry.maxAttempts`")
    assert format_duration(defaults.DEFAULT_INITIAL_INTERVAL_MS) in row("`retry.initialInterval`")
    assert f"| {defaults.DEFAULT_BACKOFF_COEFFICIENT:g} |" in row("`retry.backoffCoefficient`")
    assert format_duration(defaults.DEFAULT_MAX_INTERVAL_MS) in row("`retry.maxInterval`")
    assert f"`{defaults.DEFAULT_JITTER}` |" in row("`retry.jitter`")


def fields(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def first_cells(heading: str) -> set[str]:
    table = PAGE.split(f"\n{heading}\n")[1].split("\n#")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_the_page_has_every_field_of_a_workflow_a_task_and_a_request_and_no_other() -> None:
    assert first_cells("## A workflow") == fields(models.Definition)
    assert first_cells("### http") == fields(HttpRequest)
    common = fields(models.TaskCommon) | fields(models.Attempted)
    shown = first_cells("## Tasks")
    types = {str(get_args(one.model_fields["type"].annotation)[0]): one for one in TASKS}
    assert shown == common | set(types) | {"type"}
    for name, model in types.items():
        own = row(f"`{name}` |").split("|")[2]
        stated = set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", own)))
        assert stated == fields(model) - common - {"type"}, name


def test_the_page_lists_every_code_and_no_other() -> None:
    listed = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", PAGE.split("## Error codes")[1]))
    folder = ROOT / "orchestrator" / "domain"
    source = "\n".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES)
    raised = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', source)) - {"INPUT_INVALID"}
    assert listed == raised
