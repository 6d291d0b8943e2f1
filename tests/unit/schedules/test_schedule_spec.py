"""What a schedule may say, and that every fault of it is told."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.errors import InvalidError
from orchestrator.domain.parsing import parse_yaml
from orchestrator.domain.schedule import render_input
from orchestrator.domain.schedule_spec import parse

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z
MINUTE = 60_000


def spec(**more: Any) -> dict[str, Any]:
    return {"name": "nightly", "workflow": "report", **more}


def faults(**more: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidError) as caught:
        parse(spec(**more), created_at=NOW)
    return [(detail.field, detail.code) for detail in caught.value.details]


@pytest.mark.parametrize(
    ("given", "field", "code"),
    [
        ({}, "$", "BAD_SCHEDULE"),
        ({"cron": "@daily", "interval": "1h"}, "$", "BAD_SCHEDULE"),
        ({"cron": "0 0 30 2 *"}, "$.cron", "NEVER_FIRES"),
        ({"cron": "0 0 0 * * *"}, "$.cron", "BAD_CRON"),
        ({"cron": "@daily", "timeZone": "Mars/Olympus"}, "$.timeZone", "BAD_TIME_ZONE"),
        ({"interval": "999ms"}, "$.interval", "BAD_VALUE"),
        ({"interval": 60}, "$.interval", "WRONG_TYPE"),
        ({"interval": "1 hour"}, "$.interval", "BAD_DURATION"),
        ({"at": "2027-06-01T09:00:00"}, "$.at", "BAD_TIME"),
        ({"at": "9999-06-01T09:00:00Z"}, "$.at", "BAD_TIME"),
        ({"at": 1_800_000_000}, "$.at", "BAD_TIME"),
        (
            {"cron": "@daily", "start": "2027-02-02T00:00:00Z", "end": "2027-02-01T00:00:00Z"},
            "$.end",
            "BAD_RANGE",
        ),
        ({"cron": "@daily", "anchor": "2027-02-02T00:00:00Z"}, "$.anchor", "BAD_VALUE"),
        ({"cron": "@daily", "misfire": "sometimes"}, "$.misfire", "BAD_VALUE"),
        ({"cron": "@daily", "misfire": {"catchUp": 0}}, "$.misfire", "BAD_VALUE"),
        ({"cron": "@daily", "misfire": {"catchUp": 1001}}, "$.misfire", "BAD_VALUE"),
        ({"cron": "@daily", "misfire": {"catchUp": True}}, "$.misfire", "BAD_VALUE"),
        ({"cron": "@daily", "misfire": {"catchUp": 1, "x": 1}}, "$.misfire", "BAD_VALUE"),
        ({"cron": "@daily", "overlap": "cancelprevious"}, "$.overlap", "BAD_VALUE"),
        ({"cron": "@hourly", "jitter": "1h"}, "$.jitter", "BAD_VALUE"),
        ({"cron": "@daily", "tags": {"a b": "x"}}, "$.tags['a b']", "TAG_NAME"),
        ({"cron": "@daily", "tags": {"a": 1}}, "$.tags.a", "WRONG_TYPE"),
        ({"cron": "@daily", "input": {"x": "${nope.y}"}}, "$.input.x", "UNKNOWN_NAME"),
        ({"cron": "@daily", "input": "${secrets.KEY}"}, "$.input", "UNKNOWN_NAME"),
        ({"cron": "@daily", "input": "${1 +}"}, "$.input", "BAD_EXPRESSION"),
        ({"cron": "@daily", "input": "x" * 70_000}, "$.input", "INPUT_TOO_LARGE"),
        ({"cron": "@daily", "overlaps": "skip"}, "$.overlaps", "UNKNOWN_FIELD"),
        ({"cron": "@daily", "name": "Nightly"}, "$.name", "BAD_NAME"),
        ({"cron": "@daily", "version": 0}, "$.version", "BAD_VALUE"),
    ],
)
def test_bad_input_is_told_with_its_place(given: dict[str, Any], field: str, code: str) -> None:
    assert (field, code) in faults(**given)


def test_every_fault_is_told_at_once_and_with_a_hint() -> None:
    with pytest.raises(InvalidError) as caught:
        parse(spec(cron="99 * * * *", timeZone="Europe/Berln", tags={"": ""}), created_at=NOW)
    assert [one.field for one in caught.value.details] == ["$.timeZone", "$.cron", "$.tags['']"]
    assert "Europe/Berlin" in caught.value.details[0].hint
    with pytest.raises(InvalidError) as caught:
        parse(spec(cron="@daily", overlaps="skip"), created_at=NOW)
    assert 'did you mean "overlap"?' in caught.value.details[0].hint


@pytest.mark.parametrize("raw", [None, [], "x", 7])
def test_what_is_no_object_is_refused(raw: Any) -> None:
    with pytest.raises(InvalidError):
        parse(raw, created_at=NOW)


def first(count: int = 3, **given: Any) -> list[int]:
    return list(islice(parse(spec(**given), created_at=NOW).after(NOW), count))


def test_an_interval_is_counted_from_anchor_start_or_creation() -> None:
    assert first(interval="90m") == [NOW + n * 90 * MINUTE for n in (1, 2, 3)]
    assert first(interval="1h", start="2027-01-15T08:20:00Z")[0] == NOW + 20 * MINUTE
    assert first(interval="1h", anchor="2020-01-01T00:10:00Z")[0] == NOW + 10 * MINUTE
    later = first(interval="1h", anchor="2020-01-01T00:10:00Z", start="2027-01-15T09:10:00Z")
    assert later[0] == NOW + 70 * MINUTE


def test_start_and_end_are_ticks_too() -> None:
    span = {"start": "2027-01-15T09:00:00Z", "end": "2027-01-15T11:00:00Z"}
    plan = parse(spec(cron="@hourly", **span), created_at=NOW)
    assert list(plan.after(0)) == [NOW + n * 60 * MINUTE for n in (1, 2, 3)]
    assert plan.count(0, NOW + 10 * 60 * MINUTE) == 3
    assert plan.latest(0, NOW + 10 * 60 * MINUTE, 2) == list(plan.after(0))[1:]
    assert plan.count(NOW + 10 * 60 * MINUTE, NOW + 20 * 60 * MINUTE) == 0


def test_once_is_once() -> None:
    assert first(at="2027-01-15T10:00:00+01:00") == [NOW + 60 * MINUTE]
    plan = parse(spec(at="2027-01-15T10:00:00+01:00"), created_at=NOW)
    assert list(plan.after(NOW + 60 * MINUTE)) == []
    assert plan.latest(NOW, NOW + 60 * MINUTE, 5) == [NOW + 60 * MINUTE]


def test_the_input_knows_schedule_and_tick_and_data_is_never_compiled() -> None:
    plan = parse(
        spec(cron="@daily", input={"id": "${schedule.id}", "day": "${tick}", "raw": "$${tick}"}),
        created_at=NOW,
    )
    tick = "2027-01-16T00:00:00.000Z"
    assert render_input(plan, tick) == {"id": "nightly", "day": tick, "raw": "${tick}"}


ROOT = Path(__file__).parents[3]


def test_schedules_shown_in_samples_and_docs_are_right() -> None:
    texts = [path.read_text("utf-8") for path in ROOT.glob("samples/*/schedule.yaml")]
    page = (ROOT / "docs" / "schedules.md").read_text("utf-8")
    texts += re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(texts) > 1
    for text in texts:
        plan = parse(parse_yaml(text.encode()), created_at=NOW)
        assert render_input(plan, "2027-01-16T00:00:00.000Z")
