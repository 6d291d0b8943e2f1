"""What an activity learns about its attempt."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from activities_support import make_call, runner_of

from activities import Cancelled, Context
from activities.context import MAX_HEARTBEAT_BYTES
from orchestrator.domain.jsonvalues import NotJson


async def test_context_tells_the_ids_of_the_attempt() -> None:
    def tell(ctx: Context) -> dict[str, Any]:
        return {
            "activity": ctx.activity, "key": ctx.idempotency_key, "attempt": ctx.attempt,
            "execution": ctx.execution_id, "task": ctx.task_id, "item": ctx.item_index,
            "tenant": ctx.tenant, "trace": ctx.traceparent, "cancelled": ctx.cancelled,
        }  # fmt: skip

    call = make_call("tell", item=4, attempt=2)
    assert await runner_of(tell).run(call) == {
        "activity": "tell", "key": "key-1", "attempt": 2, "execution": "e1", "task": "work",
        "item": 4, "tenant": "t1", "trace": call.traceparent, "cancelled": False,
    }  # fmt: skip


def test_remaining_counts_down_and_stops_at_zero() -> None:
    time = [100.0]
    ctx = Context(make_call("a", timeout_ms=1500), monotonic=lambda: time[0])
    assert ctx.remaining == 1.5
    time[0] = 101.0
    assert ctx.remaining == 0.5
    time[0] = 200.0
    assert ctx.remaining == 0.0


def test_heartbeat_notes_time_and_details() -> None:
    call = make_call("a")
    ctx = Context(call, now=lambda: 1234)
    ctx.heartbeat()
    assert (call.last_heartbeat_at, call.heartbeat_details) == (1234, None)
    details = {"rows": [1]}
    ctx.heartbeat(details)
    details["rows"].append(2)
    ctx.heartbeat()
    assert call.heartbeat_details == {"rows": [1]}


def test_heartbeat_refuses_details_that_cannot_be_kept() -> None:
    ctx = Context.for_test()
    with pytest.raises(NotJson, match=r"\$\.x"):
        ctx.heartbeat({"x": float("nan")})
    with pytest.raises(ValueError, match="exceed"):
        ctx.heartbeat("x" * MAX_HEARTBEAT_BYTES)


def test_cancelled_is_seen_and_raised_past_a_broad_except() -> None:
    call = make_call("a")
    ctx = Context(call)
    ctx.raise_if_cancelled()
    call.cancelled = True
    assert ctx.cancelled
    with pytest.raises(Cancelled):
        ctx.raise_if_cancelled()
    assert not issubclass(Cancelled, Exception)


def test_logger_carries_the_ids_and_not_the_payload(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ctx = Context.for_test("orders.pack", input={"card": "4711"}, attempt=2, item=0)
    ctx.logger.info("packed %d", 3, extra={"boxes": 1, "attempt": 99})
    (record,) = caplog.records
    fields = vars(record)
    assert record.name == "weft.activity.orders.pack"
    assert record.getMessage() == "packed 3"
    assert fields["attempt"] == 2  # the ids win
    assert (fields["tenant"], fields["item"], fields["boxes"]) == ("test", 0, 1)
    assert "4711" not in str(fields)
