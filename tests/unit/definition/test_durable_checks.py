"""Rules of `durable` tasks: known orchestrations, and one taker for each signal."""

from __future__ import annotations

import pytest

from orchestrator.domain.errors import InvalidError
from orchestrator.domain.validation import validate
from tests.support.definitions import flow

KNOWN = {"shipping": (1, 3), "billing": (1,)}


def found(**tasks: object) -> set[tuple[str, str]]:
    """(path, code) of every finding."""
    try:
        validate(flow(**tasks), activities=None, orchestrations=KNOWN)
    except InvalidError as error:
        return {(one.field, one.code) for one in error.details}
    return set()


def durable(**more: object) -> dict[str, object]:
    """A right one, unless `more` says otherwise."""
    return {"type": "durable", "orchestration": "shipping", **more}


def test_an_unknown_orchestration_is_named_with_the_nearest_one() -> None:
    with pytest.raises(InvalidError) as caught:
        validate(flow(d=durable(orchestration="shiping")), activities=None, orchestrations=KNOWN)
    (one,) = caught.value.details
    assert (one.field, one.code) == ("$.tasks.d.orchestration", "UNKNOWN_ORCHESTRATION")
    assert "shipping" in one.hint


def test_a_version_must_be_registered() -> None:
    assert found(d=durable(version=3)) == set()
    assert found(d=durable(version=2)) == {("$.tasks.d.version", "UNKNOWN_ORCHESTRATION")}
    where = "$.tasks.m.do.version"
    m = {"type": "map", "items": [1], "do": durable(version=2)}
    assert found(m=m) == {(where, "UNKNOWN_ORCHESTRATION")}


def test_nothing_is_asked_of_the_registry_without_one() -> None:
    validate(flow(d=durable(orchestration="other")), activities=None)


def test_a_signal_has_one_taker() -> None:
    signal = {"type": "signal", "signal": "go"}
    first, second = durable(signals=["go", "stop"]), durable(signals=["stop"])
    assert found(d=first, e=second) == {("$.tasks.e.signals[0]", "SIGNAL_SHARED")}
    assert found(s=signal, d=first) == {("$.tasks.d.signals[0]", "SIGNAL_SHARED")}
    assert found(d=first, s=signal) == {("$.tasks.s.signal", "SIGNAL_SHARED")}
    assert found(d=durable(signals=["a", "a"])) == {("$.tasks.d.signals[1]", "SIGNAL_SHARED")}


def test_items_of_a_map_take_no_signals() -> None:
    m = {"type": "map", "items": [1], "do": durable(signals=["go"])}
    assert found(m=m) == {("$.tasks.m.do.signals", "SIGNALS_IN_MAP")}
