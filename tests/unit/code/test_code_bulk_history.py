"""Weft's own code workflow decides as it did: a bulk operation may be running while an app is
deployed. The recording stands for one; do not record it anew (`tests/support/bulks.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from activities.code import bulk
from activities.code.driver import functions
from orchestrator.local.durable import recordings
from orchestrator.local.durable.replay_check import Divergence, check
from orchestrator.local.durable.replay_files import plain
from tests.support.bulks import registry

KEPT = Path(__file__).parents[2] / "upgrade" / "own_histories" / "bulk.json"
pytestmark = pytest.mark.filterwarnings("ignore:azure.functions df_:DeprecationWarning")


def checked() -> Divergence | None:
    recording = recordings.read(KEPT.read_text(encoding="utf-8"))
    drives = {one.name: one for one in functions(registry())}
    assert len(recording.steps) > 2
    return check(recording, plain(drives[recording.identity.name]))


def test_a_running_bulk_operation_goes_on_under_the_code_as_it_is() -> None:
    assert checked() is None


@pytest.mark.parametrize(("name", "value"), [("PART", 300), ("BULK_FUNCTION", "weft_other")])
def test_a_change_of_what_it_yields_is_seen(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    monkeypatch.setattr(bulk, name, value)
    assert checked() is not None
