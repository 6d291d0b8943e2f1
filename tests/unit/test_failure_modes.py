"""`docs/failure-modes.md` promises a test for each way to fail; each of them must be there."""

from __future__ import annotations

import re

import pytest

from tests.support.named import ROOT, missing, named_in

PAGE = (ROOT / "docs" / "failure-modes.md").read_text(encoding="utf-8")
MODES = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
LEAST = 20


def test_there_are_enough_and_each_says_everything() -> None:
    assert len(MODES) >= LEAST
    for number, mode in enumerate(MODES, 1):
        assert mode.startswith(f"{number}. ")
        for part in ("Seen", "Done", "Shown by", "Risk left"):
            assert f"**{part}:**" in mode, (part, mode.splitlines()[0])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.splitlines()[0][:40])
def test_every_named_test_exists(mode: str) -> None:
    assert named_in(mode)
    assert missing(mode) == []
