"""Recorded histories of the samples: the code decides as it did, and a change of it shows.

The files under `tests/upgrade/histories/` stand for executions that are running somewhere. A test
that fails here says that a change breaks them: give the changed workflow its next version, and do
not record them anew.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from activities.code.driver import functions
from activities.code.registry import CodeRegistry
from orchestrator.local.durable import recordings, steps
from orchestrator.local.durable.replay_check import Divergence, check
from orchestrator.local.durable.replay_files import Checked, check_files, plain
from tests.support import azure_history
from tests.support.code_samples import CALLED, SCENARIOS, load
from tests.support.durable_hand import Hand, envelope

HISTORIES = Path(__file__).parents[2] / "upgrade" / "histories"
pytestmark = pytest.mark.filterwarnings("ignore:azure.functions df_:DeprecationWarning")


@cache
def code(module: str, *changes: tuple[str, str]) -> CodeRegistry:
    return load(module, *changes).code


def checked(name: str, *changes: tuple[str, str], file: Path | None = None) -> Checked:
    scenario = SCENARIOS[name]
    paths = [file or HISTORIES / f"{name}.json"]
    (found,) = check_files(code(scenario.module, *changes), scenario.workflow, paths).checked
    assert found.problem == ""
    return found


def as_azure(name: str, folder: Path, **given: bool) -> Path:
    body = json.loads((HISTORIES / f"{name}.json").read_text(encoding="utf-8"))
    file = folder / "azure.json"
    file.write_text(json.dumps(azure_history.answer(body, **given)), encoding="utf-8")
    return file


def test_every_scenario_is_recorded() -> None:
    calls = {f"{name}.call" for name in CALLED}
    assert {file.stem for file in HISTORIES.glob("*.json")} == set(SCENARIOS) | calls


@pytest.mark.parametrize(
    ("name", "taken"),
    [("report-retried", ["activity sales.total", "timer", "activity sales.total"]),
     ("parcel", ["activity parcels.book with retry", "timer"])],
)  # fmt: skip
def test_instances_below_decide_as_recorded(name: str, taken: list[str]) -> None:
    """Of `weft_call`, which tries an activity again, and of a child."""
    recording = recordings.read((HISTORIES / f"{name}.call.json").read_text(encoding="utf-8"))
    assert [steps.step_of(one).what for one in recording.steps.values()] == taken
    drives = {one.name: one for one in functions(code(SCENARIOS[name].module))}
    assert check(recording, plain(drives[recording.identity.name])) is None


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_code_still_decides_as_recorded(name: str) -> None:
    found = checked(name)
    assert found.divergence is None
    assert found.steps > 0


@pytest.mark.parametrize("inputs", [True, False], ids=["inputs", "start only"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_so_does_what_durable_answers(name: str, inputs: bool, tmp_path: Path) -> None:
    file = as_azure(name, tmp_path)
    if not inputs:  # as an older extension answers
        body = json.loads(file.read_text(encoding="utf-8"))
        for event in body["historyEvents"]:
            if event["EventType"] != "EventRaised":
                event.pop("Input", None)
        file.write_text(json.dumps(body), encoding="utf-8")
    assert checked(name, file=file).divergence is None


REORDERED = (
    """        mails.append(template)
        yield ctx.call_activity("trials.mail", Mail(customer=trial.customer, template=template))
""",
    """        yield ctx.sleep("1h")
        mails.append(template)
        yield ctx.call_activity("trials.mail", Mail(customer=trial.customer, template=template))
""",
)
CHANGES: list[tuple[str, tuple[str, str], int | None, str, str]] = [
    # a step more
    (
        "trial-ended", REORDERED, 0,
        "activity trials.mail", "timer until 2027-01-15T09:00:00.000000Z",
    ),
    # another timer
    (
        "trial-waiting", ("(7, ", "(8, "), 1,
        "timer until 2027-01-22T08:00:00.000000Z", "timer until 2027-01-23T08:00:00.000000Z",
    ),
    # another name
    (
        "expense-reminded", ('"expenses.remind", expense)', '"expenses.ask", expense)'), 2,
        "activity expenses.remind", "activity expenses.ask",
    ),
    # a step less, with a signal where the step was
    (
        "expense-reminded",
        ('            yield ctx.call_activity("expenses.remind", expense)\n', ""), 2,
        "activity expenses.remind", "timer until 2027-01-20T08:00:00.000000Z",
    ),
    # another signal
    (
        "expense-approved", ('_signal("decision"', '_signal("answer"'), None,
        "took the signal decision",
        "waits for the signal answer or timer until 2027-01-17T08:00:00.000000Z",
    ),
    # an activity without its retries
    (
        "expense-approved", ('"expenses.ask", expense, retry=AGAIN)', '"expenses.ask", expense)'),
        0, "activity expenses.ask with retry", "activity expenses.ask",
    ),
    # the end
    (
        "expense-late", ("approved=approved, by=by", "approved=not approved, by=by"), None,
        "ended: output.approved is false", "ends: output.approved is true",
    ),
    # another input
    (
        "report", ("[Part(month=query.month", '[Part(month="2026-01"'), 0,
        'activity sales.total with retry: call.input.month is "2026-11"',
        'activity sales.total with retry: call.input.month is "2026-01"',
    ),
    # another order of the same steps
    (
        "report", ("in query.regions]", "in sorted(query.regions)]"), 0,
        'activity sales.total with retry: call.input.region is "south"',
        'activity sales.total with retry: call.input.region is "north"',
    ),
    # one after the other instead of all at once
    (
        "parcel", ("yield ctx.all(list(children.values()))", "yield children['p1']"), 1,
        "workflow parcel-delivery version 1",
        "waits for workflow parcel-delivery version 1",
    ),
    (
        "report",
        (
            'yield ctx.all([ctx.call_activity("sales.total", part, retry=again) '
            "for part in parts])",
            "[]\n    for part in parts:\n"
            '        totals.append((yield ctx.call_activity("sales.total", part, retry=again)))',
        ),
        1, "activity sales.total with retry", "waits for activity sales.total with retry",
    ),
    # another version of a child
    ("parcel", ("one, version=1", "one"), 0,
     "workflow parcel-delivery version 1", "workflow parcel-delivery"),
    # a generation that ends earlier
    ("poll-waiting", ("range(poll.per_generation)", "range(1)"), 2,
     "activity exports.look", "goes on as new"),
    # a failure instead
    ("poll-waiting", ("looks >= poll.at_most", "looks >= 2"), 3,
     "timer until 2027-01-15T08:01:00.000000Z", "word to Weft that it ends"),
    # a step at once, that came later
    (
        "poll-waiting",
        (
            'found = yield ctx.call_activity("exports.look", poll.path)',
            'found, _ = yield ctx.all([ctx.call_activity("exports.look", poll.path),'
            " ctx.sleep(poll.every)])",
        ),
        1, "timer until 2027-01-15T08:00:30.000000Z, later",
        "timer until 2027-01-15T08:00:30.000000Z, at once",
    ),
    # another failure
    ("poll-never", ('type="NeverReady"', 'type="Gone"'), None,
     "fails: NeverReady: not there after 6 looks", "fails: Gone: not there after 6 looks"),
    # what differs from one run to the next
    ("poll-found", ('"exports.look", poll.path', '"exports.look", str(object())'), 0,
     'activity exports.look: input is "export.csv"', "activity exports.look: input is"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "step", "recorded", "current"),
    CHANGES,
    ids=[f"{one[0]}-{place}" for place, one in enumerate(CHANGES)],
)
def test_a_change_is_told_with_both_sides(
    name: str, change: tuple[str, str], step: int | None, recorded: str, current: str
) -> None:
    found = checked(name, change).divergence
    assert found is not None
    assert (found.step, found.recorded) == (step, recorded)
    assert found.current.startswith(current)
    assert found.hint


IN_SIGHT = [
    one for one in CHANGES if "at once" not in one[4] and not re.match(r"waits for [aw]", one[4])
]
"""Durable's answer does not say what was done in which turn."""


@pytest.mark.parametrize(
    ("name", "change"),
    [one[:2] for one in IN_SIGHT],
    ids=[f"{one[0]}-{place}" for place, one in enumerate(IN_SIGHT)],
)
def test_it_is_also_seen_in_what_durable_answers(
    name: str, change: tuple[str, str], tmp_path: Path
) -> None:
    assert checked(name, change, file=as_azure(name, tmp_path)).divergence is not None


def test_the_first_step_that_is_missing_is_told(tmp_path: Path) -> None:
    """Although the code takes it later, when a signal comes."""
    ask = '    yield ctx.call_activity("expenses.ask", expense, retry=AGAIN)\n'
    file = as_azure("expense-reminded", tmp_path)
    first = checked(
        "expense-reminded", (ask, '    yield ctx.wait_for_signal("decision")\n' + ask), file=file
    ).divergence
    assert first is not None
    assert (first.step, first.recorded) == (0, "activity expenses.ask with retry")
    assert first.current == "waits for the signal decision"


def test_a_step_in_flight_that_is_no_longer_taken_is_told(tmp_path: Path) -> None:
    body = json.loads((HISTORIES / "expense-approved.json").read_text(encoding="utf-8"))
    places = [n for n, event in enumerate(body["history"]) if event.get("EventId") == 2]
    body["history"] = body["history"][: places[0] + 1]  # the payment has begun
    file = tmp_path / "azure.json"
    file.write_text(json.dumps(azure_history.answer(body)), encoding="utf-8")
    assert checked("expense-approved", file=file).divergence is None
    other = ('_signal("decision"', '_signal("answer"')
    found = checked("expense-approved", other, file=file).divergence
    assert found is not None
    assert (found.step, found.recorded) == (2, "activity expenses.pay with retry")
    assert found.current.startswith("waits for the signal answer or timer until")


def test_a_second_more_is_seen_where_times_are_recorded(tmp_path: Path) -> None:
    change = ('every: str = "30s"', 'every: str = "31s"')
    found = checked("poll-waiting", change).divergence
    assert found is not None
    assert found.step == 1
    file = as_azure("poll-waiting", tmp_path)
    assert checked("poll-waiting", change, file=file).divergence is None


@pytest.mark.parametrize("other", ["true", "1.0", '"1"', "[1]", "null"])
def test_a_one_is_a_one(other: str) -> None:
    assert steps.apart("1", "1", exact=True, path="") is None
    found = steps.apart('{"n": 1}', f'{{"n": {other}}}', exact=True, path="")
    assert found == ("n", "1", other)


def test_a_replay_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert checked("parcel").divergence is None
    assert caplog.records == []
    logging.getLogger("weft.code.parcel").warning("and is heard again after")
    assert len(caplog.records) == 1


def test_what_only_computes_may_be_changed() -> None:
    change = ("ranked = yield", "ctx.set_status('ranking'); ranked = yield")
    assert checked("report", change).divergence is None


def test_a_random_decision_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    names: Iterator[str] = iter(["expenses.ask", *["expenses.other"] * 20])
    monkeypatch.setattr("builtins.pick", lambda: next(names), raising=False)
    found = checked("expense-late", ('"expenses.ask", expense', "pick(), expense")).divergence
    assert found is not None
    assert found.recorded == "activity expenses.ask with retry, at first"
    assert found.current == "activity expenses.other with retry"


def test_a_version_that_is_gone_is_a_divergence() -> None:
    found = checked("expense-waiting", ('"expense", input', '"expense", 2, input')).divergence
    assert found is not None
    assert (found.recorded, "not deployed" in found.current) == ("version 1", True)


def test_another_version_may_be_held_against_it() -> None:
    registry = code("expense", ('"expense", input', '"expense", 2, input'))
    report = check_files(registry, "expense", [HISTORIES], 2)
    assert (report.count("same"), report.skipped) == (5, 12)
    with pytest.raises(KeyError, match="version 3 is not deployed"):
        check_files(registry, "expense", [HISTORIES], 3)
    with pytest.raises(KeyError, match="no code workflow parcel here"):
        check_files(registry, "parcel", [HISTORIES])


# --- timers of months, as Durable's host splits them ----------------------------------------------


def split(until: int) -> dict[str, Any]:
    """A trial by hand, on a host that knows no timer beyond six days: `until` timers have fired."""
    hand = Hand(
        code("trial_period"), "code_trial-period_v1", envelope("trial-period", {"customer": "Ada"})
    )
    hand.gives(0).turn()
    fired = 0
    while fired < until:
        number = max(hand.asked)
        if hand.asked[number]["actionType"] == 5:
            hand.fires(number).turn()
            fired += 1
        else:
            hand.gives(number, False).turn()
    history: list[dict[str, Any]] = []
    for event in hand.history:
        more: dict[str, Any] = {}
        if event["EventType"] in (4, 10):
            asked = hand.asked[event["EventId"]]
            more = {"FireAt": asked["fireAt"]} if "fireAt" in asked else {"Input": asked["input"]}
        history.append({**event, **more})
    return azure_history.answer({"instanceId": "e1", "history": history})


def test_long_timers_are_told_as_the_host_split_them(tmp_path: Path) -> None:
    file = tmp_path / "split.json"
    file.write_text(json.dumps(split(12)), encoding="utf-8")
    recording = recordings.read(file.read_text(encoding="utf-8"))
    assert recording.settings == recordings.LONG_TIMERS
    assert checked("trial-waiting", file=file).divergence is None
    found = checked("trial-waiting", ("trial.days - 7", "trial.days - 60"), file=file).divergence
    assert isinstance(found, Divergence)
    assert found.recorded.startswith("timer until")


def test_times_are_known_to_a_moment_only(tmp_path: Path) -> None:
    body = split(3)
    for event in body["historyEvents"]:
        if event["EventType"] == "TaskCompleted":  # a slow turn
            at = recordings.ev.milliseconds(event["Timestamp"])
            event["Timestamp"] = recordings.ev.timestamp(at - 20_000)
    file = tmp_path / "slow.json"
    file.write_text(json.dumps(body), encoding="utf-8")
    assert checked("trial-waiting", file=file).divergence is None


# --- files that cannot be used --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        ("{}", "holds no history"),
        ('{"history": [1]}', "EventType"),
        ('{"history": [{"EventType": 12, "Timestamp": "x"}]}', "not as expected"),
        ('{"history": [{"EventType": 13}]}', "ExecutionStarted"),
        ('{"instanceId": "i", "history": [{"EventType": 0}]}', "not as expected"),
        (
            '{"historyEvents": [{"EventType": "ExecutionStarted", "FunctionName": "f",'
            ' "Timestamp": "2026-11-30T12:00:00Z"}]}',
            "the input is missing; ask Durable with ?showHistory=true",
        ),
        (
            '{"input": 1, "historyEvents": [{"EventType": "ExecutionStarted", "FunctionName": "f",'
            ' "Timestamp": "2026-11-30T12:00:00Z"}, {"EventType": "TimerFired",'
            ' "Timestamp": "2026-11-30T12:00:00Z", "FireAt": "2026-11-30T12:00:00Z"}]}',
            "never created",
        ),
    ],
)
def test_what_is_no_history_is_told(text: str, said: str) -> None:
    with pytest.raises(recordings.Unusable, match=said.replace("?", r"\?")):
        recordings.read(text)


def test_answers_without_results_or_payloads_are_told(tmp_path: Path) -> None:
    for given, said in (
        ({"results": False}, "results are missing"),
        ({"inputs": False}, "missing"),
    ):
        text = as_azure("expense-approved", tmp_path, **given).read_text(encoding="utf-8")
        with pytest.raises(recordings.Unusable, match=said):
            recordings.read(text)
