"""Every metric: what it says and what its label is called; and all of them as Prometheus text.

A metric that is counted and not listed here is found by a test, so that a dashboard never meets a
name that nobody can explain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from orchestrator.engine.metrics import Metrics

MEDIA_TYPE: Final = "text/plain; version=0.0.4"
"""Of the text exposition format."""


@dataclass(frozen=True, slots=True)
class Metric:
    """`label`: name of its one label, "" if it has none. `gauge`: a level, not a count."""

    help: str
    label: str = ""
    gauge: bool = False


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
    "weft_tasks_moved_total": Metric("Task messages moved to the low queue: others want a share"),
    "weft_slots_held": Metric(
        "Slots of all tenants with a limit that were held at the sweeper's last count", gauge=True
    ),
    # Dependencies.
    "weft_breaker_state": Metric(
        "Circuit breakers: 0 closed, 1 half open, 2 open", "dependency", gauge=True
    ),
    "weft_breaker_transitions_total": Metric("Changes of circuit breakers", "change"),
    "weft_breaker_trouble_total": Metric("Breakers that could not be read or written"),
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

_KEY: Final = re.compile(r"(?P<name>\w+)(?:{(?P<label>.*)})?", re.DOTALL)


def exposition(metrics: Metrics) -> str:
    """All metrics of this process in Prometheus' text format. Those that have not counted yet are
    shown at 0 unless they have a label, so that alerts on them are never without data."""
    found: dict[str, dict[str, int]] = {
        name: {} if metric.label else {"": 0} for name, metric in METRICS.items()
    }
    for key, value in list(metrics.counters.items()):
        parts = _KEY.fullmatch(key)
        assert parts is not None, key
        found.setdefault(parts["name"], {})[parts["label"] or ""] = value
    lines: list[str] = []
    for name, values in sorted(found.items()):
        metric = METRICS.get(name, Metric("Not described"))
        lines.append(f"# HELP {name} {metric.help}")
        lines.append(f"# TYPE {name} {'gauge' if metric.gauge else 'counter'}")
        for label, value in sorted(values.items()):
            shown = f'{{{metric.label or "label"}="{_escaped(label)}"}}' if label else ""
            lines.append(f"{name}{shown} {value}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
