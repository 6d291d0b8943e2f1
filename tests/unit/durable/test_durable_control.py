"""What clients do to instances: start, events, suspend, terminate, rewind, purge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.local.durable import clients, status
from orchestrator.local.durable import events as ev
from tests.support.durable_app import BROKEN, CALLS, app
from tests.support.durable_hub import NOW, Run, raised, start


@pytest.fixture
def world(tmp_path: Path) -> Run:
    return Run(app, tmp_path / "durable.db")


async def test_start_of_one_that_runs_is_refused_and_of_one_that_ended_begins_anew(
    world: Run,
) -> None:
    await world.go([start("race")], until=1)
    assert not clients.start(world.client, "i", "race", None, NOW, "e2")
    assert clients.terminate(world.client, "i", "enough", NOW)
    assert clients.start(world.client, "i", "chain", '"1"', NOW, "e2")
    await world.go()
    assert world.seen()[:2] == ("Completed", "8")


async def test_suspended_one_keeps_events_and_takes_no_turn(world: Run) -> None:
    await world.go([start("race")], until=1)
    turns = len(world.history())
    assert clients.suspend(world.client, "i", "wait", NOW, on=True)
    await world.go([raised("Approval", '"yes"')], until=1)
    assert world.status().shown == "Suspended"
    assert len(world.history()) == turns + 1  # ExecutionSuspended
    assert clients.suspend(world.client, "i", "go on", NOW, on=False)
    await world.go()
    assert world.seen()[:2] == ("Completed", '["yes", "in time"]')


async def test_timer_that_is_due_while_suspended_is_heard_before_a_later_event(world: Run) -> None:
    await world.go([start("race")], until=1)
    clients.suspend(world.client, "i", "", NOW, on=True)
    await world.go([raised("Approval", '"yes"', at=70_000)], until=100_000)
    clients.suspend(world.client, "i", "", NOW, on=False)
    await world.go()
    assert world.seen()[:2] == ("Completed", '"late"')


async def test_terminate_reaches_the_children_and_drops_what_comes(world: Run) -> None:
    start("parent").act(world.client, NOW)
    await world.hub.look()  # the parent's turn is under way
    assert clients.terminate(world.client, "i", "stop", NOW)
    await world.go()
    assert world.seen()[:2] == ("Terminated", '"stop"')
    assert not clients.terminate(world.client, "i", "again", NOW)
    assert not clients.raise_event(world.client, "i", "x", "1", NOW)
    assert clients.find(world.client, "the-child") is None  # that turn was never true


async def test_terminate_of_a_parent_ends_its_children(world: Run) -> None:
    start("parent").act(world.client, NOW)
    await world.hub.step()
    assert world.status("the-child").status == "Pending"
    clients.terminate(world.client, "i", "stop", NOW)
    await world.go()
    assert world.seen("the-child")[:2] == ("Terminated", '"stop"')
    assert CALLS["double"] == 0


async def test_rewind_does_again_what_failed_and_nothing_else(world: Run) -> None:
    BROKEN.update(mine=1, child=1)
    await world.go([start("two_tries")])
    assert world.status().status == "Failed"
    assert clients.take_up(world.client, "i", "fixed", NOW, world.hub.plain)
    await world.go()
    assert world.status().status == "Failed"  # now the sub-orchestration has
    assert clients.take_up(world.client, "i", "fixed", NOW, world.hub.plain)
    await world.go()
    assert world.seen()[:2] == ("Completed", '[42, "child done"]')
    assert (CALLS["double"], CALLS["mine"], CALLS["child"]) == (1, 2, 2)
    assert not clients.take_up(world.client, "i", "", NOW, world.hub.plain)


async def test_rewind_after_exhausted_retries(world: Run) -> None:
    """Numbers move up where the retries were: `double` was scheduled after a retry's timer."""
    BROKEN.update(one=3)
    await world.go([start("retries")])
    assert world.status().status == "Failed"
    assert clients.take_up(world.client, "i", "fixed", NOW, world.hub.plain)
    await world.go()
    assert world.seen()[:2] == ("Completed", '["one done", "two done", 8, 16]')
    assert (CALLS["one"], CALLS["two"], CALLS["double"]) == (4, 1, 2)


async def test_rewind_keeps_events_that_nobody_had_waited_for(world: Run) -> None:
    """Also one that comes while the failure is on its way; none after that."""
    BROKEN.update(frail=2)
    ticks = [raised("tick", f'"{n}"', at=1) for n in (1, 2)]
    await world.go([start("frail"), *ticks])
    for n in range(2):
        assert (world.status().status, CALLS["frail"]) == ("Failed", n + 1)
        assert not clients.raise_event(world.client, "i", "tick", '"late"', NOW)
        assert await world.hub.idle()
        assert clients.take_up(world.client, "i", "fixed", NOW, world.hub.plain)
        await world.go()
    assert world.status().status == "Running"
    clients.raise_event(world.client, "i", "tick", '"3"', NOW)
    await world.go()
    assert world.seen()[:2] == ("Completed", '["1", "2", "3"]')
    await world.go([start("frail")])  # anew: with nothing of what was
    assert world.status().status == "Running"


async def test_rewind_of_one_that_failed_by_itself_fails_again(world: Run) -> None:
    await world.go([start("fails")])
    assert clients.take_up(world.client, "i", "", NOW, world.hub.plain)
    await world.go()
    assert world.status().status == "Failed"
    assert CALLS["double"] == 1


async def test_purge_forgets_only_what_has_ended(world: Run) -> None:
    await world.go([start("fan"), start("race", instance="j")], until=1)
    assert clients.purge(world.client, ["i", "j", "k"]) == 1
    assert clients.find(world.client, "i") is None
    assert world.history("i") == []
    assert world.status("j").status == "Running"


async def test_history_as_the_extension_shows_it(world: Run) -> None:
    await world.go([start("two_tries")])
    events = world.history()
    shown = status.shown(world.status(), payload=True, events=events, results=True)
    assert [(e["EventType"], e.get("FunctionName")) for e in shown["historyEvents"]] == [
        ("ExecutionStarted", "two_tries"),
        ("TaskCompleted", "double"),
        ("TaskCompleted", "flaky"),
        ("SubOrchestrationInstanceCompleted", "one_try"),
        ("ExecutionCompleted", None),
    ]
    assert (shown["historyEvents"][1]["Input"], shown["historyEvents"][1]["Result"]) == (21, 42)
    assert not {"EventId", "IsPlayed", "Own"} & set(json.dumps(shown).split('"'))
    hidden = status.shown(world.status(), payload=False, events=events)
    assert not {"Input", "Result"} & {key for one in hidden["historyEvents"] for key in one}
    assert hidden["output"] == [42, "child done"]
    assert len(events) > len(shown["historyEvents"])
    assert events[0]["EventType"] == ev.ORCHESTRATOR_STARTED


async def test_one_that_was_suspended_before_its_first_turn(world: Run) -> None:
    start("chain", '"1"').act(world.client, NOW)
    assert clients.suspend(world.client, "i", "", NOW, on=True)
    await world.go()
    assert world.status().shown == "Suspended"
    assert CALLS["double"] == 0
    clients.suspend(world.client, "i", "", NOW, on=False)
    await world.go()
    assert world.seen()[:2] == ("Completed", "8")


async def test_a_child_under_an_id_that_is_taken_fails_in_its_parent(world: Run) -> None:
    await world.go([start("race", instance="the-child")], until=1)
    await world.go([start("parent")], until=2)
    status, output, _ = world.seen()
    assert status == "Failed"
    assert "an instance with the id 'the-child' has not ended" in str(output)
    assert world.status("the-child").name == "race"
