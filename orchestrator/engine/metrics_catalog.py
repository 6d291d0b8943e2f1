"""Every metric: what it says and what its label is called; and all of them as Prometheus text.

A metric that is counted and not listed here is found by a test, so that a dashboard never meets a
name that nobody can explain.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from orchestrator.engine.metrics import BOUNDS, Histogram, Metrics
from orchestrator.ports_telemetry import Instrument, Listener

T = TypeVar("T")

MEDIA_TYPE: Final = "text/plain; version=0.0.4"
"""Of the text exposition format."""
FADES_S: Final = 90.0
"""Longer than a minute, at which levels are exported. A process whose sweeper another one has taken
over must not go on reporting what it saw last."""


@dataclass(frozen=True, slots=True)
class Metric:
    """`label`: name of its one label, "" if it has none. `gauge`: a level, not a count;
    `histogram`: durations in seconds."""

    help: str
    label: str = ""
    gauge: bool = False
    histogram: bool = False
    fades: bool = False
    """A level that is unknown once nobody has measured it for `FADES_S`."""

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """What Prometheus and OpenTelemetry call it."""
        return "histogram" if self.histogram else "gauge" if self.gauge else "counter"


METRICS: Final[dict[str, Metric]] = {
    # What was done.
    "weft_executions_total": Metric("Executions, by status: started, or how they ended", "status"),
    "weft_attempts_total": Metric("Ends of attempts, by the task status after", "status"),
    "weft_commits_total": Metric("Decisions stored"),
    "weft_dead_letters_total": Metric("Dead letters written, by kind", "kind"),
    "weft_operator_actions_total": Metric("What operators did", "action"),
    "weft_signals_total": Metric("Signals received, by outcome", "outcome"),
    "weft_events_total": Metric("Events received, by outcome", "outcome"),
    "weft_events_published_total": Metric("Events handed to a target", "target"),
    "weft_notifications_total": Metric("Completion notifications, by outcome", "outcome"),
    "weft_schedule_ticks_total": Metric("Ticks of schedules, by outcome", "outcome"),
    "weft_concurrency_total": Metric("Executions at their concurrency group", "outcome"),
    "weft_retention_total": Metric(
        "Ended executions and archives, by what became of them", "outcome"
    ),
    "weft_children_cancelled_total": Metric("Children cancelled because of their parent"),
    "weft_projected_total": Metric("Rows of the read model written"),
    "weft_relayed_total": Metric("Outbox documents sent by the change feed", "kind"),
    "weft_task_duration_seconds": Metric(
        "Time of an attempt, by the task's type", "type", histogram=True
    ),
    "weft_execution_duration_seconds": Metric(
        "Time from start to end of executions, by how they ended", "status", histogram=True
    ),
    "weft_http_requests_total": Metric("Answers of the API, by HTTP status", "status"),
    "weft_http_request_duration_seconds": Metric(
        "Time to answer a request, by operation", "operation", histogram=True
    ),
    # What waits.
    "weft_queue_oldest_seconds": Metric(
        "Age of a queue's oldest message", "queue", gauge=True, fades=True
    ),
    "weft_outbox_age_seconds": Metric(
        "Age of the oldest unsent outbox document", gauge=True, fades=True
    ),
    "weft_sweep_overdue_seconds": Metric(
        "How long an execution is overdue, at most", gauge=True, fades=True
    ),
    # What was mended, or prevented.
    "weft_repairs_total": Metric("What was overdue and set going again, by kind", "kind"),
    "weft_checks_total": Metric("Executions that the sweeper had looked after"),
    "weft_duplicates_suppressed_total": Metric("Doubled messages without an effect", "place"),
    "weft_claims_refused_total": Metric("Task messages that needed no attempt", "reason"),
    "weft_commit_conflicts_total": Metric("Commits that lost a race and were decided again"),
    "weft_late_results_total": Metric("Results dropped because the lease was lost"),
    "weft_leases_lost_total": Metric("Leases lost while an attempt ran"),
    "weft_handed_back_total": Metric("Messages sent again as new ones, by reason", "reason"),
    "weft_messages_dropped_total": Metric("Messages given up; the sweeper knows", "reason"),
    "weft_unknown_executions_total": Metric("Messages for executions that are not there"),
    "weft_postponed_total": Metric("Tasks put off without an attempt, by what stops them", "gate"),
    "weft_messages_moved_total": Metric(
        "Messages moved to the low queue, of tasks and of decisions: others want a share", "what"
    ),
    "weft_slots_held": Metric(
        "Slots of all tenants with a limit that were held at the sweeper's last count", gauge=True
    ),
    # Dependencies.
    "weft_breaker_state": Metric(
        "Circuit breakers: 0 closed, 1 half open, 2 open", "dependency", gauge=True
    ),
    "weft_breaker_transitions_total": Metric("Changes of circuit breakers", "change"),
    "weft_breaker_trouble_total": Metric("Breakers that could not be read or written"),
    "weft_durable_unavailable_total": Metric("Calls of Durable Functions without an answer"),
    "weft_limited_total": Metric("Refused or put off because of a tenant's limit", "limit"),
    "weft_limits_trouble_total": Metric("Limits that could not be looked up; nobody was refused"),
    "weft_store_throttled_total": Metric("Answers of the store: too many requests"),
    "weft_store_unavailable_total": Metric("Answers of the store: none, or unclear"),
    "weft_cosmos_requests_total": Metric("Requests to Cosmos DB", "operation"),
    "weft_cosmos_request_milliunits_total": Metric("Thousandths of request units", "operation"),
    # Trouble.
    "weft_fast_path_failures_total": Metric("Commits whose messages the fast path did not send"),
    "weft_relay_failures_total": Metric("Outbox documents that could not be sent just then"),
    "weft_relay_poisoned_total": Metric("Outbox documents that cannot be read"),
    "weft_results_lost_total": Metric("Results that could not be stored; the task runs again"),
    "weft_audit_failures_total": Metric("Audit records that could not be written"),
    "weft_foreign_rows_total": Metric("Rows of another partition that were kept out of an answer"),
    "weft_unreadable_rows_total": Metric("Rows of the read model that cannot be read"),
    "weft_projection_failures_total": Metric("Rows of the read model not written"),
    "weft_projection_poisoned_total": Metric("Executions that cannot be projected"),
    "weft_triggers_unreadable_total": Metric("Stored triggers that this version cannot read"),
    "weft_schedule_conflicts_total": Metric("Writes of a schedule that somebody else had changed"),
    "weft_schedule_failures_total": Metric("Passes over a schedule that failed, by error", "error"),
    "weft_scheduler_takeovers_total": Metric("Times that this process became the scheduler"),
    "weft_scheduler_deposed_total": Metric("Times that it found a newer scheduler"),
}


class Catalog:
    """The metrics of one process with their descriptions: a `MetricSource`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def instruments(self) -> Iterable[Instrument]:
        """See `MetricSource`."""
        for name, one in METRICS.items():
            bounds = BOUNDS if one.histogram else ()
            yield Instrument(
                name=name, help=one.help, kind=one.kind, label=one.label, bounds=bounds
            )

    def read(self, name: str) -> Mapping[str, float]:
        """See `MetricSource`. What has not counted yet is 0 unless it has a label, so that alerts
        on it are never without data."""
        metric, metrics = METRICS[name], self._metrics
        if not metric.gauge:
            return _of(name, metrics.counters) or ({} if metric.label else {"": 0})
        found = _of(name, metrics.gauges)
        if not metric.fades:
            return found
        now, set_at = time.monotonic(), _of(name, metrics.set_at)
        return {label: one for label, one in found.items() if now - set_at[label] <= FADES_S}

    def listen(self, heard: Listener) -> None:
        """See `MetricSource`."""
        self._metrics.heard = heard


def table() -> str:
    """All metrics as the table of docs/telemetry.md."""
    rows = [
        f"| `{name}` | {one.kind} | {f'`{one.label}`' if one.label else ''} | {one.help}. |"
        for name, one in METRICS.items()
    ]
    return "\n".join(["| Metric | Kind | Label | Meaning |", "|---|---|---|---|", *rows]) + "\n"


BY_TENANT: Final = frozenset({"weft_breaker_state"})
"""Metrics whose label begins with the tenant, and a colon."""


def exposition(metrics: Metrics, *, tenant: str | None = None) -> str:
    """All metrics of this process in Prometheus' text format. `tenant`: of what is told by tenant,
    this one's alone; None: everybody's."""
    catalog, lines = Catalog(metrics), list[str]()
    unknown = {_name(key): Metric("Not described") for key in metrics.counters}
    for name, metric in sorted({**unknown, **METRICS}.items()):
        lines.append(f"# HELP {name} {metric.help}")
        lines.append(f"# TYPE {name} {metric.kind}")
        if metric.histogram:
            for label, histogram in sorted(_of(name, metrics.histograms).items()):
                lines += _buckets(name, metric.label, label, histogram)
            continue
        found = catalog.read(name) if name in METRICS else _of(name, metrics.counters)
        for label, value in sorted(found.items()):
            if tenant is not None and name in BY_TENANT and not label.startswith(f"{tenant}:"):
                continue
            shown = f"{{{_pair(metric.label, label)}}}" if label else ""
            lines.append(f"{name}{shown} {_number(value)}")
    return "\n".join(lines) + "\n"


def _buckets(name: str, key: str, label: str, histogram: Histogram) -> Iterator[str]:
    pair = f"{_pair(key, label)}," if label else ""
    below = 0
    for bound, number in zip((*map(str, BOUNDS), "+Inf"), histogram.buckets, strict=True):
        below += number
        yield f'{name}_bucket{{{pair}le="{bound}"}} {below}'
    shown = f"{{{_pair(key, label)}}}" if label else ""
    yield f"{name}_sum{shown} {_number(histogram.total)}"
    yield f"{name}_count{shown} {below}"


def _of(name: str, values: Mapping[str, T]) -> dict[str, T]:
    """Those of one metric, by label. From a copy: an exporter's thread asks, too."""
    begin = f"{name}{{"
    found = {
        key[len(begin) : -1]: one for key, one in list(values.items()) if key.startswith(begin)
    }
    if name in values:
        found[""] = values[name]
    return found


def _name(key: str) -> str:
    return key.partition("{")[0]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _pair(key: str, label: str) -> str:
    escaped = label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{key or "label"}="{escaped}"'


if __name__ == "__main__":
    import sys

    sys.stdout.write(table())
