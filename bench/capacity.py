"""What a load takes on Azure, and what it costs.

    python -m bench.capacity --starts 5 --chain 10 --seconds 2
    python -m bench.capacity --starts 1 --width 200 --payload-kib 20 --private --json

The model is `bench/capacity_model.py`; docs/scaling.md says how to read it. Prices are in
`bench/prices.json`: list prices of a date, to be checked and edited.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.capacity_model import Load, Plan, plan

PRICES: Final = Path(__file__).with_name("prices.json")


def prices() -> dict[str, Any]:
    """The table, with its date and region."""
    return json.loads(PRICES.read_text(encoding="utf-8"))


def report(load: Load, found: Plan, known: dict[str, Any]) -> str:
    """The table."""
    counts = found.per_execution
    sure = "list prices" if known["checked"] else "unchecked list prices"
    rows = [
        ("per execution", ""),
        ("  tasks, decisions", f"{counts.tasks}, {counts.decisions:.0f}"),
        ("  writes, reads, messages", f"{counts.writes:.0f}, {counts.reads:.0f}, "
         f"{counts.messages:.0f}"),
        ("  request units", f"{found.ru_per_execution:,.0f}"),
        ("per second", f"mean; peak is {load.peak:g} times that"),
        ("  tasks", f"{load.starts_per_second * counts.tasks:,.1f}"),
        ("  request units, peak", f"{found.ru:,.0f}, {found.ru_peak:,.0f}"),
        ("  Service Bus operations", f"{found.bus_operations:,.0f}"),
        ("settings", ""),
        ("  executionsMaxThroughput", f"{max(found.ru_setting, 1_000):,}"),
        ("  Service Bus", found.bus),
        *((f"  instances: {name}", str(number)) for name, number in found.instances.items()),
        ("limits", ""),
        ("  tasks/s of one execution", f"{found.partition_tasks:,.0f}"),
        ("stored", f"after {load.retention_days:g} days"),
        ("  documents, blobs", f"{found.stored_gb:,.1f} GB, {found.blob_gb:,.1f} GB"),
        (f"{known['currency']} a month", f"{known['region']}, {sure} of {known['date']}"),
        *((f"  {name}", f"{euros:,.2f}") for name, euros in found.euros.items()),
        ("  total", f"{found.total:,.2f}"),
    ]  # fmt: skip
    return "\n".join(f"{name:<30}{value}".rstrip() for name, value in rows)


def arguments() -> argparse.ArgumentParser:
    """One option for each field of `Load`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--starts", type=float, required=True, help="executions a second")
    for field in dataclasses.fields(Load)[1:]:
        name = "--" + field.name.replace("_", "-").replace("-network", "")
        if field.type == "bool":
            parser.add_argument(name, dest=field.name, action="store_true")
        else:
            kind = int if field.type == "int" else float
            parser.add_argument(name, dest=field.name, type=kind, default=field.default)
    parser.add_argument("--json", action="store_true")
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Command line."""
    asked = vars(arguments().parse_args(words))
    as_json = asked.pop("json")
    load = Load(starts_per_second=asked.pop("starts"), **asked)
    known = prices()
    found = plan(load, known)
    if as_json:
        print(json.dumps({**dataclasses.asdict(found), "total": found.total}, indent=2))
    else:
        print(report(load, found, known))


if __name__ == "__main__":
    main()
