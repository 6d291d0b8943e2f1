"""Every alert leads to a runbook, every runbook says all four things, and its commands exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from orchestrator.local.cli import app
from orchestrator.local.cli_faults import Fault
from tests.infra import rules
from tests.infra.bicep import Template, deployment
from tests.infra.test_bicep import ENVIRONMENT

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "runbooks"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
INDEX = (FOLDER / "README.md").read_text("utf-8")
PARTS = ["Detection", "Commands", "Recovery", "Proof"]
WEFT: Any = typer.main.get_command(app)
REFUSALS = typer.BadParameter.__mro__[1:3]
"""What the parser raises, by its bases: Typer has a copy of click of its own."""
COMMANDS = re.compile(r"`(weft [^`\n]+)`|^\s*(weft [^\n`]+)$", re.MULTILINE)


def alerts(deployed: Template) -> Iterator[tuple[str, str]]:
    """Name and description."""
    for kind in ("Microsoft.Insights/scheduledQueryRules", "Microsoft.Insights/metricAlerts"):
        for one in rules.of_type(deployed, kind):
            yield one.name, one.properties["description"]


def test_every_alert_names_a_runbook_that_exists() -> None:
    found = dict(alerts(deployment(ROOT / "infra", "main.prod.bicepparam", ENVIRONMENT)))
    assert len(found) >= 12
    for name, description in found.items():
        (page,) = re.findall(r"Runbook: (docs/runbooks/[a-z-]+\.md)$", description)
        assert (ROOT / page).is_file(), name
        assert f"`{name}`" in INDEX or f"`{name.removesuffix('-slow')}-fast`, `-slow`" in INDEX, (
            name
        )


def test_every_page_of_the_alerts_belongs_to_one_of_them() -> None:
    """The other direction: no page for an alert that is gone, and none that two occasions share."""
    found = alerts(deployment(ROOT / "infra", "main.prod.bicepparam", ENVIRONMENT))
    named = {re.findall(r"/([a-z-]+)\.md$", description)[0] for _, description in found}
    by_alert, by_occasion = INDEX.split("| Alert | Severity | Page |")[1].split(
        "| Occasion | Page |"
    )
    listed = re.findall(r"\]\(([a-z-]+)\.md\) \|$", by_alert, re.MULTILINE)
    others = re.findall(r"\]\(([a-z-]+)\.md\) \|$", by_occasion, re.MULTILINE)
    assert sorted(listed) == sorted(named)
    assert sorted([*listed, *others]) == [path.stem for path in PAGES]


def test_every_objective_has_a_fast_and_a_slow_alert() -> None:
    objectives = set(re.findall(r"`([a-z-]+)-burn-fast`, `\1-burn-slow`", INDEX))
    assert objectives == {"completion", "start-latency", "dispatch"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_runbook_says_everything(path: Path) -> None:
    text = path.read_text("utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == PARTS
    assert f"]({path.name})" in INDEX
    sections = re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]
    assert all(section.strip() for section in sections)
    assert "`" in sections[1], "commands"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_command_of_a_runbook_exists(path: Path) -> None:
    found = [one or other for one, other in COMMANDS.findall(path.read_text("utf-8"))]
    assert found
    assert [fault for line in found for fault in faults(line)] == []


def faults(line: str) -> Iterator[str]:
    """What the command line would refuse: unknown commands, options, missing arguments."""
    # `AuthGroup` takes these out before any command sees them.
    words = shlex.split(re.sub(r" --(tenant|token) \S+", "", line))[1:]
    command = WEFT
    context = typer.Context(WEFT, info_name="weft")
    while isinstance(command, TyperGroup):
        name = words.pop(0) if words else ""
        found = command.get_command(context, name)
        if found is None:
            yield f"{line}: no command {name!r}"
            return
        command = found
    try:
        command.make_context(command.name or "", words, parent=context)
    except (Fault, *REFUSALS) as error:
        yield f"{line}: {error}"


@pytest.mark.parametrize(
    "line",
    ["weft reconsile", "weft deadletters redo ID", "weft verify", "weft list --state failed"],
)
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    assert list(faults(line))
