"""Metrics: every one is described, and all are shown in Prometheus' format."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.engine.metrics import Metrics
from orchestrator.engine.metrics_catalog import METRICS, Catalog, exposition, table

ROOT = Path(__file__).parents[3]


def counted() -> set[str]:
    """Names in the source."""
    texts = [path.read_text() for path in (ROOT / "orchestrator").rglob("*.py")]
    own = (ROOT / "orchestrator/engine/metrics_catalog.py").read_text()
    return {
        name
        for text in texts
        if text != own
        for name in re.findall(r'"(weft_\w+_(?:total|state|held|seconds))"', text)
    }


def test_every_metric_that_is_counted_is_described_and_the_other_way_round() -> None:
    assert counted() == set(METRICS)


def test_the_page_has_every_metric_as_the_catalog_describes_it() -> None:
    """After a change: `python -m orchestrator.engine.metrics_catalog` prints the new table."""
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    begin, end = "<!-- metrics -->\n", "<!-- /metrics -->\n"
    assert page[page.index(begin) + len(begin) : page.index(end)] == table()


def test_a_histogram_is_cumulative_buckets_a_sum_and_a_count() -> None:
    metrics = Metrics()
    for seconds in (0.004, 0.005, 0.2, 7200.0):
        metrics.observe("weft_task_duration_seconds", "http", seconds)
    [family] = [
        one
        for one in text_string_to_metric_families(exposition(metrics))
        if one.name == "weft_task_duration_seconds"
    ]
    assert family.type == "histogram"
    found = {
        (one.name.removeprefix("weft_task_duration_seconds"), one.labels.get("le")): one.value
        for one in family.samples
        if one.labels["type"] == "http"
    }
    assert found["_bucket", "0.005"] == 2  # a value at its bucket's upper end is in it
    assert (found["_bucket", "0.1"], found["_bucket", "0.25"]) == (2, 3)
    assert (found["_bucket", "1800.0"], found["_bucket", "+Inf"]) == (3, 4)
    assert found["_sum", None] == pytest.approx(7200.209)
    assert found["_count", None] == metrics.value("weft_task_duration_seconds", "http") == 4


def test_a_level_that_nobody_measures_any_more_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process sweeps now: the age that this one saw would keep an alert on for ever."""
    metrics, now = Metrics(), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    metrics.gauge("weft_outbox_age_seconds", "", 400)
    metrics.gauge("weft_breaker_state", "pay", 2)
    catalog = Catalog(metrics)
    for passed, shown in ((90, {"": 400}), (1, {})):
        now[0] += passed
        assert catalog.read("weft_outbox_age_seconds") == shown
        assert catalog.read("weft_breaker_state") == {"pay": 2}


def test_the_text_is_what_prometheus_reads() -> None:
    metrics = Metrics()
    metrics.count("weft_commits_total", by=3)
    metrics.count("weft_repairs_total", "task")
    metrics.count("weft_repairs_total", "outbox", by=2)
    metrics.gauge("weft_breaker_state", 'acme "pay\\example"\n', 2)
    families = {one.name: one for one in text_string_to_metric_families(exposition(metrics))}
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["weft_commits_total",] == 3
    assert samples["weft_repairs_total", "task"] == 1
    assert samples["weft_repairs_total", "outbox"] == 2
    assert samples["weft_breaker_state", 'acme "pay\\example"\n'] == 2
    assert samples["weft_leases_lost_total",] == 0  # never without data
    assert families["weft_breaker_state"].type == "gauge"
    assert families["weft_repairs"].type == "counter"
    assert {key for one in families.values() for s in one.samples for key in s.labels} == {
        "kind",
        "dependency",
    }
