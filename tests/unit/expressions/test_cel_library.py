"""The expression library is imported without its command line tool."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = """
import sys
from orchestrator.domain import expressions
assert not {"cel.cli", "typer", "prompt_toolkit"} & set(sys.modules), "paid for at every start"
"""
THE_TOOL_IS_STILL_THERE = """
from orchestrator.domain import expressions
from cel import cli
import cel.cli
assert cli is cel.cli and cli.app
"""
AFTER_SOMEBODY_ELSE = """
import cel
tool = cel.cli
from orchestrator.domain import expressions
import sys
assert cel.cli is sys.modules["cel.cli"] is tool and tool.app
"""


@pytest.mark.parametrize("code", [LOADED, THE_TOOL_IS_STILL_THERE, AFTER_SOMEBODY_ELSE])
def test_importing_expressions(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
