"""Metrics: every one is described, and all are shown in Prometheus' format."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from orchestrator.engine.metrics import Metrics
from orchestrator.engine.metrics_catalog import METRICS, exposition

ROOT = Path(__file__).parents[3]


def counted() -> set[str]:
    """Names in the source."""
    texts = [path.read_text() for path in (ROOT / "orchestrator").rglob("*.py")]
    own = (ROOT / "orchestrator/engine/metrics_catalog.py").read_text()
    return {
        name
        for text in texts
        if text != own
        for name in re.findall(r'"(weft_\w+_(?:total|state|held))"', text)
    }


def test_every_metric_that_is_counted_is_described_and_the_other_way_round() -> None:
    assert counted() == set(METRICS)


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
