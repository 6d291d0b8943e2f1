"""Recorded histories against the code as it is, and what a machine makes of what it hears."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from orchestrator.local.durable import events as ev
from orchestrator.local.durable.driver import Machine
from orchestrator.local.durable.protocol import Identity, Turn, divergence, drive
from orchestrator.local.durable.recordings import Recording, read
from orchestrator.local.durable.replay_check import check
from tests.support.code_samples import recording_of
from tests.support.durable_app import BROKEN, app
from tests.support.durable_hub import NOW, Run, raised, run, start

OURS = {"Retry", "RetryOf", "Own"}


def recording(world: Run, *, plain: bool = False, turns: int | None = None) -> Recording:
    """What the world has recorded; `plain`: without marks of ours, as another host does."""
    body = json.loads(recording_of(world))
    events = body["history"]
    if turns is not None:
        ends = [n for n, e in enumerate(events) if e["EventType"] == ev.ORCHESTRATOR_COMPLETED]
        events = events[: ends[turns - 1] + 1]
    if plain:
        events = [{k: v for k, v in event.items() if k not in OURS} for event in events]
    return read(json.dumps({**body, "history": events}))


@pytest.mark.parametrize("name", ["chain", "fan", "race", "retries", "catches", "parent", "nap"])
@pytest.mark.parametrize("plain", [False, True], ids=["ours", "as on Azure"])
async def test_the_same_code_decides_the_same(tmp_path: Path, name: str, plain: bool) -> None:
    BROKEN.update(one=1, two=2, always=9)
    payload = '"1"' if name == "chain" else None
    world = await run(app, tmp_path / "d.db", [start(name, payload), raised("approval", at=5)])
    function = world.hub.plain(name)
    assert function is not None
    recorded = recording(world, plain=plain)
    assert recorded.end is not None
    assert check(recorded, function) is None


async def test_a_prefix_will_do(tmp_path: Path) -> None:
    world = await run(app, tmp_path / "d.db", [start("race")], until=1)
    function = world.hub.plain("race")
    assert function is not None
    recorded = recording(world)
    assert [e["EventType"] for e in recorded.steps.values()] == [ev.TIMER_CREATED]
    assert check(recorded, function) is None


@pytest.mark.parametrize(
    ("recorded", "code", "step", "was", "now"),
    [
        ("fan", "chain", 0, "activity double: it is 0", "activity double: it is null"),
        ("chain", "fan", 0, "activity double: it is 1", "activity double: it is 0"),
        ("race", "fan", 0, "timer until", "activity double"),
        ("fails", "one_double", None, "fails: Orchestrator function", "returns null"),
        ("fan", "one_double", 0, "activity double: it is 0", "activity double: it is 1"),
        ("fails", "two_doubles", 1, "no further step", "activity double"),
        ("three_events", "ends", None, "was still running", "returns 7"),
    ],
)
async def test_first_difference(
    tmp_path: Path, recorded: str, code: str, step: int | None, was: str, now: str
) -> None:
    payload = '"1"' if recorded == "chain" else None
    world = await run(app, tmp_path / "d.db", [start(recorded, payload)], until=1)
    others = {"one_double": one_double, "two_doubles": two_doubles, "ends": ends}
    plain = others.get(code)
    function = df.Orchestrator.create(plain) if plain is not None else world.hub.plain(code)
    assert function is not None
    found = check(recording(world, turns=1 if recorded == "chain" else None), function)
    assert found is not None
    assert found.step == step
    assert found.recorded.startswith(was)
    assert found.current.startswith(now)


def ends(context: Any) -> Any:
    return 7
    yield


def two_doubles(context: Any) -> Any:
    yield context.call_activity("double", 1)
    yield context.call_activity("double", 2)


def one_double(context: Any) -> Any:
    yield context.call_activity("double", 1)


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (["a", "b"], None),
        (["a", "c"], "action 1 was TaskScheduled b; the code as it is now does TaskScheduled c"),
        (["b"], "action 0 was TaskScheduled a; the code as it is now does TaskScheduled b"),
        (["a"], "action 1 was TaskScheduled b; the code as it is now does not get there"),
        (["a", "b", "c"], None),
    ],
)
def test_first_divergence(calls: list[str], said: str | None) -> None:
    recorded = [ev.event(ev.TASK_SCHEDULED, NOW, n, Name=name) for n, name in enumerate("ab")]
    actions = [{"actionType": 0, "functionName": name} for name in calls]
    assert divergence(recorded, actions) == said


def machine(*news: ev.Event) -> tuple[Machine, Turn]:
    def waits(context: Any) -> Any:
        got = []
        for name in ("A", "B", "A"):
            got.append((yield context.wait_for_external_event(name)))
        return got

    one = Machine(Identity(name="waits", instance="i", execution="x"), [])
    function = df.Orchestrator.create(waits)
    turn = drive(one.turn([ev.started(NOW, "waits", None), *news], [], NOW), function)
    return one, turn


def test_events_are_handed_over_when_they_are_asked_for() -> None:
    """Out of order, two of one name early, another spelling: none lost, none twice."""
    one, turn = machine(
        *(
            ev.raised(NOW, name, json.dumps(name + n))
            for name, n in (("b", "1"), ("a", "1"), ("A", "2"), ("c", "1"))
        )
    )
    assert one.outcome is not None
    assert one.outcome.value == '["a1", "b1", "A2"]'
    assert [event["Name"] for event in turn.held] == ["c"]
    assert [e["Name"] for e in turn.events if e["EventType"] == ev.EVENT_RAISED] == ["A", "B", "A"]


def test_time_of_a_turn_never_goes_back() -> None:
    one, _ = machine()
    earlier = NOW - 5_000
    turn = drive(one.turn([], [], earlier), str)
    assert turn.events[0]["Timestamp"] == ev.timestamp(NOW)


def test_completions_that_nobody_waits_for_are_not_heard() -> None:
    one, _ = machine()
    before = list(one.history)
    turn = drive(one.turn([ev.completed(ev.TASK_COMPLETED, NOW, 7, "1")], [], NOW), str)
    assert [e["EventType"] for e in turn.events] == [
        ev.ORCHESTRATOR_STARTED,
        ev.ORCHESTRATOR_COMPLETED,
    ]
    assert len(one.history) == len(before) + 2


@pytest.mark.parametrize("text", ["2027-01-15T08:00:00.000001Z", "2027-01-15T08:00:00.0005"])
def test_times_are_rounded_up(text: str) -> None:
    assert ev.milliseconds(text) == NOW + 1
    assert ev.milliseconds(ev.timestamp(NOW)) == NOW
