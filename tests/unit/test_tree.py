"""The tree itself: files stay small and say why they exist, and nothing ties it to one machine.

These are the rules of CONTRIBUTING.md that no linter of ours knows. Without them a storage class
grows to thousands of lines one commit at a time, and a path of somebody's home directory breaks
the clone of everybody else.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("orchestrator", "activities", "bench", "samples", "tests")
MAX_LINES = 330
LONG = {
    "orchestrator/ports.py": 455,  # one seam, read as one text
    "tests/": 430,  # long tables of cases
}
"""Path prefix -> its own limit of lines."""

ROOMS = ("orchestrator/functions/", "orchestrator/local/", "function_app")
"""Of `azure.functions`."""

SKIPPED_FOLDERS = frozenset({"__pycache__", "build", "dist"})
TEXT = frozenset(
    (".py", ".md", ".toml", ".txt", ".json", ".yaml", ".yml", ".html", ".cfg", ".ini", ".sh", "")
)

OF_THIS_MACHINE = re.compile(
    r"/work/(?:main|wt|shared)\b|/tmp/v3\.\d|/root/|/home/[a-z]\w*/|/Users/[a-z]"
    r"|index-url|extra-index|pypi\.org|files\.pythonhosted"
)


def files() -> list[Path]:
    """Every text file that belongs to the tree, not what tools and environments leave in it."""
    found: list[Path] = []
    folders = [ROOT]
    while folders:
        for path in folders.pop().iterdir():
            if path.is_dir():
                hidden = path.name.startswith(".") and path.name not in (".ci", ".github")
                if not hidden and path.name not in SKIPPED_FOLDERS and ".egg-info" not in path.name:
                    folders.append(path)
            elif path.suffix in TEXT and path.name not in (".git", "local.settings.json"):
                found.append(path)
    return sorted(found)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES = [path for path in files() if path != Path(__file__)]  # it names what it looks for
PYTHON = [
    path
    for path in FILES
    if path.suffix == ".py" and (path.parent == ROOT or name(path).startswith(SOURCES))
]
PRODUCT = [path for path in PYTHON if not name(path).startswith("tests")]


def test_the_walk_finds_the_tree() -> None:
    names = {name(path) for path in FILES}
    assert {"function_app.py", "README.md", "pyproject.toml", ".ci/run"} <= names
    assert {"orchestrator/ports.py", "activities/registry.py", "tests/support/world.py"} <= names
    assert not [one for one in names if ".venv" in one or "__pycache__" in one]


def all_but(faults: dict[Path, str]) -> None:
    """One test for all files (a thousand tests cost more than what they look at), and each fault
    named with its file."""
    assert not faults, "\n".join(f"{name(path)}: {fault}" for path, fault in faults.items())


def test_files_are_small_and_say_why_they_exist() -> None:
    faults: dict[Path, str] = {}
    for path in PYTHON:
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        limits = [limit for prefix, limit in LONG.items() if name(path).startswith(prefix)]
        if lines > max([MAX_LINES, *limits]):
            faults[path] = f"{lines} lines: split it by concern"
        elif text.strip() and not ast.get_docstring(ast.parse(text)):
            faults[path] = "no module docstring"  # an empty __init__.py has nothing to say
    all_but(faults)


def test_azure_functions_stays_in_its_rooms() -> None:
    """import-linter knows external packages by their first name only, and adapters/azure may use
    the SDKs, but not the programming model."""
    faults: dict[Path, str] = {}
    for path in PRODUCT:
        if name(path).startswith(ROOMS):
            continue
        for imported in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if imported.startswith("azure.functions"):
                faults[path] = f"imports {imported}"
    all_but(faults)


def imports(tree: ast.Module) -> set[str]:
    """Full names of what a module imports, wherever in it."""
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    return imported


def test_no_path_of_a_machine_and_no_registry_address() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    found = {path: OF_THIS_MACHINE.search(text) for path, text in texts.items()}
    all_but({path: f"{one[0]!r} is of one machine only" for path, one in found.items() if one})


def test_the_search_finds_what_it_must() -> None:
    for text in ("see /work/main/x", "/root/.venv", "pip --index-url x", "/tmp/v3.11.7/bin"):
        assert OF_THIS_MACHINE.search(text)


def test_test_modules_have_names_of_their_own() -> None:
    """pytest imports modules of folders without `__init__.py` by their bare name: two of one name
    would hide each other."""
    seen: dict[str, Path] = {}
    for path in PYTHON:
        if not name(path).startswith("tests/") or (path.parent / "__init__.py").exists():
            continue
        if path.name in ("conftest.py", "__main__.py"):
            continue
        assert path.name not in seen, f"{name(path)} and {name(seen[path.name])}"
        seen[path.name] = path
