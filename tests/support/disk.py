"""SQLite files that do not wait for the disk: half of the time of a suite that commits some hundred
thousand times, and nothing that a test could see, because no test cuts the power. (A process that
is killed loses nothing: what it wrote is the operating system's.) That the product's files do wait
is `tests/contract/test_sqlite_store.py`'s to show."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.adapters.local import sqlite_common, sqlite_store

connect = sqlite_common.connect
"""The product's own."""


def _quick(path: Path, *, durable: bool, checkpoint_pages: int) -> sqlite3.Connection:
    return connect(path, durable=False, checkpoint_pages=checkpoint_pages)


@contextmanager
def not_waited_for() -> Generator[None]:
    """For files that are opened in this process."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (sqlite_common, sqlite_store):
            patch.setattr(module, "connect", _quick)
        yield
