"""The circuit breaker: every cell of its table, and what must hold whatever comes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain import breakers as b
from orchestrator.domain.breakers import Breaker, BreakerRules, BreakerStatus, Gate, Taken, Verdict
from orchestrator.domain.dependencies import fixed_host, host_of, is_name, verdict
from orchestrator.domain.failure import Failure

NOW = 1_800_000_000_000
RULES = BreakerRules()
CLOSED = Breaker(tenant="t", dependency="pay.example")
_OP, _ST = b.BreakerOperation, BreakerStatus


def seen(failures: int, successes: int = 0, at: int = NOW) -> b.Counts:
    width = RULES.bucket_ms
    return ((at // width * width, failures, successes),)


def trip(before: Breaker, failures: int, successes: int = 0, **more: Any) -> Breaker:
    given = {"worker": "w1", "at": NOW, "rules": RULES, "types": ("HttpTimeout",)} | more
    counts = seen(failures, successes, given["at"])
    return b.trip(
        before, given["worker"], counts, given["types"], now=given["at"], rules=given["rules"]
    )


OPENED = trip(CLOSED, 10)
DUE = NOW + RULES.open_ms
PROBING = b.take_probe(OPENED, "p1", now=DUE, seen_at=NOW, rules=RULES)
TAKEN = Taken("p1", NOW)
STATES = {_ST.CLOSED: CLOSED, _ST.OPEN: OPENED, _ST.HALF_OPEN: PROBING}


def outcome(before: Breaker, what: Verdict, taken: Taken = TAKEN, now: int = DUE + 5) -> Breaker:
    return b.probed(before, taken, what, now=now, rules=RULES, error="HttpTimeout")


OPERATIONS: dict[_OP, Any] = {
    _OP.TRIP: lambda before: trip(before, 10),
    _OP.PROBE: lambda before: b.take_probe(
        before, "p2", now=DUE + RULES.probe_ms, seen_at=NOW, rules=RULES
    ),
    _OP.SUCCEED: lambda before: outcome(before, Verdict.SUCCESS),
    _OP.FAIL: lambda before: outcome(before, Verdict.FAILURE),
    _OP.RELEASE: lambda before: outcome(before, Verdict.NEUTRAL),
    _OP.OPEN: lambda before: b.open_by_hand(before, by="eve", reason="x", for_ms=None, now=DUE),
    _OP.CLOSE: lambda before: b.close_by_hand(before, by="eve", reason="x", now=DUE),
}


@pytest.mark.parametrize("status", list(BreakerStatus))
@pytest.mark.parametrize("operation", list(_OP))
def test_every_cell_of_the_table(operation: b.BreakerOperation, status: BreakerStatus) -> None:
    before = STATES[status]
    assert before.status is status
    after = OPERATIONS[operation](before)
    if (operation, status) in b.BREAKER:
        assert after.status is b.BREAKER[operation, status]
        assert after != before
    else:
        assert after == before


@pytest.mark.parametrize(
    ("failures", "successes", "opens"),
    [(9, 0, False), (10, 0, True), (10, 10, True), (10, 11, False), (500, 501, False)],
)
def test_it_opens_with_ten_failures_that_are_half_of_all(
    failures: int, successes: int, opens: bool
) -> None:
    after = trip(CLOSED, failures, successes)
    assert (after.status is BreakerStatus.OPEN) is opens
    assert after.until == (NOW + 30_000 if opens else None)


def test_counts_of_all_processes_add_up_and_old_ones_do_not() -> None:
    two = trip(trip(CLOSED, 5), 5, worker="w2", at=NOW + 30_000)
    assert two.status is BreakerStatus.OPEN
    late = trip(trip(CLOSED, 5), 5, worker="w2", at=NOW + 80_000)
    assert (late.status, set(late.seen)) == (BreakerStatus.CLOSED, {"w2"})


def test_a_process_that_tells_again_replaces_what_it_told() -> None:
    assert trip(trip(CLOSED, 6), 6).status is BreakerStatus.CLOSED


def test_clocks_far_apart_do_not_hide_what_one_process_saw_alone() -> None:
    hours = 5 * 3_600_000
    first = trip(CLOSED, 9, worker="ahead", at=NOW + hours)
    assert first.status is BreakerStatus.CLOSED
    assert trip(first, 9).status is BreakerStatus.CLOSED
    assert trip(first, 10).status is BreakerStatus.OPEN


def test_zero_failures_means_only_by_hand() -> None:
    off = BreakerRules(failures=0)
    assert trip(CLOSED, 1_000, rules=off).status is BreakerStatus.CLOSED


def test_the_time_doubles_while_probes_fail_up_to_five_minutes() -> None:
    found, now, spans = OPENED, NOW, []
    for number in range(6):
        now += found.span_ms
        found = b.take_probe(found, f"p{number}", now=now, seen_at=NOW, rules=RULES)
        taken = Taken(f"p{number}", found.opened_at)
        found = outcome(found, Verdict.FAILURE, taken, now)
        spans.append(found.span_ms)
    assert spans == [60_000, 120_000, 240_000, 300_000, 300_000, 300_000]
    assert b.take_probe(found, "x", now=now, seen_at=now, rules=RULES) == found


def test_one_probe_at_a_time_and_a_dead_one_is_replaced() -> None:
    assert b.admit(PROBING, DUE + 1, NOW) is Gate.WAIT
    assert b.take_probe(PROBING, "p2", now=DUE + 1, seen_at=NOW, rules=RULES) == PROBING
    later = DUE + RULES.probe_ms
    second = b.take_probe(PROBING, "p2", now=later, seen_at=NOW, rules=RULES)
    assert second.probe == b.Probe("p2", later + RULES.probe_ms)
    assert outcome(second, Verdict.FAILURE) == second  # the first one's, too late
    assert outcome(second, Verdict.SUCCESS).status is BreakerStatus.CLOSED  # it does answer


def test_a_success_of_an_earlier_opening_closes_nothing() -> None:
    again = outcome(PROBING, Verdict.FAILURE)
    probing = b.take_probe(again, "p2", now=again.until or 0, seen_at=NOW, rules=RULES)
    assert outcome(probing, Verdict.SUCCESS) == probing


def test_a_probe_that_asked_nobody_is_free_at_once() -> None:
    freed = outcome(PROBING, Verdict.NEUTRAL)
    assert b.admit(freed, DUE + 6, NOW) is Gate.PROBE


def test_a_manual_opening_stays_or_ends_with_its_time_in_a_probe() -> None:
    stays = b.open_by_hand(CLOSED, by="eve", reason="", for_ms=None, now=NOW)
    assert b.admit(stays, NOW + 10**12, NOW) is Gate.WAIT
    assert b.open_by_hand(stays, by="eve", reason="", for_ms=None, now=NOW + 9) == stays
    timed = b.open_by_hand(stays, by="eve", reason="", for_ms=3_600_000, now=NOW)
    assert b.admit(timed, NOW + 3_599_999, NOW) is Gate.WAIT
    probing = b.take_probe(timed, "p", now=NOW + 3_600_000, seen_at=NOW, rules=RULES)
    failed = outcome(probing, Verdict.FAILURE, Taken("p", timed.opened_at), NOW + 3_600_000)
    assert (failed.span_ms, failed.manual) == (60_000, False)


def test_a_clock_that_is_behind_waits_no_longer_than_the_opening_lasts() -> None:
    behind = NOW - 3_600_000  # of the process that reads; it saw the opening just now
    assert b.admit(OPENED, behind, behind) is Gate.WAIT
    assert b.admit(OPENED, behind + RULES.open_ms, behind) is Gate.PROBE


STEPS = st.lists(st.tuples(st.sampled_from(list(_OP)), st.integers(0, 400_000)), max_size=30)


@given(STEPS)
def test_whatever_happens_the_state_makes_sense(steps: list[tuple[Any, int]]) -> None:
    found, now, count = CLOSED, NOW, 0
    for operation, passed in steps:
        now, count = now + passed, count + 1
        taken = Taken(found.probe.token if found.probe else "none", found.opened_at)
        before = found
        match operation:
            case _OP.TRIP:
                found = trip(found, 10, at=now)
            case _OP.PROBE:
                found = b.take_probe(found, f"p{count}", now=now, seen_at=now, rules=RULES)
            case _OP.OPEN | _OP.CLOSE:
                found = OPERATIONS[operation](found)
            case _:
                what = {_OP.SUCCEED: Verdict.SUCCESS, _OP.FAIL: Verdict.FAILURE}
                found = outcome(found, what.get(operation, Verdict.NEUTRAL), taken, now)
        if found.status is not before.status:
            assert found.status in {b.BREAKER.get((one, before.status)) for one in _OP}
        assert (found.probe is None) or found.status is BreakerStatus.HALF_OPEN
        assert (found.until is None) or found.status is BreakerStatus.OPEN
        assert found.epoch >= before.epoch
        if found.status is BreakerStatus.OPEN and not found.manual:
            assert found.until is not None
            assert RULES.open_ms <= found.span_ms <= RULES.max_open_ms
        if found.status is BreakerStatus.CLOSED:
            assert b.admit(found, now, now) is Gate.RUN


@given(st.text(max_size=40), st.integers(0, 10**9))
def test_the_spread_stays_in_its_span_and_is_the_same_again(key: str, span: int) -> None:
    found = b.spread(key, span)
    assert 0 <= found <= span
    assert found == b.spread(key, span)


def test_what_processes_told_is_bounded() -> None:
    found = CLOSED
    for number in range(300):
        found = trip(found, 0, 1, worker=f"w{number}", types=[f"T{number}"])
    assert len(found.seen) == b.KEPT_WORKERS
    assert found.errors == ("T299", "T298", "T297", "T296", "T295")


# --- dependencies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Pay.Example/charges", "pay.example"),
        ("https://pay.example.:443/x", "pay.example"),
        ("http://pay.example:8443", "pay.example:8443"),
        ("http://[::1]:8080/x", "[::1]:8080"),
        ("ftp://pay.example/", ""),
        ("https://canary.invalid/", ""),  # never exists: nobody's load is spared
        ("https:///x", ""),
        ("https://pay.example:99999/", ""),
        ("https://" + "a" * 300 + "/", ""),
        (7, ""),
    ],
)
def test_the_host_of_a_url(url: object, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://pay.example/charges/${input.id}", "pay.example"),
        ("https://pay.example?x=${input.id}", "pay.example"),
        ("https://pay.example", "pay.example"),
        ("https://pay.example${input.path}", ""),
        ("https://${input.host}/x", ""),
        ("https://pay.example:${input.port}/x", ""),
        ("${input.url}", ""),
        ("${input.scheme}://pay.example/", ""),
        (None, ""),
    ],
)
def test_a_host_that_no_expression_can_change(url: object, host: str) -> None:
    assert fixed_host(url) == host


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (None, Verdict.SUCCESS),
        (Failure(type="TIMEOUT", message=""), Verdict.FAILURE),
        (Failure(type="HttpServerError", message=""), Verdict.FAILURE),
        (Failure(type="HttpThrottled", message=""), Verdict.FAILURE),
        (Failure(type="HttpConnectError", message=""), Verdict.FAILURE),
        (Failure(type="ConnectionResetError", message=""), Verdict.FAILURE),
        (Failure(type="Busy", message="", retry_after_ms=5), Verdict.FAILURE),
        (
            Failure(type="Odd", message="", causes=(Failure(type="ReadTimeout", message=""),)),
            Verdict.FAILURE,
        ),
        (Failure(type="HttpClientError", message="", retryable=False), Verdict.SUCCESS),
        (Failure(type="ValueError", message=""), Verdict.SUCCESS),
        (Failure(type="LEASE_EXPIRED", message=""), Verdict.NEUTRAL),
        (Failure(type="DEADLINE_EXCEEDED", message="", retryable=False), Verdict.NEUTRAL),
        (Failure(type="HEARTBEAT_TIMEOUT", message=""), Verdict.FAILURE),
        (Failure(type="EXPRESSION_FAILED", message="", retryable=False), Verdict.NEUTRAL),
        (Failure(type="INPUT_INVALID", message="", retryable=False), Verdict.NEUTRAL),
        (Failure(type="HttpRequestInvalid", message="", retryable=False), Verdict.NEUTRAL),
    ],
)
def test_what_an_outcome_says_of_the_dependency(failure: Failure | None, expected: Verdict) -> None:
    assert verdict(failure) is expected


def test_names_can_stand_in_a_path() -> None:
    assert is_name("warehouse-2.eu:8443")
    for text in ("", "a b", "a/b", "a%2Fb", "a?b", "a#b", "a\\b", "a\nb", "x" * 201):
        assert not is_name(text)


def test_a_breaker_survives_its_stored_form() -> None:
    from orchestrator.engine.breaker_docs import from_doc, to_doc

    for breaker in (*STATES.values(), OPERATIONS[_OP.OPEN](OPENED), replace(CLOSED, closed_at=5)):
        assert from_doc(to_doc(breaker)) == breaker
