"""Death after every write, and just before it: the same end, and nothing recorded is done twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.local.durable.store import DurableStore
from tests.support.durable_app import BROKEN, CALLS, app
from tests.support.durable_hub import Crash, Input, Run, every_crash, raised, start


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("chain", [start("chain", '"1"')]),
        ("fan", [start("fan")]),
        ("race", [start("race"), raised("APPROVAL", '"yes"', at=10)]),
        ("family", [start("family")]),
        ("fails", [start("fails")]),
        (
            "sums",
            [
                start("sums"),
                *[raised("add", str(n), at=n) for n in (1, 2)],
                raised("add", '"stop"', at=5),
            ],
        ),
        ("nap", [start("nap")]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_crash_at_every_write(tmp_path: Path, name: str, inputs: Sequence[Input]) -> None:
    assert await every_crash(app, tmp_path, inputs) > 2


async def test_crash_at_every_write_of_retries(tmp_path: Path) -> None:
    def begin(store: DurableStore, now: int) -> None:
        BROKEN.update(one=1)  # in each of the runs
        start("retries").act(store, now)

    assert await every_crash(app, tmp_path, [Input(0, begin)]) > 20


async def test_an_activity_whose_end_was_not_recorded_runs_again(tmp_path: Path) -> None:
    """And that the harness does see an activity's end that is recorded."""
    world = Run(app, tmp_path / "d.db", last=4, before=True)  # claim, turn, claim, the end of it
    await world.go([start("chain", '"1"')])
    assert (world.deaths, CALLS["double"]) == (1, 4)
    assert len(world.ledger.recorded) == 3


async def test_harness_notices_an_activity_that_runs_twice(tmp_path: Path) -> None:
    world = Run(app, tmp_path / "d.db")
    await world.go([start("chain", '"1"')])
    key = next(iter(world.ledger.recorded))
    with world.client.transaction() as db:
        db.execute(
            "INSERT INTO activities (instance, execution, task, name) VALUES (?, ?, ?, 'double')",
            key,
        )
    with pytest.raises(AssertionError, match="ran again"):
        await world.go()


def test_a_write_is_whole_or_not_there(tmp_path: Path) -> None:
    world = Run(app, tmp_path / "d.db", last=1, before=True)
    with pytest.raises(Crash), world.store.transaction() as db:
        db.execute("INSERT INTO timers VALUES ('i', 'x', 0, 0)")
    assert world.client.next_due(0) is None
