"""What is an event, and what is none: every fault is found, each with its place."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain import cloudevents, cloudevents_binary
from orchestrator.domain.cloudevents import CloudEvent
from orchestrator.domain.errors import MalformedError, WeftError

GOOD: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/shop/berlin",
    "type": "order.placed",
    "subject": "orders/17",
    "time": "2026-11-30T12:00:00Z",
    "datacontenttype": "application/json",
    "traceparent": "00-a-b-01",
    "sequence": 7,
    "sampled": True,
    "data": {"total": 12.5},
}


def findings(value: Any, read: Any = cloudevents.structured) -> dict[str, str]:
    """Path -> code of what is wrong."""
    with pytest.raises(MalformedError) as caught:
        read(value)
    assert caught.value.code == cloudevents.CODE
    return {detail.field: detail.code for detail in caught.value.details}


def test_a_good_event_is_taken_as_it_is() -> None:
    event = cloudevents.structured(GOOD)
    assert event.body == GOOD
    assert (event.id, event.source, event.type) == ("e-1", "/shop/berlin", "order.placed")
    assert event.subject == "orders/17"
    assert event.scope["data"] == {"total": 12.5}


def test_null_is_the_same_as_left_out() -> None:
    bare = {name: GOOD[name] for name in cloudevents.REQUIRED}
    event = cloudevents.structured({**bare, "subject": None, "data": None, "time": None})
    assert event.body == bare
    assert event.scope["data"] is None
    assert findings({**bare, "id": None}) == {"$.id": "MISSING"}


def test_all_faults_are_found_at_once_each_with_its_path() -> None:
    bad = {
        "specversion": "0.3",
        "source": "",
        "type": 7,
        "time": "yesterday",
        "datacontenttype": "json",
        "subject": "a\nb",
        "comExample": "x",
        "nested": {"a": 1},
        "big": 2**31,
        "half": 0.5,
        "data": 1,
        "data_base64": "!",
    }
    assert findings(bad) == {
        "$.specversion": "BAD_VERSION",
        "$.id": "MISSING",
        "$.source": "BAD_VALUE",
        "$.type": "WRONG_TYPE",
        "$.time": "BAD_TIME",
        "$.datacontenttype": "BAD_VALUE",
        "$.subject": "BAD_VALUE",
        "$.comExample": "BAD_ATTRIBUTE",
        "$.nested": "WRONG_TYPE",
        "$.big": "BAD_VALUE",
        "$.half": "WRONG_TYPE",
        # Of the two faults of data_base64 the later one stands in the mapping.
        "$.data_base64": "BOTH_DATA",
    }


@pytest.mark.parametrize(
    "time",
    [
        "2026-11-30T12:00:00Z",
        "2026-11-30t12:00:00.123456789z",
        "2024-02-29T23:59:60+05:30",
        "0001-01-01T00:00:00-00:00",
    ],
)
def test_times_of_rfc_3339_are_taken(time: str) -> None:
    assert cloudevents.structured({**GOOD, "time": time}).body["time"] == time


@pytest.mark.parametrize(
    "time",
    [
        "2026-11-30",
        "2026-11-30T12:00:00",
        "2026-11-30 12:00:00Z",
        "2026-02-30T12:00:00Z",
        "20261130T120000Z",
        "2026-11-30T25:00:00Z",
        "٢٠٢٦-11-30T12:00:00Z",
    ],
)
def test_other_times_are_refused(time: str) -> None:
    assert findings({**GOOD, "time": time}) == {"$.time": "BAD_TIME"}


@pytest.mark.parametrize("value", [None, 1, "x", [], [GOOD], True])
def test_what_is_no_object_is_no_event(value: Any) -> None:
    assert findings(value) == {"$": "WRONG_TYPE"}


def test_a_batch_names_the_bad_event_and_keeps_the_good_ones() -> None:
    bad = {**GOOD}
    del bad["type"]
    found = cloudevents.batch([GOOD, GOOD, GOOD, bad, [GOOD]])
    assert [isinstance(one, CloudEvent) for one in found] == [True, True, True, False, False]
    fault, nested = found[3], found[4]
    assert isinstance(fault, MalformedError)
    assert isinstance(nested, MalformedError)
    assert [detail.field for detail in fault.details] == ["$[3].type"]
    assert "no further batch" in nested.message


def test_a_batch_is_bounded() -> None:
    assert findings([GOOD] * 501, cloudevents.batch) == {"$": "BATCH_TOO_LARGE"}
    assert findings(GOOD, cloudevents.batch) == {"$": "WRONG_TYPE"}
    assert cloudevents.batch([]) == []


def test_the_content_is_what_is_said_not_how_it_was_sent() -> None:
    same = {**GOOD, "time": "2027-01-01T00:00:00Z", "traceparent": "00-c-d-01", "sequence": 8}
    content = cloudevents.structured(GOOD).content
    assert cloudevents.structured(same).content == content
    for name, other in (("data", 1), ("type", "x"), ("subject", "x")):
        assert cloudevents.structured({**GOOD, name: other}).content != content


GRID: dict[str, Any] = {
    "id": "g-1",
    "topic": "/subscriptions/s/providers/Microsoft.Storage/storageAccounts/a",
    "subject": "/blobServices/default/containers/c/blobs/b",
    "eventType": "Microsoft.Storage.BlobCreated",
    "eventTime": "2026-11-30T12:00:00.1234567Z",
    "dataVersion": "1.0",
    "metadataVersion": "1",
    "data": {"url": "https://a/b"},
}


def test_event_grids_schema_becomes_a_cloud_event() -> None:
    event = cloudevents.event_grid(GRID)
    assert event.body == {
        "specversion": "1.0",
        "id": "g-1",
        "source": GRID["topic"],
        "subject": GRID["subject"],
        "type": GRID["eventType"],
        "time": GRID["eventTime"],
        "dataversion": "1.0",
        "data": GRID["data"],
    }
    assert cloudevents.either(GRID).body == event.body
    assert cloudevents.either(GOOD).body == GOOD


def test_faults_of_event_grids_schema_have_the_senders_names() -> None:
    bad = {**GRID, "eventTime": "x", "eventType": 1}
    del bad["topic"]
    assert findings(bad, cloudevents.event_grid) == {
        "$.eventTime": "BAD_TIME",
        "$.eventType": "WRONG_TYPE",
        "$.topic": "MISSING",
    }
    assert findings("x", cloudevents.event_grid) == {"$": "WRONG_TYPE"}


HEADERS = {
    "ce-specversion": "1.0",
    "CE-Id": "e-1",
    "ce-source": "/shop",
    "ce-type": "order.placed",
    "content-type": "application/json",
}


def binary(headers: dict[str, str], body: bytes = b"") -> CloudEvent:
    return cloudevents_binary.from_http(headers.items(), body)


def test_a_binary_event_has_its_attributes_in_headers() -> None:
    event = binary({**HEADERS, "ce-subject": '"Euro%20%E2%82%AC \\"q\\""'}, b'{"a": 1}')
    assert event.body == {
        "specversion": "1.0",
        "id": "e-1",
        "source": "/shop",
        "type": "order.placed",
        "subject": 'Euro € "q"',
        "datacontenttype": "application/json",
        "data": {"a": 1},
    }


@pytest.mark.parametrize(
    ("media", "body", "name", "value"),
    [
        ("application/vnd.x+json; charset=UTF-8", b"[1]", "data", [1]),
        ("", b"1", "data", 1),
        ("text/plain", "ü".encode(), "data", "ü"),
        ("text/plain; charset=latin-1", b"\xfc", "data_base64", base64.b64encode(b"\xfc").decode()),
        ("image/png", b"\x89P", "data_base64", base64.b64encode(b"\x89P").decode()),
    ],
)
def test_the_content_type_says_how_the_body_is_read(
    media: str, body: bytes, name: str, value: Any
) -> None:
    event = binary({**HEADERS, "content-type": media}, body)
    assert {key: event.body[key] for key in ("data", "data_base64") if key in event.body} == {
        name: value
    }


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"ce-id": "twice"}, "ce-id"),
        ({"ce-subject": "%FF"}, "ce-subject"),
        ({"ce-subject": "\ud800"}, "ce-subject"),
        ({"ce-subject": "%0A"}, "$.subject"),
        ({"ce-data": "x"}, "$.data"),
        ({"ce-datacontenttype": "text/plain"}, "$.datacontenttype"),
        ({"ce-my-name": "x"}, "$['my-name']"),
        ({"ce-specversion": "1.1"}, "$.specversion"),
    ],
)
def test_faults_in_headers_are_named(change: dict[str, str], place: str) -> None:
    assert place in findings({**HEADERS, **change}, binary)


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/json", b"{"),
        ("application/json", b'{"a": 1, "a": 2}'),
        ("application/json", b"NaN"),
        ("application/json", b'"\xff"'),
        ("application/json", str(2**64).encode()),
        ("text/plain", b"\xff"),
    ],
)
def test_a_body_that_is_not_what_its_type_says_is_refused(media: str, body: bytes) -> None:
    with pytest.raises(WeftError):
        binary({**HEADERS, "content-type": media}, body)


def test_amqp_properties_are_the_same_in_another_dress() -> None:
    names = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
    for prefix in cloudevents_binary.AMQP_PREFIXES:
        given = {**{prefix + name: text for name, text in names.items()}, "hops": "1"}
        event = cloudevents_binary.from_amqp(given.items(), "application/json", b"1")
        assert event is not None
        assert event.body == {**names, "datacontenttype": "application/json", "data": 1}
    assert cloudevents_binary.from_amqp([("hops", "1")], "", b"1") is None


@given(
    st.dictionaries(
        st.sampled_from([*GOOD, "data_base64", "x", "X", ""]) | st.text(max_size=3),
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("1.0"),
        max_size=8,
    )
)
def test_whatever_is_sent_is_an_event_or_a_list_of_findings(value: dict[str, Any]) -> None:
    for given_ in (value, {**GOOD, **value}):
        (found,) = cloudevents.batch([given_])
        if isinstance(found, MalformedError):
            assert found.details
        else:
            assert all(found.body[name] for name in cloudevents.REQUIRED)
