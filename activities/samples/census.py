"""The source-census sample: real work over real files, the `.py` files of the running Python.

List, count each file, add up, write a report. Counting is by `ast`; an independent count must give
the same totals (tests/unit/activities/test_sample_census.py).
"""

from __future__ import annotations

import ast
import json
import os
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from activities import Context, PermanentError, activity

SKIPPED_FOLDERS: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})
TEST_FOLDERS: Final = frozenset({"test", "tests", "idle_test"})
TOP: Final = 10
HEARTBEAT_FOLDERS: Final = 50  # folders listed between two heartbeats


class _Model(BaseModel):
    """camelCase outside, snake_case inside; unknown fields are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class ListInput(_Model):
    """`root`: folder to search, the standard library unless given. `limit`: at most so many
    files, the first ones by name."""

    root: str | None = None
    include_tests: bool = False
    limit: int | None = Field(default=None, ge=1)


class CountInput(_Model):
    """`path`: relative to `root`, with forward slashes."""

    root: str | None = None
    path: str


class Count(_Model):
    """What is in one file. `error`: why it could not be parsed; then functions and classes are 0.

    Lines end at a newline, a carriage return or both; blank ones hold white space at most.
    """

    path: str
    lines: int
    blank: int
    functions: int
    classes: int
    bytes: int
    error: str | None = None


class Totals(_Model):
    """Sums over all files."""

    files: int
    lines: int
    blank: int
    functions: int
    classes: int
    bytes: int
    errors: int


class Report(_Model):
    """`longest`: the ten files with the most lines, ties by path."""

    totals: Totals
    longest: list[Count]


class WriteInput(_Model):
    """`directory` is created if missing; `name` is the stem of both files."""

    report: Report
    directory: str
    name: str = Field(default="census", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")


class Written(_Model):
    """Absolute paths of the two files."""

    json_path: str
    table_path: str


@activity("census.list_files")
def list_files(input: ListInput | None, ctx: Context) -> list[str]:
    """Relative paths of the `.py` files below the root, sorted. Links are not followed."""
    request = input or ListInput()
    root = _root(request.root)
    skipped = SKIPPED_FOLDERS if request.include_tests else SKIPPED_FOLDERS | TEST_FOLDERS
    found: list[str] = []
    for visited, (folder, folders, files) in enumerate(os.walk(root)):
        if visited % HEARTBEAT_FOLDERS == 0:
            ctx.raise_if_cancelled()
            ctx.heartbeat({"files": len(found)})
        folders[:] = [name for name in folders if name not in skipped]
        found += [
            (Path(folder) / name).relative_to(root).as_posix()
            for name in files
            if name.endswith(".py") and not (Path(folder) / name).is_symlink()
        ]
    return sorted(found)[: request.limit]


@activity("census.count_file")
def count_file(input: CountInput) -> Count:
    """Count one file. Raises `PermanentError` if it is not below the root or not there."""
    root = _root(input.root)
    path = (root / input.path).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        raise PermanentError("there is no such file below the root", type="FileMissing")
    data = path.read_bytes()
    lines = data.splitlines()
    functions, classes, error = _definitions(data)
    return Count(
        path=input.path,
        lines=len(lines),
        blank=sum(not line.strip() for line in lines),
        functions=functions,
        classes=classes,
        bytes=len(data),
        error=error,
    )


@activity("census.reduce")
def reduce(counts: list[Count]) -> Report:
    """Totals, and the longest files."""
    return Report(
        totals=Totals(
            files=len(counts),
            lines=sum(count.lines for count in counts),
            blank=sum(count.blank for count in counts),
            functions=sum(count.functions for count in counts),
            classes=sum(count.classes for count in counts),
            bytes=sum(count.bytes for count in counts),
            errors=sum(count.error is not None for count in counts),
        ),
        longest=sorted(counts, key=lambda count: (-count.lines, count.path))[:TOP],
    )


@activity("census.write_report")
def write_report(input: WriteInput) -> Written:
    """Write the report as JSON and as a table. Each file appears whole or not at all, and writing
    the same report again changes nothing."""
    directory = Path(input.directory).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    written = Written(
        json_path=str(directory / f"{input.name}.json"),
        table_path=str(directory / f"{input.name}.txt"),
    )
    report = input.report.model_dump(mode="json", by_alias=True)
    _write(Path(written.json_path), json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    _write(Path(written.table_path), table(input.report))
    return written


def table(report: Report) -> str:
    """The report for a person: totals, then the longest files."""
    totals = report.totals
    rows = [
        ("files", totals.files),
        ("lines", totals.lines),
        ("  of them blank", totals.blank),
        ("functions", totals.functions),
        ("classes", totals.classes),
        ("bytes", totals.bytes),
        ("not parsed", totals.errors),
    ]
    text = ["Source census", "", *(f"{name:<18}{value:>14,}" for name, value in rows), ""]
    width = max([len(count.path) for count in report.longest] + [len("longest files")])
    text.append(
        f"{'longest files':<{width}}{'lines':>9}{'blank':>9}{'functions':>11}{'classes':>9}"
    )
    text += [
        f"{c.path:<{width}}{c.lines:>9,}{c.blank:>9,}{c.functions:>11,}{c.classes:>9,}"
        for c in report.longest
    ]
    return "\n".join(text) + "\n"


def _root(given: str | None) -> Path:
    root = Path(given or sysconfig.get_paths()["stdlib"]).resolve()
    if not root.is_dir():
        raise PermanentError("the root is not a folder", type="FolderMissing")
    return root


def _definitions(data: bytes) -> tuple[int, int, str | None]:
    """Functions (methods and async ones too), classes, and why the file could not be parsed."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        return 0, 0, f"{type(exc).__name__}: {exc}"
    functions = classes = 0
    for node in ast.walk(tree):
        functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        classes += isinstance(node, ast.ClassDef)
    return functions, classes, None


def _write(path: Path, text: str) -> None:
    """Replace `path` in one step: a reader, or the next attempt after a crash, never sees half."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
