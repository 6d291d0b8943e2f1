"""Everything that the process counts, as OpenTelemetry instruments.

Counters and levels are read when the exporter asks, so counting stays what it is: one addition to
a dictionary. Only histograms are handed on value by value: no instrument can be asked for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Histogram, Observation
from opentelemetry.sdk.metrics import MeterProvider

from orchestrator.ports_telemetry import Instrument, MetricSource


def bind(provider: MeterProvider, source: MetricSource) -> None:
    """Declare all metrics of `source` with `provider`. Names and labels stay as they are."""
    meter = provider.get_meter("weft")
    histograms: dict[str, tuple[Histogram, str]] = {}
    for one in source.instruments():
        match one.kind:
            case "counter":
                meter.create_observable_counter(
                    one.name, [_reading(source, one)], description=one.help
                )
            case "gauge":
                meter.create_observable_gauge(
                    one.name, [_reading(source, one)], description=one.help
                )
            case "histogram":
                made = meter.create_histogram(
                    one.name,
                    unit="s",
                    description=one.help,
                    explicit_bucket_boundaries_advisory=list(one.bounds),
                )
                histograms[one.name] = (made, one.label)

    def heard(name: str, label: str, value: float) -> None:
        histogram, key = histograms[name]
        histogram.record(value, {key: label} if label else {})

    source.listen(heard)


def _reading(
    source: MetricSource, one: Instrument
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(options: CallbackOptions) -> Iterable[Observation]:
        for label, value in source.read(one.name).items():
            yield Observation(value, {one.label: label} if label else {})

    return read
