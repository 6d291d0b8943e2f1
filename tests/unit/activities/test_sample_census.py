"""The census counts by ast; here the same is counted in other ways, and must agree."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import sysconfig
import tokenize
from pathlib import Path
from typing import Any

import pytest
from activities_support import failure_from, make_call

from activities.registry import default_registry, discover
from activities.runner import Runner

STDLIB = Path(sysconfig.get_paths()["stdlib"])
EVERY = 25  # counting all files twice would take half a minute on a small machine


@pytest.fixture
def runner() -> Runner:
    """The sample activities, as an app finds them."""
    discover()
    return Runner(default_registry())


def counted_differently(data: bytes) -> dict[str, int]:
    """Lines and blanks by regular expression, definitions by the tokens `def` and `class`."""
    lines = re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", data)
    names = [
        token.string
        for token in tokenize.tokenize(io.BytesIO(data).readline)
        if token.type == tokenize.NAME
    ]
    return {
        "lines": len(lines),
        "blank": sum(re.fullmatch(rb"[ \t\x0b\x0c\r\n]*", line) is not None for line in lines),
        "functions": names.count("def"),  # `def` and `class` are keywords: nothing else is so named
        "classes": names.count("class"),
        "bytes": len(data),
    }


def found_differently() -> list[str]:
    """All `.py` files by glob, then without the folders that the census leaves out."""
    skipped = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
    paths = [path.relative_to(STDLIB) for path in STDLIB.rglob("*.py")]
    return sorted(path.as_posix() for path in paths if not skipped & set(path.parts[:-1]))


async def test_census_totals_agree_with_an_independent_count(runner: Runner) -> None:
    files = await runner.run(make_call("census.list_files"))
    assert isinstance(files, list)
    assert len(files) > 300
    assert files == found_differently()
    counts: list[Any] = []
    expected = dict.fromkeys(("lines", "blank", "functions", "classes", "bytes"), 0)
    for path in files[::EVERY]:
        count = await runner.run(make_call("census.count_file", {"path": path}))
        other = counted_differently((STDLIB / str(path)).read_bytes())
        assert count == {"path": path, "error": None} | other
        counts.append(count)
        expected = {name: expected[name] + other[name] for name in expected}
    report: Any = await runner.run(make_call("census.reduce", counts))
    assert report["totals"] == {"files": len(counts), "errors": 0} | expected
    assert expected["functions"] > 100
    longest = sorted(counts, key=lambda c: (-c["lines"], c["path"]))[:10]
    assert report["longest"] == longest


async def test_definitions_agree_with_a_visitor_on_one_file(runner: Runner) -> None:
    class Visitor(ast.NodeVisitor):
        functions = classes = 0

        def visit(self, node: ast.AST) -> None:
            self.functions += type(node).__name__ in ("FunctionDef", "AsyncFunctionDef")
            self.classes += type(node).__name__ == "ClassDef"
            self.generic_visit(node)

    visitor = Visitor()
    visitor.visit(ast.parse((STDLIB / "asyncio" / "tasks.py").read_bytes()))
    count: Any = await runner.run(make_call("census.count_file", {"path": "asyncio/tasks.py"}))
    assert (count["functions"], count["classes"]) == (visitor.functions, visitor.classes)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree with everything that is easily counted wrong."""
    files = {
        "a.py": b"",
        "b.py": b"class A:\r\n    async def f(self):\r\n\r\n        def g(): pass",
        "bad.py": b"def broken(:\n\n",
        "nul.py": b"x = 1\x00\n",
        "latin.py": b"# coding: latin-1\nx = '\xfc'\n",
        "pkg/c.py": b"x = 1\n \t\n\x0c\n",
        "pkg/readme.txt": b"no source\n",
        "pkg/__pycache__/c.py": b"",
        "site-packages/d.py": b"",
        "tests/test_a.py": b"def test(): pass\n",
    }
    for name, data in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "link.py").symlink_to(tmp_path / "b.py")
    (tmp_path / "loop").symlink_to(tmp_path)
    return tmp_path


async def test_list_files_skips_what_is_not_ours(runner: Runner, tree: Path) -> None:
    root = {"root": str(tree)}
    own = ["a.py", "b.py", "bad.py", "latin.py", "nul.py", "pkg/c.py"]
    assert await runner.run(make_call("census.list_files", root)) == own
    with_tests = root | {"includeTests": True}
    assert await runner.run(make_call("census.list_files", with_tests)) == [*own, "tests/test_a.py"]
    assert await runner.run(make_call("census.list_files", root | {"limit": 2})) == own[:2]


async def test_count_file_counts_odd_files(runner: Runner, tree: Path) -> None:
    async def count(path: str) -> dict[str, Any]:
        found: Any = await runner.run(
            make_call("census.count_file", {"root": str(tree), "path": path})
        )
        return found

    empty = {"lines": 0, "blank": 0, "functions": 0, "classes": 0, "bytes": 0, "error": None}
    assert await count("a.py") == {"path": "a.py"} | empty
    assert await count("b.py") == {
        "path": "b.py", "lines": 4, "blank": 1, "functions": 2, "classes": 1, "bytes": 57,
        "error": None,
    }  # fmt: skip
    assert (await count("pkg/c.py"))["blank"] == 2
    assert (await count("latin.py"))["error"] is None
    for broken in ("bad.py", "nul.py"):
        found = await count(broken)
        assert "Error" in found["error"]
        assert (found["functions"], found["lines"] > 0) == (0, True)


@pytest.mark.parametrize("path", ["../outside.py", "missing.py", "/etc/passwd", "pkg", ""])
async def test_count_file_stays_below_its_root(runner: Runner, tree: Path, path: str) -> None:
    (tree.parent / "outside.py").write_text("x = 1\n")
    call = make_call("census.count_file", {"root": str(tree), "path": path})
    failure = await failure_from(runner.run(call))
    assert (failure.type, failure.retryable) == ("FileMissing", False)


async def test_missing_root_is_permanent(runner: Runner, tmp_path: Path) -> None:
    call = make_call("census.list_files", {"root": str(tmp_path / "none")})
    failure = await failure_from(runner.run(call))
    assert (failure.type, failure.retryable) == ("FolderMissing", False)


async def test_report_is_written_whole_and_writing_again_changes_nothing(
    runner: Runner, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [
        await runner.run(make_call("census.count_file", {"root": str(tree), "path": path}))
        for path in ("b.py", "bad.py", "pkg/c.py")
    ]
    report: Any = await runner.run(make_call("census.reduce", counts))
    folder = tmp_path / "out" / "deep"
    call = make_call("census.write_report", {"report": report, "directory": str(folder)})
    written: Any = await runner.run(call)
    assert written == {
        "jsonPath": str(folder / "census.json"), "tablePath": str(folder / "census.txt"),
    }  # fmt: skip
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(first) == ["census.json", "census.txt"]  # nothing temporary is left
    assert json.loads(first["census.json"]) == report
    text = first["census.txt"].decode()
    assert re.search(r"^lines +9$", text, re.MULTILINE)
    assert re.search(r"^not parsed +1$", text, re.MULTILINE)
    assert re.search(r"^b\.py +4 +1 +2 +1$", text, re.MULTILINE)

    assert await runner.run(call) == written
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    assert (await failure_from(runner.run(call))).type == "OSError"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


async def test_reduce_of_nothing(runner: Runner) -> None:
    report: Any = await runner.run(make_call("census.reduce", []))
    assert report["longest"] == []
    assert set(report["totals"].values()) == {0}
