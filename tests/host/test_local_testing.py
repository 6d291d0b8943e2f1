"""docs/testing.md says how users test their workflows: what it shows must run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.local.cli_faults import Fault
from orchestrator.local.testing import Platform, platform

ROOT = Path(__file__).parents[2]
SHOWN = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text("utf-8"), re.DOTALL
)


def test_what_the_page_shows_passes(tmp_path: Path) -> None:
    for at, shown in enumerate(SHOWN):
        (tmp_path / f"test_shown_{at}.py").write_text(shown)
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        [*pytest_, f"--rootdir={tmp_path}", "-c", os.devnull],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "4 passed" in done.stdout) == (0, True), done.stdout + done.stderr


def test_an_execution_that_does_not_end_says_what_it_waits_for(tmp_path: Path) -> None:
    definition = b'{"name": "w", "tasks": {"go": {"type": "signal", "signal": "go"}}}'
    with platform(tmp_path) as weft:
        weft.publish(definition, content_type="application/json", dry_run=False)
        with pytest.raises(TimeoutError, match=r"go \w+ING"):
            weft.run("w", seconds=0)


def test_a_platform_that_does_not_start_says_why(tmp_path: Path) -> None:
    wrong = {"WEFT_RETENTION": "sometimes"}
    with pytest.raises(Fault, match="WEFT_RETENTION"), platform(tmp_path, wrong) as weft:
        assert isinstance(weft, Platform)
