"""Triggers: what is refused when they are stored, what they match, what they make of an event."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain import triggers
from orchestrator.domain.cloudevents import CloudEvent, structured
from orchestrator.domain.errors import InvalidError
from orchestrator.domain.triggers import TriggerFailed, compile_trigger

GOOD: dict[str, Any] = {
    "name": "big-orders",
    "workflow": "fulfil",
    "match": {"source": "/shop", "type": ["order.placed", "order.changed"]},
    "filter": "${event.data.total > 10.0}",
    "input": {"id": "${event.data.id}", "from": "order ${event.subject}"},
    "tags": {"region": "${event.data.region}", "kind": "order"},
}


def event(**changes: Any) -> CloudEvent:
    given = {
        "specversion": "1.0",
        "id": "1",
        "source": "/shop",
        "type": "order.placed",
        "subject": "orders/17",
        "data": {"id": 17, "total": 12.5, "region": "north"},
        **changes,
    }
    return structured(given)


def findings(**changes: Any) -> dict[str, str]:
    """Path -> code of what is wrong with `GOOD`, changed."""
    raw = {name: value for name, value in {**GOOD, **changes}.items() if value != "-"}
    with pytest.raises(InvalidError) as caught:
        compile_trigger(raw)
    return {detail.field: detail.code for detail in caught.value.details}


def test_a_trigger_matches_filters_and_maps() -> None:
    trigger = compile_trigger(GOOD)
    assert trigger.meets(event())
    assert trigger.passes(event())
    value, tags = trigger.mapped(event())
    assert value == {"id": 17, "from": "order orders/17"}
    assert tags == {"region": "north", "kind": "order"}
    assert not trigger.passes(event(data={"total": 1.0}))


def test_without_a_mapping_the_input_is_the_data() -> None:
    trigger = compile_trigger({k: v for k, v in GOOD.items() if k not in ("input", "filter")})
    assert trigger.passes(event())
    assert trigger.mapped(event())[0] == event().body["data"]
    assert trigger.mapped(event(data={"region": 1}))[1]["region"] == "1"


@pytest.mark.parametrize(
    ("match", "change", "meets"),
    [
        ({"source": "/shop"}, {}, True),
        ({"source": "/shop/"}, {}, False),
        ({"source": ["/a", "/shop"]}, {}, True),
        ({"type": "order.placed"}, {"type": "order.Placed"}, False),
        ({"subject": "orders/17"}, {}, True),
        ({"subject": "orders/1"}, {}, False),
        ({"subject": {"prefix": "orders/"}}, {}, True),
        ({"subject": {"suffix": "/17"}}, {}, True),
        ({"subject": {"prefix": "orders/", "suffix": ".png"}}, {}, False),
        ({"subject": {"prefix": "orders/"}}, {"subject": None}, False),
        ({"source": "/shop", "type": "other"}, {}, False),
    ],
)
def test_all_that_is_asked_for_must_hold(match: Any, change: Any, meets: bool) -> None:
    assert compile_trigger({**GOOD, "match": match}).meets(event(**change)) is meets


def test_every_problem_is_reported_at_once_with_path_and_hint() -> None:
    assert findings(
        name="Big Orders",
        workflow="-",
        match={"sources": "/shop", "type": []},
        filter="${event.data.total >}",
        input={"a": "${input.x}", "b": ["${secrets.KEY}"]},
        tags={"a b": "x", "long": "x" * 300},
        paused="no",
        colour="red",
    ) == {
        "$.name": "BAD_NAME",
        "$.workflow": "MISSING_FIELD",
        "$.match.sources": "UNKNOWN_FIELD",
        "$.match.type": "BAD_VALUE",
        "$.filter": "BAD_EXPRESSION",
        "$.input.a": "UNKNOWN_NAME",
        "$.input.b[0]": "UNKNOWN_NAME",
        "$.tags['a b']": "TAG_NAME",
        "$.tags.long": "TAG_TOO_LONG",
        "$.paused": "WRONG_TYPE",
        "$.colour": "UNKNOWN_FIELD",
    }
    with pytest.raises(InvalidError) as caught:
        compile_trigger({**GOOD, "match": {"sources": "/shop"}})
    assert caught.value.details[0].hint == 'did you mean "source"?'


@pytest.mark.parametrize(
    ("match", "path", "code"),
    [
        ({}, "$.match", "EMPTY_MATCH"),
        ({"subject": {}}, "$.match.subject", "EMPTY_MATCH"),
        ({"subject": {"exact": "a", "prefix": "a"}}, "$.match.subject", "BAD_VALUE"),
        ({"subject": 7}, "$.match.subject", "WRONG_TYPE"),
        ({"subject": {"like": "a"}}, "$.match.subject.like", "UNKNOWN_FIELD"),
        ({"source": ""}, "$.match.source", "BAD_VALUE"),
        ({"type": ["a", 7]}, "$.match.type[1]", "WRONG_TYPE"),
        ({"type": ["a"] * 51}, "$.match.type", "BAD_VALUE"),
        ([], "$.match", "WRONG_TYPE"),
        ("-", "$.match", "MISSING_FIELD"),
    ],
)
def test_what_matches_everything_or_makes_no_sense_is_refused(
    match: Any, path: str, code: str
) -> None:
    assert findings(match=match) == {path: code}


@pytest.mark.parametrize(
    ("filter", "code"),
    [
        ("event.data.total > 1", "BAD_EXPRESSION"),
        ("${true} ", "BAD_EXPRESSION"),
        ("${'yes'}", "NOT_BOOLEAN"),
        ("${1}", "NOT_BOOLEAN"),
        ("${event.type}", "NOT_BOOLEAN"),
        ("${1 / 0 > 1}", "NOT_BOOLEAN"),
        ("${input.x}", "UNKNOWN_NAME"),
        ("${tasks.a.output}", "UNKNOWN_NAME"),
        ("${event.data.order-id}", "BAD_EXPRESSION"),
        ("${", "BAD_EXPRESSION"),
        ("", "BAD_VALUE"),
        (7, "WRONG_TYPE"),
    ],
)
def test_filters_that_cannot_be_right_are_refused(filter: Any, code: str) -> None:
    assert findings(filter=filter)["$.filter"] == code


@pytest.mark.parametrize("raw", [None, [], "x", 1])
def test_what_is_no_object_is_no_trigger(raw: Any) -> None:
    with pytest.raises(InvalidError):
        compile_trigger(raw)


def test_a_filter_that_gives_no_boolean_for_this_event_says_so() -> None:
    trigger = compile_trigger({**GOOD, "filter": "${event.data.flag}"})
    assert trigger.passes(event(data={"flag": True}))
    with pytest.raises(TriggerFailed) as caught:
        trigger.passes(event(data={"flag": "yes"}))
    assert caught.value.reason == "filterFailed"
    assert caught.value.failure.field == "$.filter"
    assert "not text" in caught.value.failure.message


def test_an_event_that_lacks_a_key_fails_the_mapping_with_its_place() -> None:
    trigger = compile_trigger(GOOD)
    with pytest.raises(TriggerFailed) as caught:
        trigger.mapped(event(subject=None))
    failure = caught.value.failure
    assert (caught.value.reason, failure.field) == ("mappingFailed", "$.input.from")
    assert failure.expression == "event.subject"
    with pytest.raises(TriggerFailed, match="region"):
        trigger.mapped(event(data={"id": 1}))


def test_an_optional_attribute_can_be_asked_for() -> None:
    trigger = compile_trigger({**GOOD, "filter": "${has(event.subject)}"})
    assert trigger.passes(event())
    assert not trigger.passes(event(subject=None))


def test_data_of_an_event_is_never_an_expression() -> None:
    trigger = compile_trigger({**GOOD, "input": "${event.data}", "tags": {}})
    nasty = {"a": "${secrets.KEY}", "b": '"}], "x": "y'}
    assert trigger.mapped(event(data=nasty))[0] == nasty


SCHEMA = {"type": "object", "required": ["id", "lines"]}


@pytest.mark.parametrize(
    ("input", "count"),
    [
        ({"id": "${event.id}"}, 1),
        ({"id": 1}, 1),
        ({"id": 1, "lines": []}, 0),
        ("${event.data}", 0),
        ("text", 1),
    ],
)
def test_case_input_schema_a_mapping_that_misses_a_required_field_is_found_when_knowable(
    input: Any, count: int
) -> None:
    raw = {**GOOD, "input": input}
    found = triggers.input_faults(raw, compile_trigger(raw), SCHEMA)
    assert len(found) == count
    assert triggers.input_faults(raw, compile_trigger(raw), None) == []
