"""What leaves the process: over OTLP, and to Application Insights, as their servers get it."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from orchestrator import bootstrap
from orchestrator.adapters.telemetry.exporters import Target, open_tracer
from orchestrator.adapters.telemetry.otel import context_of
from orchestrator.engine import telemetry
from orchestrator.engine.metrics import Metrics
from orchestrator.engine.metrics_catalog import METRICS, Catalog
from orchestrator.ports_telemetry import NoTracer
from orchestrator.settings import SettingsError, load_settings

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector(ThreadingHTTPServer):
    """Keeps what is posted, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def bodies(self, path: str) -> list[bytes]:
        return [body for at, body in self.got if at == path]


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.got.append((self.path, body))
        answer = b'{"itemsReceived": 1, "itemsAccepted": 1, "errors": []}'
        answer = answer if "track" in self.path else b""
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def metrics() -> Metrics:
    found = Metrics()
    found.count("weft_executions_total", "COMPLETED", 3)
    found.count("weft_commits_total", by=7)
    found.gauge("weft_queue_oldest_seconds", "tasks-standard", 1.5)
    return found


def threads() -> set[str]:
    """Their names, without the one that just ends."""
    return {one.name for one in threading.enumerate()} - {"weft-telemetry-close"}


async def work(target: Target, metrics: Metrics) -> None:
    tracer = open_tracer(target, Catalog(metrics))
    about: Any = {"tenant": "acme", "execution": "e-1", "attempt": 2}
    with telemetry.span(tracer, "execute", parent=PARENT, kind="consumer", about=about) as span:
        span.fail("HttpServerError")
    metrics.observe("weft_task_duration_seconds", "http", 0.2)
    await tracer.close()
    await tracer.close()  # idempotent


async def test_otlp_gets_the_spans_and_every_metric_under_its_own_name(
    collector: Collector, metrics: Metrics
) -> None:
    await work(Target(otlp=f"{collector.url}/", service="shop", instance="w-1"), metrics)
    [body] = collector.bodies("/v1/traces")
    [resource] = ExportTraceServiceRequest.FromString(body).resource_spans
    named = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (named["service.name"], named["service.instance.id"]) == ("shop", "w-1")
    [span] = resource.scope_spans[0].spans
    assert (span.name, span.trace_id.hex()) == ("execute", PARENT.split("-")[1])
    assert span.parent_span_id.hex() == PARENT.split("-")[2]
    said = {one.key: one.value for one in span.attributes}
    assert said["weft.execution"].string_value == "e-1"
    assert said["weft.attempt"].int_value == 2
    assert said["error.type"].string_value == "HttpServerError"

    [body] = collector.bodies("/v1/metrics")
    [resource_metrics] = ExportMetricsServiceRequest.FromString(body).resource_metrics
    found = {one.name: one for one in resource_metrics.scope_metrics[0].metrics}
    assert found.keys() <= METRICS.keys()
    [point] = found["weft_executions_total"].sum.data_points
    assert (point.as_int, point.attributes[0].key) == (3, "status")
    assert found["weft_queue_oldest_seconds"].gauge.data_points[0].as_double == 1.5
    assert found["weft_leases_lost_total"].sum.data_points[0].as_int == 0
    [histogram] = found["weft_task_duration_seconds"].histogram.data_points
    assert (histogram.count, histogram.sum) == (1, 0.2)
    assert min(histogram.explicit_bounds) == 0.005


async def test_application_insights_gets_them_as_requests_and_metrics_by_label(
    collector: Collector,
    metrics: Metrics,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The alerts ask for `AppMetrics`: `Name`, `Sum`, and the label among the `Properties`."""
    monkeypatch.delenv("APPLICATIONINSIGHTS_AUTHENTICATION_STRING", raising=False)
    key = "00000000-0000-0000-0000-000000000001"
    running = threads()
    await work(
        Target(connection=f"InstrumentationKey={key};IngestionEndpoint={collector.url}/"), metrics
    )
    assert threads() <= running  # nothing of its own is left
    assert not caplog.records
    sent = [one for path, body in collector.got if "track" in path for one in json.loads(body)]
    [request] = [one for one in sent if one["data"]["baseType"] == "RequestData"]
    assert request["tags"]["ai.operation.id"] == PARENT.split("-")[1]
    assert request["data"]["baseData"]["properties"]["weft.execution"] == "e-1"
    assert request["data"]["baseData"]["success"] is False
    assert not request["data"]["baseData"].get("url")  # alerts count those of the host, which have
    points = {
        one["data"]["baseData"]["metrics"][0]["name"]: one["data"]["baseData"]
        for one in sent
        if one["data"]["baseType"] == "MetricData"
    }
    ended = points["weft_executions_total"]
    assert ended["metrics"][0]["value"] == 3
    assert ended["properties"]["status"] == "COMPLETED"
    level = points["weft_queue_oldest_seconds"]
    assert level["properties"]["queue"] == "tasks-standard"
    # A level has no `max`: who asks for it reads `Sum`, which is the value of one measurement.
    assert level["metrics"] == [{"name": "weft_queue_oldest_seconds", "value": 1.5, "count": 1}]
    assert points["weft_task_duration_seconds"]["metrics"][0]["count"] == 1


async def test_an_exporter_that_nobody_answers_holds_up_nobody(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the process waits for it as long as `CLOSING_S`, whatever the SDK does."""
    from orchestrator.adapters.telemetry import otel

    monkeypatch.setattr(otel, "CLOSING_S", 0.01)
    tracer = open_tracer(Target(otlp="http://127.0.0.1:9"), Catalog(metrics))
    hung = threading.Event()
    monkeypatch.setattr(tracer, "_closing", [hung.wait])
    await tracer.close()
    hung.set()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        PARENT + "-x",
        PARENT.upper(),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        "ff" + PARENT[2:],
    ],
)
def test_what_is_no_traceparent_is_none(text: str) -> None:
    assert context_of(text) is None
    assert context_of(PARENT) is not None


@pytest.mark.parametrize(
    ("env", "traced"),
    [({}, False), ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True)],
)
async def test_the_settings_say_whether_anything_is_exported(
    tmp_path: Path, env: dict[str, str], traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await bootstrap.build(load_settings({"WEFT_DATA_DIR": str(tmp_path), **env}))
    assert isinstance(engine.tracer, NoTracer) is not traced
    assert set(engine.probes) == {"broker", "payloads"}
    assert engine.backlog is engine.transport
    monkeypatch.setattr(engine.tracer, "_closing", [], raising=False)  # there is no collector
    await engine.close()


def test_settings_of_telemetry() -> None:
    given = load_settings({})
    assert (given.traced, given.log_form) == (1.0, "text")
    given = load_settings({"WEFT_TRACE_RATIO": "0.25", "WEFT_LOG_FORMAT": "json"})
    assert (given.traced, given.log_form) == (0.25, "json")
    with pytest.raises(SettingsError, match=r"WEFT_TRACE_RATIO(.|\n)*OTEL_EXPORTER_OTLP_ENDPOINT"):
        load_settings({"WEFT_TRACE_RATIO": "2", "OTEL_EXPORTER_OTLP_ENDPOINT": "localhost"})
