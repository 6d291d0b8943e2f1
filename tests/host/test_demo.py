"""What `make demo` runs, as a newcomer runs it: a process that starts a platform of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tokenize
from collections import Counter
from pathlib import Path

import httpx
import pytest

REPOSITORY = Path(__file__).parents[2]
# A part of the standard library: real files, few enough for a test.
ROOT = Path(sysconfig.get_path("stdlib"), "email")


def command(root: Path, output: Path) -> list[str]:
    call = f"demo.run(root={str(root)!r}, output=Path({str(output)!r}))"
    code = f"import sys; from pathlib import Path; from orchestrator.local import demo; {call}"
    return [sys.executable, "-c", code.replace(call, f"sys.exit({call})")]


def independent_count(root: Path) -> dict[str, int]:
    """The census by the tokenizer, not by `ast`, and without any of the sample's code."""
    totals: Counter[str] = Counter()
    for path in root.rglob("*.py"):
        if {"test", "tests", "__pycache__"} & set(path.relative_to(root).parts):
            continue
        totals["files"] += 1
        totals["bytes"] += path.stat().st_size
        with tokenize.open(path) as file:
            lines = file.readlines()
        totals["lines"] += len(lines)
        totals["blank"] += sum(not line.strip() for line in lines)
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.NAME:
                    totals["functions"] += token.string == "def"
                    totals["classes"] += token.string == "class"
    return dict(totals)


def test_demo_runs_the_census_and_its_totals_agree_with_an_independent_count(
    tmp_path: Path,
) -> None:
    expected = {**independent_count(ROOT), "errors": 0}
    for _ in range(2):  # also when run twice
        done = subprocess.run(
            command(ROOT, tmp_path), cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        report = json.loads((tmp_path / "census.json").read_text())
        assert report["totals"] == expected
        table = (tmp_path / "census.txt").read_text()
        for line in table.splitlines():
            assert line.rstrip() in done.stdout
        assert "Verified: " in done.stdout
        assert f"{expected['files']} files, {expected['lines']:,} lines" in done.stdout
        assert "executionCompleted" in done.stdout
        assert "\x1b" not in done.stdout


def test_demo_whose_execution_fails_exits_1_and_shows_why(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path / "nothing", tmp_path),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FolderMissing" in done.stdout
    assert "executionFailed" in done.stdout
    assert "Totals" not in done.stdout


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted_demo_stops_its_platform_and_leaves_no_data(tmp_path: Path, name: str) -> None:
    process = subprocess.Popen(
        command(ROOT.parent, tmp_path),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    assert process.stdout is not None
    url = ""
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            url = found[0]
        if "Started" in line:
            process.send_signal(getattr(signal, name))
            break
    rest, errors = process.communicate()
    assert process.returncode == 130, rest + errors
    assert "Traceback" not in errors
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/live")
    assert list(tmp_path.glob("weft-demo-*")) == []
