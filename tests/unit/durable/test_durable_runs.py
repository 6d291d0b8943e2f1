"""Orchestrations of the real library on the hub, from start to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.local.durable import clients
from orchestrator.local.durable import events as ev
from tests.support.durable_app import BROKEN, CALLS, app
from tests.support.durable_hub import NOW, Input, Run, raised, run, start


async def finished(tmp_path: Path, *inputs: Input) -> tuple[str, object]:
    world = await run(app, tmp_path / "durable.db", inputs)
    status = world.status()
    return status.status, json.loads(status.output or "null")


async def test_activities_one_after_the_other_and_custom_status(tmp_path: Path) -> None:
    world = await run(app, tmp_path / "d.db", [start("chain", '"3"')])
    assert world.seen() == ("Completed", "24", '{"at": 24}')
    assert CALLS["double"] == 3


async def test_activities_beside_each_other(tmp_path: Path) -> None:
    assert await finished(tmp_path, start("fan")) == ("Completed", 12)


@pytest.mark.parametrize(
    ("at", "result"), [(30_000, ["yes", "in time"]), (90_000, "late"), (None, "late")]
)
async def test_timer_against_event(tmp_path: Path, at: int | None, result: object) -> None:
    events = [] if at is None else [raised("approval", '"yes"', at=at)]
    assert await finished(tmp_path, start("race"), *events) == ("Completed", result)


async def test_events_that_come_early_are_handed_over_in_order(tmp_path: Path) -> None:
    events = [raised("tick", f'"{n}"') for n in range(3)]
    assert await finished(tmp_path, start("three_events"), *events) == (
        "Completed",
        ["0", "1", "2"],
    )


async def test_timer_of_forty_days(tmp_path: Path) -> None:
    assert await finished(tmp_path, start("nap")) == ("Completed", 40)


async def test_sub_orchestrations_know_their_parent(tmp_path: Path) -> None:
    world = await run(app, tmp_path / "d.db", [start("parent")])
    assert world.seen()[:2] == ("Completed", "[8, 40]")
    assert world.status("the-child").parent == "i"


async def test_failures_are_caught_with_the_extensions_words(tmp_path: Path) -> None:
    BROKEN["always"] = 99
    assert await finished(tmp_path, start("catches")) == (
        "Completed",
        [
            "Activity function 'flaky' failed: Result: Failure",
            "Orchestrator function 'fails' failed: on purpose",
            "Activity function 'nowhere' failed: Result: Failure",
            "Orchestrator function 'nobody' failed: The function 'nobody' doesn't exist, is "
            "disabled, or is not an orchestrator function.",
        ],
    )


async def test_orchestrator_that_raises_fails(tmp_path: Path) -> None:
    assert await finished(tmp_path, start("fails")) == (
        "Failed",
        "Orchestrator function 'fails' failed: on purpose",
    )


@pytest.mark.parametrize("one", [0, 1, 2])
@pytest.mark.parametrize("two", [0, 2])
async def test_retries_that_succeed(tmp_path: Path, one: int, two: int) -> None:
    BROKEN.update(one=one, two=two)
    assert await finished(tmp_path, start("retries")) == (
        "Completed",
        ["one done", "two done", 8, 16],
    )
    assert (CALLS["one"], CALLS["two"], CALLS["double"]) == (one + 1, two + 1, 2)


async def test_retries_that_are_exhausted(tmp_path: Path) -> None:
    BROKEN.update(one=9)
    status, output = await finished(tmp_path, start("retries"))
    assert status == "Failed"
    assert "one is broken" in str(output)
    assert CALLS["one"] == 3


async def test_sub_orchestration_with_retry(tmp_path: Path) -> None:
    BROKEN.update(child=2)
    assert await finished(tmp_path, start("retries_child")) == ("Completed", "child done")


async def test_continue_as_new_resets_the_history_and_keeps_events(tmp_path: Path) -> None:
    events = [raised("add", str(n)) for n in (1, 2, 3)] + [raised("add", '"stop"', at=5)]
    world = await run(app, tmp_path / "d.db", [start("sums"), *events])
    assert world.seen()[:2] == ("Completed", "6")
    started = [e for e in world.history() if e["EventType"] == ev.EXECUTION_STARTED]
    assert [json.loads(e["Input"]) for e in started] == ["6"]


async def test_what_the_embedded_mode_does_not_run_fails_with_its_name(tmp_path: Path) -> None:
    status, output = await finished(tmp_path, start("asks_http"))
    assert status == "Failed"
    assert "call_http" in str(output)


async def test_code_that_changed_under_a_history_is_told(tmp_path: Path) -> None:
    world = Run(app, tmp_path / "d.db")
    await world.go([start("race")], until=1)
    with world.client.transaction() as db:
        db.execute("UPDATE instances SET name = 'fan'")
    await world.go([raised("approval")])
    status, output, _ = world.seen()
    assert status == "Failed"
    assert "Non-Deterministic workflow detected: action 0 was TimerCreated" in str(output)


async def test_a_function_that_is_gone_is_told_whatever_the_history(tmp_path: Path) -> None:
    world = Run(app, tmp_path / "d.db")
    await world.go([start("race")], until=1)
    gone = world.hub.orchestrators.pop("race")
    await world.go([raised("Approval", '"yes"')])
    status, output, _ = world.seen()
    assert (status, "The function 'race' doesn't exist" in str(output)) == ("Failed", True)
    world.hub.orchestrators["race"] = gone
    assert clients.take_up(world.client, "i", "deployed again", NOW, world.hub.plain)
    await world.go()
    assert world.seen()[:2] == ("Completed", '["yes", "in time"]')
