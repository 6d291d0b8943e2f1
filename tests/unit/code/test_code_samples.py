"""The samples below `samples/code/`: what comes out, and that no crash changes it."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.code.lint import lint_paths
from orchestrator.domain.orchestration_result import decode_output
from orchestrator.local.durable.replay_check import times_read_once
from tests.support import durable_hub
from tests.support.code_samples import CALLS, FOLDER, SCENARIOS, Stage
from tests.support.durable_hub import Run, every_crash, run

pytestmark = [
    pytest.mark.filterwarnings("error:Potential duplicate"),
    pytest.mark.filterwarnings("ignore:azure.functions df_:DeprecationWarning"),
]

ENDS: dict[str, Any] = {
    "poll-found": {"path": "export.csv", "bytes": 4_711, "looks": 3},
    "report": {
        "month": "2026-11",
        "cents": 19_035_247,
        "regions": [
            {"region": "north", "cents": 11_899_152},
            {"region": "south", "cents": 7_136_095},
        ],
    },
    "parcel": {"order": "o1", "tracking": {"p1": "p1-i:0.1:0:1"}, "refused": ["p2"]},
    "expense-approved": {"expense": "x1", "approved": True, "by": "Grace", "reminders": 0},
    "expense-reminded": {"expense": "x1", "approved": True, "by": "Grace", "reminders": 1},
    "expense-late": {"expense": "x1", "approved": False, "by": None, "reminders": 1},
    "trial-ended": {"customer": "Ada", "bought": False, "mails": ["welcome", "tips", "offer"]},
    "trial-bought": {"customer": "Grace!", "bought": True, "mails": ["welcome"]},
}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    await made.world.open()
    yield made
    await made.world.close()


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    CALLS.clear()
    logging.disable()  # of each death there is a traceback
    with times_read_once():
        yield
    logging.disable(logging.NOTSET)
    durable_hub.close_all()


@pytest.mark.parametrize("name", ENDS)
async def test_what_comes_out(stage: Stage, tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    world = await run(stage.app(scenario), tmp_path / "d.db", scenario.inputs())
    status, output, _ = world.seen()
    assert status == "Completed", output
    text, _ = decode_output(output)
    assert json.loads(text or "") == ENDS[name]
    assert set(CALLS.values()) == {1}


async def test_a_file_that_never_comes_is_a_failure(stage: Stage, tmp_path: Path) -> None:
    scenario = SCENARIOS["poll-never"]
    world = await run(stage.app(scenario), tmp_path / "d.db", scenario.inputs())
    status, output, shown = world.seen()
    assert (status, shown) == ("Failed", '{"looks": 5}')
    assert "NeverReady: not there after 6 looks" in str(output)


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("poll-found", [False]),
        ("report", [False]),
        ("parcel", [False]),
        ("expense-reminded", [False]),
        ("trial-bought", [False, True]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_death_after_every_event_changes_nothing(
    stage: Stage, tmp_path: Path, name: str, sides: list[bool]
) -> None:
    """Every write holds the events of one turn, or one end of an activity. `MortalStore` refuses to
    hand out an activity whose end is recorded. Counted by idempotency key: after a write nothing
    runs twice, just before it only the one that was under way."""
    scenario = SCENARIOS[name]
    again: list[int] = []

    def judge(world: Run) -> None:
        more = [count - 1 for count in CALLS.values() if count > 1]
        assert sum(more) <= world.deaths, dict(CALLS)
        again.append(sum(more))
        CALLS.clear()

    app = stage.app(scenario)
    deaths = await every_crash(app, tmp_path, scenario.inputs(), judge=judge, sides=sides)
    assert len(again) == deaths + 1
    assert max(again) == int(True in sides)


def test_no_sample_does_what_a_workflow_must_not() -> None:
    assert lint_paths([FOLDER]) == []
