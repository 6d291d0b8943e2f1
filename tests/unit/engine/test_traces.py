"""One trace from the request to the last attempt, with what a span says and what it must not."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from orchestrator.adapters.telemetry.otel import OtelTracer
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import relay, signals, telemetry
from orchestrator.engine.handback import HOPS
from orchestrator.ports import Query, Unavailable, Where
from tests.support.definitions import flow, retry
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE}-b7ad6b7169203331-01"
UNSAMPLED = f"00-{TRACE}-b7ad6b7169203331-00"
HTTP: dict[str, Any] = {
    "type": "http",
    "request": {"url": "https://pay.example/c/${input.card}?key=s3cr3t"},
    "retry": retry(3),
}


@dataclass
class Seen:
    """What was exported."""

    spans: Sequence[ReadableSpan]

    def named(self, name: str, **attributes: Any) -> list[ReadableSpan]:
        wanted = {f"weft.{key}": value for key, value in attributes.items()}
        return [
            one
            for one in self.spans
            if one.name == name and wanted.items() <= dict(one.attributes or {}).items()
        ]

    def one(self, name: str, **attributes: Any) -> ReadableSpan:
        [found] = self.named(name, **attributes)
        return found

    def traces(self) -> set[str]:
        return {f"{one.context.trace_id:032x}" for one in self.spans if one.context}


def traced(world: World, ratio: float = 1.0) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    world.engine.tracer = OtelTracer(SimpleSpanProcessor(exporter), ratio=ratio)
    return exporter


def seen(exporter: InMemorySpanExporter) -> Seen:
    return Seen(exporter.get_finished_spans())


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent_id(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


async def test_one_trace_over_a_retry_a_child_and_a_map(make: MakeWorld) -> None:
    """Retries are siblings, a child continues its parent's attempt, the service its request."""
    left = [2]

    def flaky(call: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError("nope")
        return call.traceparent

    world = await make(**{"work": lambda call: call.traceparent, "weft.http": flaky})
    exporter = traced(world)
    await world.publish(flow("child", w={"type": "activity", "activity": "work"}))
    await world.publish(
        flow(
            "parent",
            pay=HTTP,
            c={"type": "workflow", "workflow": "child", "needs": ["pay"]},
            m={
                "type": "map",
                "needs": ["c"],
                "items": "${[1, 2, 3]}",
                "do": {"type": "activity", "activity": "work"},
            },
            output="${tasks.pay.output}",
        )
    )
    started = await world.start("parent", {"card": "4111"}, traceparent=CALLER)
    await world.run_until_quiet()
    view = await world.view(started.id)
    assert view.status == "COMPLETED", view.error
    found = seen(exporter)
    assert found.traces() == {TRACE}

    start = found.one("start", workflow="parent")
    assert start.parent is not None
    assert start.parent.span_id == 0xB7AD6B7169203331
    assert view.traceparent == f"00-{TRACE}-{id_of(start):016x}-01"
    attempts = [found.one("execute", task="pay", attempt=number) for number in (1, 2, 3)]
    assert {parent_id(one) for one in attempts} == {id_of(start)}
    assert [dict(one.attributes or {}).get("error.type") for one in attempts] == [
        "OSError",
        "OSError",
        None,
    ]
    http = [one for one in found.named("http") if parent_id(one) == id_of(attempts[2])]
    assert view.output == f"00-{TRACE}-{id_of(http[0]):016x}-01"

    child = found.one("start", workflow="child")
    assert parent_id(child) == id_of(found.one("execute", task="c"))
    assert parent_id(found.one("execute", task="w")) == id_of(child)
    assert len(found.named("execute", task="m")) == 4  # three items and the gathering
    sent = {id_of(one) for one in found.named("relay send")}
    for one in [*found.named("execute"), *found.named("orchestrate")]:
        assert linked(one) <= sent
        assert linked(one)


async def test_a_batch_of_an_execution_is_one_span_with_a_link_to_each_sender(
    make: MakeWorld,
) -> None:
    world = await make(work=lambda call: 1)
    exporter = traced(world)
    work = {"type": "activity", "activity": "work"}
    await world.publish(flow("wide", a=work, b=work, c=work))
    await world.start("wide", traceparent=CALLER)
    await world.settle()
    found = seen(exporter)
    last = max(found.named("orchestrate"), key=lambda one: len(one.links))
    assert dict(last.attributes or {})["messaging.batch.message_count"] == 3
    executes = {id_of(one) for one in found.named("execute")}
    senders = {id_of(one) for one in found.named("relay send") if parent_id(one) in executes}
    assert linked(last) == senders
    assert len(senders) == 3


async def test_a_trace_that_is_not_sampled_costs_nothing_and_goes_on(make: MakeWorld) -> None:
    world = await make(work=lambda call: call.traceparent)
    exporter = traced(world)
    await world.publish(
        flow("f", w={"type": "activity", "activity": "work"}, output="${tasks.w.output}")
    )

    tracer: Any = world.engine.tracer
    tracer._ids = tracer._sampler = None  # nothing is made or asked
    started = await world.start("f", traceparent=UNSAMPLED)
    await world.run_until_quiet()
    view = await world.view(started.id)
    assert (view.output, view.traceparent) == (UNSAMPLED, UNSAMPLED)
    assert not seen(exporter).spans
    sent = {name for one in world.transport.sent for name in one.properties}
    assert not sent & {telemetry.TRACEPARENT, telemetry.TRACELINK}


async def test_a_start_without_a_trace_begins_one_and_decides_for_all_of_it(
    make: MakeWorld,
) -> None:
    """Sampled out at the start: every later step hears it from the traceparent."""
    for ratio, number in ((1.0, 1), (0.0, 0)):
        world = await make(work=lambda call: call.traceparent)
        exporter = traced(world, ratio)
        await world.publish(flow("f", w={"type": "activity", "activity": "work"}))
        started = await world.start("f")
        await world.run_until_quiet()
        view = await world.view(started.id)
        assert view.traceparent is not None
        assert int(view.traceparent[-2:], 16) & 1 == number
        assert len(seen(exporter).traces()) == number


async def test_what_a_crash_or_a_lost_message_costs_is_no_second_trace(make: MakeWorld) -> None:
    """A message that the sweeper makes anew has no trace; its attempt knows the execution's."""
    world = await make(work=lambda call: 1)
    exporter = traced(world)
    await world.publish(flow("f", w={"type": "activity", "activity": "work"}))
    await world.start("f", traceparent=CALLER)
    await world.deliver(world.transport.take(world.clock.now()))  # decided, dispatched
    world.transport.messages.clear()
    await world.clock.advance(10 * 60_000)
    await world.sweep()
    await world.run_until_quiet()
    found = seen(exporter)
    assert found.traces() == {TRACE}
    assert parent_id(found.one("execute", task="w")) == id_of(found.one("start"))


async def test_a_retry_that_the_sweeper_sends_is_under_the_execution(make: MakeWorld) -> None:
    """Its message was made from the task's document, which does not know the trace."""
    left = [1]

    def flaky(call: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError

    world = await make(work=flaky)
    exporter = traced(world)
    await world.publish(flow("f", w={"type": "activity", "activity": "work", "retry": retry(2)}))
    await world.start("f", traceparent=CALLER)
    await world.settle()
    world.transport.messages.clear()
    await world.clock.advance(60_000)
    await world.sweep()
    found = seen(exporter)
    again = found.one("execute", attempt=2)
    assert parent_id(again) == id_of(found.one("start"))
    assert not again.links


async def test_a_message_that_is_handed_back_keeps_its_trace(make: MakeWorld) -> None:
    world = await make(work=lambda call: 1)
    exporter = traced(world)
    await world.publish(flow("f", w={"type": "activity", "activity": "work"}))
    await world.start("f", traceparent=CALLER)
    [first] = world.transport.take(world.clock.now())
    read = world.engine.store.read

    async def away(*args: Any, **more: Any) -> Any:
        raise Unavailable("away")

    world.engine.store.read = away  # type: ignore[method-assign]
    delivering = asyncio.create_task(world.deliver([first]))
    while not delivering.done():
        await quiesce()
        await world.clock.advance(1_000)
    world.engine.store.read = read  # type: ignore[method-assign]
    [again] = world.transport.messages
    assert again.properties[HOPS] == "1"
    assert again.properties["traceparent"] == first.properties["traceparent"]
    failed = seen(exporter).one("orchestrate")
    assert dict(failed.attributes or {})["error.type"] == "Unavailable"


async def test_a_signal_of_another_trace_is_linked_and_does_not_take_the_execution_over(
    make: MakeWorld,
) -> None:
    world = await make()
    exporter = traced(world)
    await world.publish(flow("f", s={"type": "signal", "signal": "go"}))
    started = await world.start("f", traceparent=CALLER)
    await world.settle()
    other = f"00-{'1' * 32}-{'2' * 16}-01"
    with telemetry.span(world.engine.tracer, "request", parent=other) as request:
        await signals.send(world.engine, TENANT, started.id, "go", traceparent=other)
    await world.settle()
    found = seen(exporter)
    [sent] = [one for one in found.named("relay send") if parent_id(one) == _span(request)]
    [took] = [one for one in found.named("orchestrate") if id_of(sent) in linked(one)]
    assert parent_id(took) == id_of(found.one("start"))


def _span(span: Any) -> int:
    return int(span.traceparent.split("-")[2], 16)


async def test_the_slow_path_stays_in_the_trace(make: MakeWorld) -> None:
    world = await make()
    exporter = traced(world)
    await world.publish(flow("f", w={"type": "wait", "duration": "1h"}))
    world.transport.failing = True
    started = await world.start("f", traceparent=CALLER)
    world.transport.failing = False
    query = Query(where=(Where("type", "=", "outbox"),), partition=(TENANT, started.id))
    docs = [doc.body for doc in await world.engine.store.query(EXECUTIONS, query)]
    assert await relay.relay_documents(world.engine, docs) == 1
    found = seen(exporter)
    assert parent_id(found.one("relay send", path="changeFeed")) == id_of(found.one("start"))
    assert found.one("relay send", path="commit").status.status_code.name == "ERROR"


async def test_spans_hold_ids_and_no_data(make: MakeWorld) -> None:
    """Neither input, url, secret nor the text of an error, which may hold all of them."""

    def fails(call: Any) -> Any:
        raise ValueError(f"4111 {call.input}")

    world = await make(**{"weft.http": fails})
    exporter = traced(world)
    await world.publish(flow("f", pay={**HTTP, "retry": retry(1)}))
    await world.start("f", {"card": "4111"}, traceparent=CALLER)
    await world.run_until_quiet()
    found = seen(exporter)
    told = "\n".join(one.to_json() for one in found.spans)
    assert "s3cr3t" not in told
    assert "4111" not in told
    request = dict(found.one("http").attributes or {})
    assert (request["weft.host"], request["error.type"]) == ("pay.example", "ValueError")
    assert found.one("execute").status.description is None
    assert not [event for one in found.spans for event in one.events]


async def test_work_that_is_thrown_away_from_elsewhere_does_not_complain(make: MakeWorld) -> None:
    """As at the end of a loop, or of a simulated process: it is closed in another context."""
    world = await make()
    exporter = traced(world)

    async def work() -> None:
        with telemetry.span(world.engine.tracer, "x", parent=CALLER):
            await asyncio.Event().wait()

    coroutine = work()
    contextvars.copy_context().run(coroutine.send, None)
    coroutine.close()
    assert not seen(exporter).spans


async def test_without_a_tracer_the_callers_trace_goes_on_as_it_is(make: MakeWorld) -> None:
    world = await make(work=lambda call: call.traceparent)
    await world.publish(
        flow("f", w={"type": "activity", "activity": "work"}, output="${tasks.w.output}")
    )
    started = await world.start("f", traceparent=CALLER)
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == CALLER


async def test_a_host_that_is_made_of_what_nobody_may_read_is_masked(make: MakeWorld) -> None:
    """It is in the span, and in every log record of the attempt. One that the definition names is
    not, whatever the rest of the address is made of."""
    logged: list[Any] = []

    def fails(call: Any) -> Any:
        assert "***" not in call.input["url"]
        logged.append(telemetry.ids()["host"])
        raise ValueError("no such host")

    world = await make(**{"weft.http": fails})
    world.secrets.values[TENANT, "KEY"] = "S3cr3t-Key"
    exporter = traced(world)
    marked = {"properties": {"who": {"type": "string", "x-sensitive": True}}}
    hosts = ("${secrets.KEY}.example/", "${input.who}.example/", "a.example/${input.who}")
    tasks = {
        f"t{n}": {"type": "http", "request": {"url": f"https://{host}"}, "retry": retry(1)}
        for n, host in enumerate(hosts)
    }
    await world.publish({**flow("f", **tasks), "onFailure": "continue", "input": marked})
    await world.start("f", {"who": "customer-4711"})
    await world.run_until_quiet()
    assert sorted(logged) == ["", "***.example", "a.example"]
    spans = [dict(one.attributes or {})["weft.host"] for one in seen(exporter).named("http")]
    assert sorted(map(str, spans)) == sorted(logged)
