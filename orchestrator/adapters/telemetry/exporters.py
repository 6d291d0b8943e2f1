"""Where traces and metrics go: Application Insights, or any OTLP collector over HTTP.

The exporter of Azure Monitor is used without its distribution (`azure-monitor-opentelemetry`),
which would set global providers, patch other libraries, and send log records a second time: the
Functions host forwards those already. Its credential is what the setting
`APPLICATIONINSIGHTS_AUTHENTICATION_STRING` says.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from orchestrator.adapters.telemetry import otel_metrics
from orchestrator.adapters.telemetry.otel import OtelTracer
from orchestrator.ports_telemetry import MetricSource

SPANS_EVERY_MS: Final = 2_000
MAX_SPANS_WAITING: Final = 8_192
"""More are dropped, not waited for: telemetry must not slow the work down."""
METRICS_EVERY_MS: Final = 60_000
SENDING_S: Final = 10
_ASIDES: Final = (
    "STATSBEAT_DISABLED_ALL",
    "SDKSTATS_DISABLED",
    "CONTROLPLANE_DISABLED",
    "OPENTELEMETRY_RESOURCE_METRIC_DISABLED",
)
"""What the exporter would do besides: send statistics about itself, ask Microsoft how to behave,
and complain that there is no global provider. Whoever wants it sets the variable to `false`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`connection`: of Application Insights; without one `otlp`: base address of a collector.
    `ratio`: share of new traces that is recorded. `service`, `instance`: who sends."""

    connection: str = ""
    otlp: str = ""
    ratio: float = 1.0
    service: str = "weft"
    instance: str = ""


def open_tracer(target: Target, source: MetricSource) -> OtelTracer:
    """A tracer that exports to `target`, and from now on the metrics of `source`, too. Raises
    `ValueError` for a connection string that is none. Nothing is sent yet."""
    spans, metrics = _azure(target.connection) if target.connection else _otlp(target.otlp)
    resource = Resource.create(
        {"service.name": target.service, "service.instance.id": target.instance}
    )
    reader = PeriodicExportingMetricReader(metrics, export_interval_millis=METRICS_EVERY_MS)
    meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    otel_metrics.bind(meters, source)
    return OtelTracer(batches(spans), ratio=target.ratio, resource=resource, also=[meters.shutdown])


def batches(exporter: SpanExporter) -> BatchSpanProcessor:
    """Spans to `exporter`, in batches from a thread."""
    return BatchSpanProcessor(
        exporter,
        max_queue_size=MAX_SPANS_WAITING,
        schedule_delay_millis=SPANS_EVERY_MS,
        export_timeout_millis=SENDING_S * 1000,
    )


def _azure(connection: str) -> tuple[SpanExporter, MetricExporter]:
    for name in _ASIDES:
        os.environ.setdefault(f"APPLICATIONINSIGHTS_{name}", "true")
    # Imported here: takes a third of a second, and only this needs it.
    from azure.monitor.opentelemetry.exporter import (
        AzureMonitorMetricExporter,
        AzureMonitorTraceExporter,
    )

    # Not kept on disk while it cannot be sent: an instance's disk goes with the instance.
    return (
        AzureMonitorTraceExporter(connection_string=connection, disable_offline_storage=True),
        AzureMonitorMetricExporter(connection_string=connection, disable_offline_storage=True),
    )


def _otlp(base: str) -> tuple[SpanExporter, MetricExporter]:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    base = base.rstrip("/")
    return (
        OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=SENDING_S),
        OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=SENDING_S),
    )
