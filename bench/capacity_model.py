"""From a load to what it takes: request units, messages, instances, storage, euros. Pure.

Counts come from how the engine works (one claim, one result, one decision, one deletion per outbox)
and are compared with counted ones by a test. What was not measured on Azure is in `Assumed`, each
with its reason; what costs what is in `prices.json`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.domain.topology import (
    INLINE_PAYLOAD_BYTES,
    MAX_CONCURRENT_TASKS,
    MAX_ORCHESTRATION_BATCH,
)
from tests.wire.cosmos import charges

HOURS: Final = 730
SECONDS: Final = HOURS * 3_600
KB: Final = 1_024
GB: Final = 1_024**3
RU_STEP: Final = 1_000
PARTITION_RU: Final = 10_000
"""Most RU/s of one logical partition, so of one execution."""
SERVERLESS_RU: Final = 5_000
"""Most RU/s for which serverless is offered here."""
STANDARD_OPERATIONS: Final = 1_000
"""Operations a second from which a Standard namespace throttles."""
UNITS: Final = (1, 2, 4, 8, 16)
TIMERS: Final = (15, 5)
"""Seconds between two calls of the sweeper and of the scheduler."""


@dataclass(frozen=True, kw_only=True)
class Assumed:
    """What nobody has measured on Azure yet. Change it when somebody has."""

    cpu_ms: float = 2.5
    """Of one function call; a task is two. In the embedded mode 0.8 were measured for both; gRPC,
    TLS and the SDKs come on top."""
    cores: float = 1.0  # of an instance with 2 GB
    utilisation: float = 0.6  # of a core, above which latency grows
    decision_ms: float = 100.0  # of one call of `orchestration`: up to 32 messages, one at a time
    overhead_ms: float = 60.0  # of a task beside its activity: claim, result, sending
    start_ms: float = 30.0  # of POST start
    minimum_billed_ms: float = 1_000.0  # of a time in which an instance works
    messages_per_unit: float = 1_000.0  # a second, that one messaging unit sends and delivers
    log_bytes_per_task: float = 1_000.0  # ingested, after sampling
    indexed: int = 4  # properties of a document of an execution


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is asked for. Means, but for `peak`."""

    starts_per_second: float
    chain: int = 10
    """Tasks one after the other."""
    width: int = 0
    """Tasks side by side, or items of a map, before the last one of the chain."""
    seconds: float = 1.0
    """What an activity takes."""
    http_share: float = 0.0
    """Share of the tasks that call out with the payload."""
    payload_kib: float = 1.0
    """Of the input and of each output."""
    retry_rate: float = 0.02
    """Failed attempts per task that are tried again."""
    retention_days: float = 30.0
    peak: float = 3.0
    """Busiest minute in terms of the mean."""
    private_network: bool = False
    """Needs Premium Service Bus."""
    memory_gb: float = 2.0
    always_ready: int = 0
    """Instances that are kept warm."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Operations of one execution."""

    tasks: int
    decisions: float
    writes: float  # a batch is one
    reads: float
    messages: float
    attempts: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the load takes, means per second unless the name says otherwise."""

    per_execution: Counts
    ru_per_execution: float
    ru: float
    ru_peak: float
    ru_setting: int  # autoscale maximum of the container `executions`
    partition_tasks: float  # tasks a second that one execution can do at most
    messages: float
    bus_operations: float
    bus: str  # standard, or premium and its number of units
    instances: Mapping[str, int]  # per function group, at the peak
    gb_seconds_month: float
    calls_month: float
    stored_gb: float
    blob_gb: float
    egress_gb_month: float
    euros: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def total(self) -> float:
        """Euros a month."""
        return sum(self.euros.values())


def stages(load: Load) -> list[int]:
    """How many tasks run side by side, stage by stage."""
    chain = [1] * load.chain
    return [*chain[:-1], load.width, *chain[-1:]] if load.width else chain


def count(widths: list[int], retry_rate: float = 0.0) -> Counts:
    """Operations of one execution whose stages are that wide: messages that are there together are
    one decision. A retry is one more claim, result and outbox."""
    tasks = sum(widths)
    results = sum(math.ceil(width / MAX_ORCHESTRATION_BATCH) for width in widths)
    decisions, retries = 1 + results, tasks * retry_rate
    # Start and its outbox; claim, result and its outbox; decisions, and the outbox of each that
    # dispatches a stage.
    writes = 2 + 3 * (tasks + retries) + decisions + len(widths)
    return Counts(
        tasks=tasks,
        decisions=decisions,
        writes=writes,
        reads=2 + 3 * tasks + 2 * retries,  # the definition's head and version; claim 2, result 1
        messages=1 + 2 * tasks + retries,
        attempts=tasks + retries,
    )


def request_units(load: Load, assumed: Assumed) -> float:
    """Of one execution, by the size of each document (`tests/wire/cosmos/charges.py`)."""
    widths, terms = stages(load), assumed.indexed
    counts = count(widths, load.retry_rate)
    value = _inline(load)
    execution, task = 900 + value + counts.tasks, 600 + value
    outbox, events = 320, 420
    small = charges.create(outbox, terms)
    start = charges.create(execution, terms) + charges.create(events, terms) + small
    claim = charges.create(600, terms)
    result = charges.replace(task, terms) + small
    decision = charges.replace(execution, terms) + charges.create(events, terms)
    reads = charges.point_read(execution) + charges.point_read(600) + charges.point_read(task)
    deletions = 1 + counts.attempts + len(widths)
    return (
        start
        + counts.attempts * (claim + result)
        + counts.decisions * decision
        + len(widths) * small
        + deletions * charges.delete(terms)
        + counts.tasks * reads
        + load.retry_rate * counts.tasks * 2
        + 2
    )


def plan(load: Load, prices: Mapping[str, float], assumed: Assumed | None = None) -> Plan:
    """What `load` takes and costs."""
    assumed = assumed or Assumed()
    counts = count(stages(load), load.retry_rate)
    per_execution = request_units(load, assumed)
    rate = load.starts_per_second
    ru, messages = rate * per_execution, rate * counts.messages
    operations = 3 * messages  # send, receive, settle: at most, sends share requests
    ru_setting = _up(ru * load.peak, RU_STEP)
    month = rate * SECONDS
    kept = rate * load.retention_days * 86_400
    value = load.payload_kib * KB
    large = value > INLINE_PAYLOAD_BYTES
    stored = kept * _bytes_kept(load, counts) / GB
    blob = kept * (counts.tasks + 1) * value / GB if large else 0.0
    egress = month * counts.attempts * load.http_share * value / GB
    groups = _groups(load, counts, assumed)
    instances = {name: group.instances(load.peak) for name, group in groups.items()}
    gb_seconds = load.memory_gb * SECONDS * sum(
        group.active(assumed) for group in groups.values()
    ) + _timers(load, assumed)
    calls = month * (1 + counts.attempts + counts.decisions) + sum(SECONDS / t for t in TIMERS)
    bus_name, bus_euros = _bus(load, prices, assumed, messages, operations)
    blobs = month * (counts.tasks + 1) if large else 0.0
    warm = load.always_ready * load.memory_gb * SECONDS
    euros = {
        "cosmos throughput": _cosmos(prices, ru, ru * load.peak, ru_setting),
        "cosmos storage and backup": stored
        * (prices["cosmosStoragePerGbMonth"] + prices["cosmosBackup30DaysPerGbMonth"]),
        "service bus": bus_euros,
        "functions": gb_seconds * prices["functionsPerGbSecond"]
        + calls / 1e6 * prices["functionsPerMillionExecutions"]
        + warm * prices["functionsAlwaysReadyBaselinePerGbSecond"],
        "blob": blob * prices["blobPerGbMonth"]
        + blobs / 1e4 * (prices["blobPer10000Writes"] + prices["blobPer10000Reads"]),
        "egress": egress * prices["egressPerGb"],
        "logs": month * counts.tasks * assumed.log_bytes_per_task / GB * prices["logsPerGb"],
    }
    return Plan(
        per_execution=counts,
        ru_per_execution=per_execution,
        ru=ru,
        ru_peak=ru * load.peak,
        ru_setting=ru_setting,
        partition_tasks=PARTITION_RU / (per_execution / counts.tasks),
        messages=messages,
        bus_operations=operations,
        bus=bus_name,
        instances=instances,
        gb_seconds_month=gb_seconds,
        calls_month=calls,
        stored_gb=stored,
        blob_gb=blob,
        egress_gb_month=egress,
        euros=euros,
    )


@dataclass(frozen=True)
class _Group:
    """A function that scales by itself. `capacity`: calls a second that one instance takes."""

    calls: float  # a second
    seconds: float  # of a call
    capacity: float

    def instances(self, peak: float) -> int:
        return math.ceil(self.calls * peak / self.capacity)

    def active(self, assumed: Assumed) -> float:
        """Instances that work on average: one is billed while anything runs on it."""
        busy = self.calls * max(self.seconds, assumed.minimum_billed_ms / 1_000)
        some = max(1, math.ceil(self.calls / self.capacity))
        return some * (1 - math.exp(-busy / some))


def _groups(load: Load, counts: Counts, assumed: Assumed) -> dict[str, _Group]:
    rate = load.starts_per_second
    core = assumed.cores * assumed.utilisation * 1_000  # ms of processor time a second
    task_s = load.seconds + assumed.overhead_ms / 1_000
    by_cpu = core / assumed.cpu_ms
    decision_s = assumed.decision_ms / 1_000
    batches = MAX_ORCHESTRATION_BATCH / decision_s * assumed.utilisation
    return {
        "http": _Group(rate, assumed.start_ms / 1_000, core / assumed.cpu_ms),
        "orchestration": _Group(rate * (1 + counts.tasks), decision_s, min(batches, by_cpu)),
        "tasks": _Group(rate * counts.attempts, task_s, min(MAX_CONCURRENT_TASKS / task_s, by_cpu)),
        "change feed": _Group(rate * counts.decisions, 0.1, by_cpu),
    }


def _timers(load: Load, assumed: Assumed) -> float:
    """GB-seconds a month of sweeper and scheduler, which run whether there is work or not."""
    calls = sum(SECONDS / seconds for seconds in TIMERS)
    return calls * assumed.minimum_billed_ms / 1_000 * load.memory_gb


def _inline(load: Load) -> int:
    value = int(load.payload_kib * KB)
    return value if value <= INLINE_PAYLOAD_BYTES else 120  # a reference


def _bytes_kept(load: Load, counts: Counts) -> float:
    """Of one execution that has ended: its document, tasks, history, and its row in lists."""
    value = _inline(load)
    return 1_400 + value + counts.tasks * (800 + value) + (1 + counts.decisions) * 450


def _cosmos(prices: Mapping[str, float], ru: float, peak: float, setting: int) -> float:
    """The cheaper of autoscale (never less than a tenth of its maximum) and serverless."""
    hundred = prices["cosmosAutoscalePer100RuHour"] * HOURS
    autoscale = max(ru, max(setting, RU_STEP) / 10) / 100 * hundred
    serverless = ru * SECONDS / 1e6 * prices["cosmosServerlessPerMillionRu"]
    return min(autoscale, serverless) if peak <= SERVERLESS_RU else autoscale


def _bus(
    load: Load,
    prices: Mapping[str, float],
    assumed: Assumed,
    messages: float,
    operations: float,
) -> tuple[str, float]:
    """Standard while it suffices and is cheaper, else the fewest units."""
    fits = [unit for unit in UNITS if messages * load.peak <= unit * assumed.messages_per_unit]
    units = fits[0] if fits else _up(messages * load.peak / assumed.messages_per_unit, UNITS[-1])
    premium = units * prices["serviceBusPremiumPerUnitHour"] * HOURS
    standard = (
        prices["serviceBusStandardPerMonth"]
        + operations * SECONDS / 1e6 * prices["serviceBusStandardPerMillionOperations"]
    )
    possible = not load.private_network and operations * load.peak <= STANDARD_OPERATIONS
    if possible and standard <= premium:
        return "standard", standard
    several = "" if fits else " (more than one namespace)"
    return f"premium, {units} units{several}", premium


def _up(value: float, step: int) -> int:
    return math.ceil(value / step) * step
