"""Recorded histories against the code as it is: what `rehearse` gives, and how a change shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from orchestrator.local.durable import events as ev
from orchestrator.local.durable.driver import Machine
from orchestrator.local.durable.protocol import Identity, Turn, divergence, drive
from orchestrator.local.durable.retelling import first_difference, rehearse
from tests.support.durable_app import BROKEN, app
from tests.support.durable_hub import NOW, raised, run, start

OURS = {"Retry", "RetryOf", "Own"}


def scheduled(events: list[ev.Event]) -> list[tuple[int, int, Any]]:
    return [
        (e["EventType"], e["EventId"], e.get("Name", e.get("FireAt")))
        for e in events
        if e["EventType"] in ev.SCHEDULED
    ]


@pytest.mark.parametrize("name", ["chain", "fan", "race", "retries", "catches", "parent", "nap"])
@pytest.mark.parametrize("plain", [False, True], ids=["ours", "as on Azure"])
async def test_history_of_the_same_code_comes_out_again(
    tmp_path: Path, name: str, plain: bool
) -> None:
    BROKEN.update(one=1, two=2, always=9)
    payload = '"1"' if name == "chain" else None
    world = await run(app, tmp_path / "d.db", [start(name, payload), raised("approval", at=5)])
    history = world.history()
    if plain:  # what another host recorded has no marks of ours
        history = [{k: v for k, v in event.items() if k not in OURS} for event in history]
    who = Identity(name=name, instance="i", execution="i-x0", payload=payload)
    function = world.hub.plain(name)
    assert function is not None
    told = drive(rehearse(who, history), function)
    assert scheduled(told.scheduled) == scheduled(history)
    assert first_difference(history, told) is None
    assert told.outcome is not None
    status, output, custom = world.seen()
    assert (told.outcome.status, told.outcome.value, told.custom_status) == (status, output, custom)


async def test_a_prefix_tells_what_comes_next(tmp_path: Path) -> None:
    world = await run(app, tmp_path / "d.db", [start("race")], until=1)
    who = Identity(name="race", instance="i", execution="i-x0")
    function = world.hub.plain("race")
    assert function is not None
    told = drive(rehearse(who, world.history()), function)
    assert told.outcome is None
    assert [kind for kind, _, _ in scheduled(told.scheduled)] == [ev.TIMER_CREATED]


@pytest.mark.parametrize(
    ("recorded", "code", "said"),
    [
        ("fan", "chain", "task 2 was TaskScheduled double; the code as it is now does nothing"),
        ("chain", "fan", "task 1 was nothing"),
        ("race", "fan", "task 0 was TimerCreated; the code as it is now does TaskScheduled double"),
        ("fails", "one_double", "it ended as Failed; the code as it is now ends as Completed"),
    ],
)
async def test_first_difference(tmp_path: Path, recorded: str, code: str, said: str) -> None:
    payload = '"1"' if recorded == "chain" else None
    world = await run(app, tmp_path / "d.db", [start(recorded, payload)], until=1)
    history = world.history()
    if recorded == "chain":  # its first turn alone
        history = history[: [e["EventType"] for e in history].index(13) + 1]
    function = df.Orchestrator.create(one_double) if code == "one_double" else world.hub.plain(code)
    assert function is not None
    who = Identity(name=code, instance="i", execution="i-x0", payload=payload or '"1"')
    told = drive(rehearse(who, history), function)
    assert (first_difference(history, told) or "").startswith(said)


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
