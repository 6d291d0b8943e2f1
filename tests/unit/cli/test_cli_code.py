"""`weft code lint`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

BAD = """
import time
from activities import code_workflow

@code_workflow("flow")
def flow(ctx):
    time.sleep(1)
    yield ctx.sleep("1s")
"""


def test_findings_are_told_with_place_and_mend(weft: Any, tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(BAD)
    found = weft("code", "lint", str(tmp_path))
    assert found.exit_code == 1
    assert f"{file}:7:5: sleep: time.sleep; use `yield ctx.sleep(…)`" in found.stdout
    (problem,) = json.loads(weft("code", "lint", str(file), "--json").stdout)["problems"]
    assert (problem["line"], problem["code"]) == (7, "sleep")


def test_a_clean_folder_is_said_to_be_clean(
    weft: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "activities").mkdir()
    monkeypatch.chdir(tmp_path)
    done = weft("code", "lint")
    assert (done.exit_code, done.stdout.strip()) == (0, "nothing found")


def test_what_cannot_be_read_is_told(weft: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("@code_workflow\ndef (")
    for path in (tmp_path / "none.py", tmp_path / "bad.py"):
        failed = weft("code", "lint", str(path))
        assert failed.exit_code == 2
        assert path.name in failed.stderr
