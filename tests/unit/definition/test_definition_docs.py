"""`docs/definition.md` and the code must say the same: defaults, limits and problem codes."""

import re
from pathlib import Path

from orchestrator.domain import defaults
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


def test_the_page_lists_every_code_and_no_other() -> None:
    listed = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", PAGE.split("## Error codes")[1]))
    folder = ROOT / "orchestrator" / "domain"
    source = "\n".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES)
    raised = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', source)) - {"INPUT_INVALID"}
    assert listed == raised
