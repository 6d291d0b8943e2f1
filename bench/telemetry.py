"""What telemetry costs: the chain of `bench.throughput` with tracing off, sampled, and full.

    python -m bench.telemetry [--repeat 8] [--json]

The exporter makes the OTLP requests and throws them away, so that what is measured is ours and the
SDK's, not a collector's. All three run in one process on one platform, in turn, run after run, so
that the machine's moods fall on all alike. Processor time is what to compare; wall time follows.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from bench import harness
from bench.cases import CHAIN_TASKS
from orchestrator.adapters.telemetry.exporters import batches
from orchestrator.adapters.telemetry.otel import OtelTracer
from orchestrator.ports_telemetry import NoTracer, Tracer

EXECUTIONS: Final = 50
RATIOS: Final = {"off": None, "10 %": 0.1, "100 %": 1.0}


class Discarding(SpanExporter):
    """Encodes what it gets, and counts."""

    def __init__(self) -> None:
        self.spans = self.bytes = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """As the exporter over HTTP does, but for the request."""
        self.spans += len(spans)
        self.bytes += len(encode_spans(spans).SerializeToString())
        return SpanExportResult.SUCCESS


async def measure(folder: Path, repeat: int) -> dict[str, dict[str, float]]:
    """By mode: `best_per_s`, `cpu_ms` (medians and least per task), spans per task."""
    exporters = {mode: Discarding() for mode in RATIOS}
    tracers: dict[str, Tracer] = {
        mode: NoTracer() if ratio is None else OtelTracer(batches(exporters[mode]), ratio=ratio)
        for mode, ratio in RATIOS.items()
    }
    runs: dict[str, list[harness.Run]] = {mode: [] for mode in RATIOS}
    async with harness.running(folder) as platform:
        own = platform.engine.tracer
        for turn in range(repeat + 1):  # the first one warms up
            for mode, tracer in tracers.items():
                platform.engine.tracer = tracer
                gc.collect()
                run = await harness.run(
                    platform, harness.chain(CHAIN_TASKS), EXECUTIONS, CHAIN_TASKS
                )
                if turn:
                    runs[mode].append(run)
        platform.engine.tracer = own
        for tracer in tracers.values():
            await tracer.close()
    tasks = (repeat + 1) * EXECUTIONS * CHAIN_TASKS
    return {
        mode: {
            "best_per_s": max(run.per_second for run in found),
            "median_per_s": sorted(run.per_second for run in found)[len(found) // 2],
            "cpu_ms": min(run.cpu_ms for run in found),
            "median_cpu_ms": sorted(run.cpu_ms for run in found)[len(found) // 2],
            "spans_per_task": exporters[mode].spans / tasks,
        }
        for mode, found in runs.items()
    }


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.telemetry", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--repeat", type=int, default=8, help="runs per mode")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as name:
        found: dict[str, Any] = asyncio.run(measure(Path(name), arguments.repeat))
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    off = found["off"]
    print("| tracing | tasks/s, best (median) | CPU ms/task, least (median) | cost | spans/task |")
    print("|---|---|---|---|---|")
    for mode, one in found.items():
        cost = (one["cpu_ms"] / off["cpu_ms"] - 1) * 100
        print(
            f"| {mode} | {one['best_per_s']:,.0f} ({one['median_per_s']:,.0f}) "
            f"| {one['cpu_ms']:.2f} ({one['median_cpu_ms']:.2f}) "
            f"| {cost:+.1f} % | {one['spans_per_task']:.1f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
