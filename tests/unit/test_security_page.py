"""`docs/security.md` names a control and a test for each threat; each of them must be there."""

from __future__ import annotations

import re

from tests.support.named import ROOT, missing, named_in

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Threats\n", 1)[1].split("\n## ", 1)[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in SECTION.splitlines()
    if re.match(r"\| \d+ \|", line)
]
ZONES = {
    *("callers", "issuers", "queues", "definitions", "activities", "egress"),
    *("storage", "logs", "supply chain", "operators", "machine"),
}


def test_threats_are_numbered_and_of_every_zone() -> None:
    assert [row[0] for row in ROWS] == [str(n) for n in range(1, len(ROWS) + 1)]
    assert len(ROWS) >= 25
    assert {row[1] for row in ROWS} == ZONES


def test_every_threat_has_a_control_and_a_test_that_exists() -> None:
    for row in ROWS:
        assert len(row) == 5, row
        assert len(row[3]) > 20, row
        assert named_in(row[4]), row
        assert missing(row[4]) == [], row
