"""Tests that a page of the documentation names: `tests/…py::name`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def named_in(text: str) -> list[tuple[str, str]]:
    """File and function of each test that `text` names."""
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)


def missing(text: str) -> list[str]:
    """Those among them that do not exist."""
    return [f"{file}::{test}" for file, test in named_in(text) if test not in _functions(file)]


@cache
def _functions(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.exists():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))
