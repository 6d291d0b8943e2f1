"""The load model: its operations are those that are counted on the wire, and it is a model that one
can plan by: more load never costs less."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import capacity, cost
from bench.capacity_model import Assumed, Load, Plan, count, plan, request_units, stages

PRICES = capacity.prices()
LOADS = st.builds(
    Load,
    starts_per_second=st.floats(0, 200),
    chain=st.integers(1, 30),
    width=st.integers(1, 500),
    seconds=st.floats(0, 600),
    http_share=st.floats(0, 1),
    payload_kib=st.floats(0, 30),
    retry_rate=st.floats(0, 2),
    retention_days=st.floats(0, 400),
    peak=st.floats(1, 20),
    memory_gb=st.sampled_from([0.5, 2.0]),
    always_ready=st.integers(0, 5),
)
MORE: dict[str, Any] = {
    "starts_per_second": 7.5,
    "chain": 3,
    "width": 40,
    "seconds": 60.0,
    "http_share": 0.5,
    "payload_kib": 30.0,
    "retry_rate": 0.7,
    "retention_days": 30.0,
    "peak": 4.0,
    "memory_gb": 2.0,
    "always_ready": 1,
}


async def test_the_models_operations_are_those_counted_on_the_wire() -> None:
    load = Load(starts_per_second=1, chain=3, width=40, payload_kib=0.01, retry_rate=0)
    counts = count(stages(load))
    counted = await cost.measure(_counted(load.chain, load.width, counts.tasks))
    # A process says once a minute that its tenant is active, whatever it runs.
    assert 0 <= round(counted["writes"] * counts.tasks) - counts.writes <= 1
    assert round(counted["messages"] * counts.tasks) == counts.messages
    assert counted["queries"] == 0
    # A process reads the definition's version once, and limits and marks once a second.
    assert 0 <= round(counted["reads"] * counts.tasks) - counts.reads <= 12
    estimated = request_units(load, Assumed()) / counts.tasks
    assert estimated == pytest.approx(counted["ru"], rel=0.1)
    assert counted["bus_operations"] <= 3 * counts.messages / counts.tasks


def test_the_models_operations_are_the_figures_of_bench_cost() -> None:
    """As counted in `bench/README.md`, per task: chain of 10, fan of 200."""
    for widths, writes, reads, messages in (
        ([1] * 10, 5.30, 3.21, 2.10),
        ([1, 200, 1], 3.07, 3.01, 2.00),
    ):
        found = count(widths)
        for modelled, counted in (
            (found.writes, writes),
            (found.reads, reads),
            (found.messages, messages),
        ):
            assert modelled / found.tasks == pytest.approx(counted, abs=0.011)
    longer, shorter = count([1] * 30), count([1] * 10)
    assert (longer.writes - shorter.writes) / 20 == 5.00
    assert (longer.messages - shorter.messages) / 20 == 2.00


def _counted(chain: int, width: int, tasks: int) -> cost.Case:
    noop = {"type": "activity", "activity": "noop"}
    ids = [[f"c{n}"] for n in range(chain)]
    if width:
        ids.insert(chain - 1, [f"f{n}" for n in range(width)])
    definition: dict[str, Any] = {"name": "counted", "tasks": {}}
    before: list[str] = []
    for stage in ids:
        definition["tasks"] |= {
            id: {**noop, **({"needs": before} if before else {})} for id in stage
        }
        before = stage
    return cost.Case("counted", definition, 1, tasks, {})


@pytest.mark.parametrize("field", MORE)
@settings(max_examples=15, deadline=None)
@given(load=LOADS)
def test_more_of_anything_never_takes_less(field: str, load: Load) -> None:
    less = plan(load, PRICES)
    more = plan(replace(load, **{field: getattr(load, field) + MORE[field]}), PRICES)
    for name in ("ru", "ru_peak", "messages", "gb_seconds_month", "stored_gb", "total"):
        assert getattr(more, name) >= getattr(less, name) * (1 - 1e-9), name
    assert all(more.instances[name] >= number for name, number in less.instances.items())


def test_no_load_costs_only_what_runs_without_it() -> None:
    idle = plan(Load(starts_per_second=0), PRICES)
    assert (idle.ru, idle.stored_gb, sum(idle.instances.values())) == (0, 0, 0)
    assert {name for name, euros in idle.euros.items() if euros} == {"service bus", "functions"}
    private = plan(Load(starts_per_second=0, private_network=True, always_ready=2), PRICES)
    assert private.bus == "premium, 1 units"
    assert private.total > idle.total


def test_payloads_beyond_the_inline_limit_are_blobs_and_spare_request_units() -> None:
    inline, blob = (plan(Load(starts_per_second=1, payload_kib=size), PRICES) for size in (64, 65))
    assert blob.ru < inline.ru
    assert (inline.blob_gb, blob.blob_gb > 0) == (0, True)


def test_a_private_network_and_a_large_load_need_messaging_units() -> None:
    def bus(**more: Any) -> str:
        return plan(Load(**more), PRICES).bus

    assert bus(starts_per_second=1) == "standard"
    assert bus(starts_per_second=30) == "premium, 2 units"
    assert bus(starts_per_second=3_000) == "premium, 192 units (more than one namespace)"


def test_the_table_and_the_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--starts", "5", "--width", "20", "--private", "--seconds", "3"]
    capacity.main(words)
    shown = capsys.readouterr().out
    capacity.main([*words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["bus"] in shown
    assert f"{found['total']:,.2f}" in shown
    assert found.keys() - {"total"} == Plan.__dataclass_fields__.keys()
    assert PRICES["date"] in shown


@pytest.mark.parametrize("checked", [True, False])
def test_prices_that_nobody_checked_are_called_so(checked: bool) -> None:
    load = Load(starts_per_second=1)
    shown = capacity.report(load, plan(load, PRICES), {**PRICES, "checked": checked})
    assert ("unchecked list prices" in shown) is not checked
    assert PRICES["source"]


def test_every_price_is_used() -> None:
    text = (Path(capacity.__file__).parent / "capacity_model.py").read_text("utf-8")
    for name, value in PRICES.items():
        if not isinstance(value, str | bool):
            assert f'"{name}"' in text, name
