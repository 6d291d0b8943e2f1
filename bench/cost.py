"""What a task costs on Azure: operations counted on the wire servers, priced from a dated table.

    python -m bench.cost [--json]

The real engine runs over the real SDKs against the protocol-level servers of `tests/wire`, so every
request is counted where it arrives. Request units are the wire server's estimate by document size
(`tests/wire/cosmos/charges.py` says from which published figures); they were not measured on Azure.
Prices are list prices of a date, `bench/prices.json`; check them before you plan.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final

from bench.capacity import prices
from orchestrator.adapters.local.system import SystemClock, SystemIds
from orchestrator.domain.topology import ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine import catalog, execute, inspect, orchestrate, submit
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.ports import Received
from tests.support.world import DictSecrets, FakeActivities, MemoryPayloads
from tests.wire.cosmos.opening import wire_store
from tests.wire.servicebus_support import ServiceBusPair

ASSUMED_MS_PER_EXECUTION: Final = 30
ASSUMED_GB: Final = 2.0
TENANT: Final = "bench"
WRITES: Final = ("batch", "create", "replace", "upsert", "delete")


@dataclass(frozen=True)
class Case:
    """A workload: a definition, how often it is started, and what it is held to per task."""

    name: str
    definition: dict[str, Any]
    starts: int
    tasks: int
    aims: dict[str, float]


def _noop(*needs: str) -> dict[str, Any]:
    return {"type": "activity", "activity": "noop", **({"needs": list(needs)} if needs else {})}


def cases() -> list[Case]:
    """Chains of 10 and 30, fans of 200 and 1,000."""
    result = [
        Case(
            f"chain of {length}",
            {
                "name": f"chain-{length}",
                "tasks": {"t0": _noop()} | {f"t{n}": _noop(f"t{n - 1}") for n in range(1, length)},
            },
            starts,
            starts * length,
            {"writes": 5, "reads": 4, "queries": 0, "messages": 2} if length == 10 else {},
        )
        for length, starts in ((10, 10), (30, 4))
    ]
    for width in (200, 1_000):
        names = [f"f{n}" for n in range(width)]
        tasks = {"a": _noop()} | {n: _noop("a") for n in names} | {"z": _noop(*names)}
        aims = {"writes": 3.2} if width == 200 else {}
        result.append(
            Case(f"fan of {width}", {"name": f"fan-{width}", "tasks": tasks}, 1, width + 2, aims)
        )
    return result


async def measure(case: Case) -> dict[str, float]:
    """Run the case; figures per task."""
    pair = ServiceBusPair.start()
    assert pair.broker is not None
    async with wire_store() as (server, store):
        activities = FakeActivities(noop=lambda call: None)
        engine = Engine(
            store=store,
            transport=pair.transport,
            payloads=MemoryPayloads(),
            secrets=DictSecrets(),
            activities=activities,
            clock=SystemClock(),
            ids=SystemIds(),
            worker="bench",
        )
        await pair.transport.warm_up()
        await catalog.publish(engine, TENANT, case.definition)
        server.counters.clear()
        before = pair.broker.operations()
        bytes_before = pair.broker.counters.bytes_in
        ids = [
            (await submit.start(engine, TENANT, case.definition["name"], None)).id
            for _ in range(case.starts)
        ]
        await _drive(engine, pair, case.tasks, activities)
        await engine.drain()
        counted = dict(server.counters.requests)
        charges, sent = sum(server.counters.charges.values()), dict(server.counters.bytes_in)
        bus = {k: v - before.get(k, 0) for k, v in pair.broker.operations().items()}
        bytes_bus = pair.broker.counters.bytes_in - bytes_before
        for id in ids:
            view = await inspect.execution(engine, TENANT, id)
            assert view.status == "COMPLETED", view
        await pair.close()
    tasks = case.tasks
    operations = bus.get("transfers", 0) + bus.get("delivered", 0) + bus.get("completed", 0)
    return {
        "writes": sum(counted.get(kind, 0) for kind in WRITES) / tasks,
        "batches": counted.get("batch", 0) / tasks,
        "creates": counted.get("create", 0) / tasks,
        "deletes": counted.get("delete", 0) / tasks,
        "reads": counted.get("read", 0) / tasks,
        "queries": counted.get("query", 0) / tasks,
        "ru": charges / tasks,
        "cosmos_bytes": sum(sent.values()) / tasks,
        "messages": bus.get("messages", 0) / tasks,
        "bus_operations": operations / tasks,
        "bus_bytes": bytes_bus / tasks,
    }


async def _drive(
    engine: Engine, pair: ServiceBusPair, tasks: int, activities: FakeActivities
) -> None:
    """Take messages as the Functions host would, until nothing comes any more."""
    quiet = 0
    while quiet < 2 or len(activities.calls) < tasks:
        batch = await pair.receive(ORCHESTRATION_QUEUE, 32, 0)
        work: list[Awaitable[None]] = []
        if batch:
            work.append(orchestrate.handle(engine, [_incoming(one) for one in batch]))
        todo = await pair.receive(TASKS_STANDARD_QUEUE, 64, 0)
        work += [execute.handle(engine, _incoming(one)) for one in todo]
        await asyncio.gather(*work)
        for one in (*batch, *todo):
            await pair.complete(one)
        quiet = 0 if work else quiet + 1


def _incoming(message: Received) -> Incoming:
    return Incoming(body=message.body, message_id=message.message_id, properties=message.properties)


def price(figures: dict[str, float]) -> float:
    """Euros per million tasks:

    RU/task x price per RU  +  bus operations/task x price per operation
      +  2 function calls/task x (price per call + seconds x GB x price per GB-second)
    """
    calls = 2
    seconds = ASSUMED_MS_PER_EXECUTION / 1000
    known = prices()
    compute = calls * seconds * ASSUMED_GB * known["functionsPerGbSecond"] * 1e6
    return (
        figures["ru"] * known["cosmosServerlessPerMillionRu"]
        + figures["bus_operations"] * known["serviceBusStandardPerMillionOperations"]
        + calls * known["functionsPerMillionExecutions"]
        + compute
    )


def report(results: dict[str, dict[str, float]]) -> str:
    """The table, the aims and the price."""
    names = list(next(iter(results.values())))
    lines = [f"{'per task':<18}" + "".join(f"{case:>16}" for case in results)]
    for name in names:
        lines.append(
            f"{name:<18}" + "".join(f"{figures[name]:>16.2f}" for figures in results.values())
        )
    priced = "".join(f"{price(figures):>16.2f}" for figures in results.values())
    lines += [f"{'EUR per million':<18}{priced}", "", f"Prices: {json.dumps(prices())}"]
    lines.append(
        f"Assumed: {ASSUMED_MS_PER_EXECUTION} ms and {ASSUMED_GB} GB per function call, two calls "
        "per task."
    )
    for case in cases():
        for name, aim in case.aims.items():
            got = results[case.name][name]
            verdict = "ok" if got <= aim + 0.005 else "OVER"
            lines.append(f"{case.name}: {name} {got:.2f}, aim {aim}: {verdict}")
    short, long = results["chain of 10"], results["chain of 30"]
    lines += ["", "Each further task of a chain (the start and the end of an execution left out):"]
    for name in ("writes", "reads", "messages", "ru"):
        lines.append(f"  {name:<10}{(long[name] * 30 - short[name] * 10) / 20:.2f}")
    return "\n".join(lines)


async def run() -> dict[str, dict[str, float]]:
    """All cases, one after the other."""
    return {case.name: await measure(case) for case in cases()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    results = asyncio.run(run())
    print(json.dumps(results, indent=2) if asked.json else report(results))


if __name__ == "__main__":
    main()
