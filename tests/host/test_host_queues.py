"""Service Bus functions: settlement, renewal and concurrency as on the real host."""

from __future__ import annotations

import asyncio
import logging
import threading
import typing
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import azure.functions as func
import pytest
from azure.functions.servicebus import ServiceBusMessage
from host_fakes import FakeBroker, FakeClock, local_host, settle, until

from orchestrator.local.host.host import QUEUE, HostOptions, LocalHost
from orchestrator.local.host.host_json import HostJson

MANY, ONE = "orchestration", "tasks-standard"


@dataclass
class Rig:
    """An app of one batch and one single-message function whose behaviour the test decides."""

    clock: FakeClock
    broker: FakeBroker
    batches: list[list[Any]] = field(default_factory=list)
    singles: list[Any] = field(default_factory=list)
    batch_error: Exception | None = None
    single_error: Exception | None = None
    hold: asyncio.Event | None = None  # functions wait for it
    host: LocalHost | None = None

    async def start(self, host_json: HostJson | None = None, **options: Any) -> None:
        app = func.FunctionApp()

        @app.service_bus_queue_trigger(
            arg_name="messages", queue_name=MANY, connection="S", cardinality="many"
        )
        async def many(messages: typing.List[func.ServiceBusMessage]) -> None:  # noqa: UP006
            self.batches.append(messages)
            if self.hold is not None:
                await self.hold.wait()
            if self.batch_error is not None:
                raise self.batch_error

        @app.service_bus_queue_trigger(arg_name="message", queue_name=ONE, connection="S")
        async def one(message: func.ServiceBusMessage) -> None:
            self.singles.append(message)
            if self.hold is not None:
                await self.hold.wait()
            if self.single_error is not None:
                raise self.single_error

        options.setdefault("parallel_batches", 1)
        self.host = local_host(
            app,
            broker=self.broker,
            clock=self.clock,
            host_json=host_json or HostJson(max_message_batch_size=3, max_concurrent_calls=2),
            roles=frozenset({QUEUE}),
            **options,
        )
        await self.host.start()
        await settle()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    clock = FakeClock()
    made = Rig(clock, FakeBroker(clock))
    yield made
    if made.hold is not None:
        made.hold.set()
    if made.host is not None:
        await made.host.stop()


async def test_a_batch_is_completed_as_a_whole_in_one_call(rig: Rig) -> None:
    rig.broker.put(MANY, b"1", b"2", b"3", b"4")
    await rig.start()
    assert [[m.get_body() for m in batch] for batch in rig.batches] == [[b"1", b"2", b"3"], [b"4"]]
    assert sorted(rig.broker.completed) == ["m1", "m2", "m3", "m4"]
    assert rig.broker.calls == [3, 1]


async def test_a_batch_whose_function_raised_is_abandoned_as_a_whole(rig: Rig) -> None:
    """Settled all or nothing: a neighbour's failure raises everybody's delivery count."""
    rig.broker.put(MANY, b"1", b"2", b"3")
    rig.batch_error = ValueError("number 2 is bad")
    rig.hold = asyncio.Event()
    await rig.start()
    rig.hold.set()
    rig.hold = asyncio.Event()  # the second round waits
    await settle()
    assert rig.broker.completed == []
    assert rig.broker.abandoned == ["m1", "m2", "m3"]
    assert [m.delivery_count for m in rig.batches[1]] == [2, 2, 2]


async def test_a_batch_gets_no_lock_renewal(rig: Rig) -> None:
    rig.broker.put(MANY, b"1", b"2")
    rig.hold = asyncio.Event()
    await rig.start()
    for _ in range(10):
        await rig.clock.advance(rig.broker.lock_ms // 4)
    assert rig.broker.renewals == []
    rig.hold.set()
    await settle()
    # The locks ended long ago: settling failed, and the messages came again.
    assert [[m.delivery_count for m in batch] for batch in rig.batches] == [[1, 1], [2, 2]]


async def test_a_single_message_is_renewed_while_its_function_runs(rig: Rig) -> None:
    rig.broker.put(ONE, b"1")
    rig.hold = asyncio.Event()
    await rig.start()
    for _ in range(10):
        await rig.clock.advance(rig.broker.lock_ms // 2)
    assert len(rig.broker.renewals) >= 5
    rig.hold.set()
    await settle()
    assert rig.broker.completed == ["m1"]
    assert len(rig.singles) == 1


async def test_renewal_ends_with_the_limit_of_host_json(rig: Rig) -> None:
    rig.broker.put(ONE, b"1")
    rig.hold = asyncio.Event()
    await rig.start(HostJson(max_lock_renewal_ms=2 * rig.broker.lock_ms))
    for _ in range(20):
        await rig.clock.advance(rig.broker.lock_ms // 4)
    renewed = len(rig.broker.renewals)
    await rig.clock.advance(20 * rig.broker.lock_ms)
    assert 0 < renewed == len(rig.broker.renewals)
    rig.hold.set()
    await settle()
    assert rig.broker.completed == []


async def test_a_lost_lock_is_not_renewed_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.broker.put(ONE, b"1")
    rig.hold = asyncio.Event()
    await rig.start()
    rig.clock._now += 2 * rig.broker.lock_ms  # the process was frozen
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            await rig.clock.advance(rig.broker.lock_ms // 4)
    assert rig.broker.renewals == ["m1"]
    assert "lock not renewed" in caplog.text


async def test_abandoning_raises_the_delivery_count_until_the_broker_buries_it(rig: Rig) -> None:
    rig.broker.put(ONE, b"bad")
    rig.single_error = RuntimeError("always")
    await rig.start()
    await until(lambda: rig.broker.dead)
    assert [m.delivery_count for m in rig.singles] == list(range(1, 11))
    assert rig.broker.dead == ["m1"]


async def test_single_messages_run_up_to_the_limit_and_no_more_are_taken(rig: Rig) -> None:
    rig.broker.put(ONE, b"1", b"2", b"3", b"4", b"5")
    rig.hold = asyncio.Event()
    await rig.start()
    await settle()
    assert len(rig.singles) == 2
    assert [m.delivery_count for m in await rig.broker.peek(ONE, 9)] == [1, 1, 0, 0, 0]
    rig.hold.set()
    await settle()
    assert [m.get_body() for m in rig.singles] == [b"1", b"2", b"3", b"4", b"5"]
    assert sorted(rig.broker.completed) == ["m1", "m2", "m3", "m4", "m5"]


async def test_messages_that_end_together_are_completed_together(rig: Rig) -> None:
    rig.broker.put(ONE, *(b"%d" % n for n in range(40)))
    rig.hold = asyncio.Event()
    await rig.start(HostJson(max_concurrent_calls=40))
    rig.hold.set()
    await settle()
    assert len(rig.broker.completed) == 40
    assert len(rig.broker.calls) <= 2


async def test_the_function_gets_what_the_real_decoder_makes(rig: Rig) -> None:
    rig.broker.put(ONE, b"\xff\x00", properties={"traceparent": "00-1-2-01"})
    await rig.start()
    (message,) = rig.singles
    assert type(message) is ServiceBusMessage
    assert message.get_body() == b"\xff\x00"
    assert message.message_id == "m1"
    assert message.delivery_count == 1
    assert message.application_properties == {"traceparent": "00-1-2-01"}
    assert message.user_properties == {"traceparent": "00-1-2-01"}
    assert message.lock_token
    assert message.sequence_number == 1
    assert message.enqueued_time_utc.timestamp() * 1000 == rig.clock.now()


async def test_stopping_waits_for_running_functions_and_completes_them(rig: Rig) -> None:
    rig.broker.put(ONE, b"1", b"2", b"3")
    rig.hold = asyncio.Event()
    await rig.start()
    assert rig.host is not None
    stopping = asyncio.create_task(rig.host.stop())
    await settle()
    assert not stopping.done()
    rig.hold.set()
    await stopping
    assert sorted(rig.broker.completed) == ["m1", "m2"]
    # The third was never delivered: nothing was begun after the stop.
    assert rig.broker.count(ONE, "m3") == 0


async def test_a_function_that_outlasts_the_grace_is_cancelled_and_abandoned(rig: Rig) -> None:
    rig.broker.put(ONE, b"1")
    rig.broker.put(MANY, b"2")
    rig.hold = asyncio.Event()
    await rig.start(grace_ms=0)
    assert rig.host is not None
    await rig.host.stop()
    assert sorted(rig.broker.abandoned) == ["m1", "m2"]


async def test_a_hung_function_is_ended_by_function_timeout(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.broker.max_delivery_count = 1
    rig.broker.put(ONE, b"1")
    rig.hold = asyncio.Event()
    await rig.start(HostJson(function_timeout_ms=1))
    await until(lambda: rig.broker.abandoned)
    assert rig.broker.abandoned == ["m1"]
    assert "InvocationError" in caplog.text


async def test_a_plain_function_runs_in_a_thread_and_a_returned_value_fails_it() -> None:
    clock = FakeClock()
    broker = FakeBroker(clock, max_delivery_count=1)
    threads: list[threading.Thread] = []
    seen = threading.Event()
    app = func.FunctionApp()

    @app.service_bus_queue_trigger(arg_name="message", queue_name=ONE, connection="S")
    def plain(message, context):  # type: ignore[no-untyped-def]
        assert context.function_name == "plain"
        threads.append(threading.current_thread())
        seen.set()
        return "nobody takes this"

    broker.put(ONE, b"1")
    host = local_host(app, broker=broker, clock=clock, roles=frozenset({QUEUE}))
    await host.start()
    await until(lambda: broker.abandoned)
    await host.stop()
    assert threads[0] is not threading.main_thread()
    assert broker.completed == []


async def test_log_lines_have_no_payload(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.broker.max_delivery_count = 1
    rig.broker.put(ONE, b"pass-word")
    rig.single_error = RuntimeError("pass-word")
    await rig.start()
    assert "RuntimeError" in caplog.text
    assert "pass-word" not in caplog.text


def test_options_default_to_this_machine_only() -> None:
    assert HostOptions().address == "127.0.0.1"
