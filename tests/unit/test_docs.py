"""Pages name files and other pages: every one of them must be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.domain import topology
from orchestrator.domain.parsing import parse
from orchestrator.domain.support import unsupported
from orchestrator.domain.triggers import compile_trigger
from orchestrator.domain.validation import validate
from orchestrator.engine import documents, handback, sweep
from orchestrator.engine.core import Tunables
from orchestrator.functions.timers import SWEEP_SCHEDULE
from orchestrator.local import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for folder in ("", "docs", "docs/runbooks", "bench", "samples", "samples/*")
    for path in ROOT.glob(f"{folder}/*.md" if folder else "*.md")
)
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED_FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|json|toml|md|bicep))`")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = page.parent / file if file else page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}
            assert anchor in anchors, target


def test_the_page_of_the_command_line_lists_every_command_and_no_other() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `weft ([a-z-]+)", page, re.MULTILINE)
    listed += re.findall(r"`weft ([a-z-]+) ID`", page)
    known = {
        command.name or getattr(command.callback, "__name__", "")
        for command in cli.app.registered_commands
        if not command.hidden
    } | {group.name or group.typer_instance.info.name for group in cli.app.registered_groups}
    assert set(listed) == known


def test_the_readme_leads_to_every_page_and_sample() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    there = [*ROOT.glob("docs/*.md"), *ROOT.glob("samples/*/README.md")]
    assert [name(page) for page in there if f"]({name(page)}" not in readme] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_definitions_shown_can_be_published(page: Path) -> None:
    for text in re.findall(r"```yaml\n(name: .*?)```", page.read_text("utf-8"), re.DOTALL):
        value = parse(text.encode(), "yaml")
        if isinstance(value, dict) and "match" in value:
            compile_trigger(value)
        else:
            assert unsupported(validate(value, activities=None)) == []


@pytest.mark.parametrize(("page", "least"), [("docs/architecture.md", 40), ("CONTRIBUTING.md", 40)])
def test_files_that_a_page_names_exist(page: str, least: int) -> None:
    files = set(NAMED_FILE.findall((ROOT / page).read_text(encoding="utf-8")))
    assert len(files) > least
    folders = ("", "orchestrator", "orchestrator/domain", "orchestrator/local", "tests/unit/http")
    assert not [
        file
        for file in sorted(files)
        if not any((ROOT / folder / file).exists() for folder in folders)
    ]


def test_the_architecture_states_the_bounds_of_the_code() -> None:
    """The figures of section 8 follow from these; who changes one must change the page."""
    times = Tunables()
    assert SWEEP_SCHEDULE == "*/15 * * * * *"
    every = 15
    outbox = every + times.outbox_grace_ms // 1000
    silent = every + times.silence_ms // 1000
    lease = every + times.lease_ms // 1000
    due = every + times.retry_grace_ms // 1000
    longest = times.max_silence_ms // 60_000
    for text in (
        f"| {outbox} s after the commit |",
        f"| {lease} s after the last renewal |",
        f"| {due} s after it was due |",
        f"| {silent} s after the last commit; up to {longest} min {every} s",
        f"up to {sweep.MAX_PAGES * times.sweep_page:,}",
        f"After {handback.MAX_HOPS} hops",
        f"chunks of {topology.MAP_CHUNK_ITEMS}",
        f"(`SCHEMA_VERSION`, now {topology.SCHEMA_VERSION})",
        f"more than {documents.CHUNKED_MAPS} maps",
        f"{topology.MAX_LOCK_RENEWAL_SECONDS // 60} min) and the function's time-out",
    ):
        assert text in ARCHITECTURE, text


def test_the_architecture_lists_the_documents_of_the_code() -> None:
    described = set(re.findall(r"^    \S+ +([a-z]+)  ", documents.__doc__ or "", re.MULTILINE))
    listed = set(
        re.findall(r"^\| `([a-z]+)` \| [^|]*\| [^|]*\| [^|]*\|$", ARCHITECTURE, re.MULTILINE)
    )
    described.discard("type")  # the heading
    assert described
    assert listed == described


@pytest.mark.parametrize("package", ["engine", "domain"])
def test_the_map_of_modules_lists_each_once_and_no_other(package: str) -> None:
    """A flat package of a hundred modules can be read only with a map, so the map must be whole."""
    page = (ROOT / "docs" / "modules.md").read_text(encoding="utf-8")
    room = page.split(f"\n## {package}\n")[1].split("\n## ")[0]
    listed = sorted(re.findall(r"^\| `(\w+)` \| \S", room, re.MULTILINE))
    modules = (ROOT / "orchestrator" / package).glob("*.py")
    assert listed == sorted(path.stem for path in modules if path.stem != "__init__")
