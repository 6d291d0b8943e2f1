"""The samples below `samples/code/` on the real hub, on a clock that jumps.

Each is loaded into registries of its own, from its source, so that a test may change a line of it:
nothing of a sample is ever in the registries of the app. `python -m tests.support.code_samples
FOLDER` records histories of all scenarios; those that are kept must stay as they are, since they
stand for executions that are running somewhere.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import azure.functions as func

from activities.code import registry as code_registry
from activities.code.driver import functions
from activities.code.registry import CodeRegistry
from activities.context import Context
from activities.failures import failure_of
from activities.outputs import write_output
from activities.registry import Registry
from activities.values import read_input
from orchestrator.functions import durable
from orchestrator.local.durable import recordings
from orchestrator.ports import ActivityCall, ActivityFailed
from tests.support.durable_hand import envelope, signal
from tests.support.durable_hub import Input, Run, raised, start
from tests.support.world import FakeActivities, World

FOLDER = Path(__file__).parents[2] / "samples" / "code"
DAY = 86_400_000
CALLS: Counter[str] = Counter()
"""Runs of activities, by idempotency key."""


@dataclass(frozen=True)
class Sample:
    """What a module has registered."""

    code: CodeRegistry
    activities: Registry


def load(name: str, *changes: tuple[str, str]) -> Sample:
    """The module `name`, with texts of its source replaced; each must be there."""
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in source, f"{name}.py has no {old!r}"
        source = source.replace(old, new)
    sample = Sample(CodeRegistry(), Registry())
    module = types.ModuleType(f"code_sample_{name}")
    sys.modules[module.__name__] = module  # where its annotations are looked up
    with (
        mock.patch.object(code_registry, "_DEFAULT", sample.code),
        mock.patch("activities.registry._DEFAULT", sample.activities),
    ):
        exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return sample


@dataclass(frozen=True)
class Scenario:
    """One execution of a sample: what is sent in, and what the world is like."""

    module: str
    workflow: str
    value: Any
    signals: Sequence[Input] = ()
    until: int = 10**12  # ms after the start; less leaves it in flight
    gives: dict[str, Callable[[ActivityCall], Any]] = field(default_factory=dict)
    """Instead of activities that look at the world."""

    def inputs(self) -> list[Input]:
        """What clients do."""
        function = f"code_{self.workflow}_v1"
        text = envelope(self.workflow, self.value, execution="i")
        return [start(function, json.dumps(text)), *self.signals]


def said(payload: Any, at: int, id: str = "s1") -> Input:
    """A signal `decision`, `at` ms after the start."""
    return raised("decision", json.dumps(signal(id, payload)), at=at)


def _there(looks: int) -> dict[str, Callable[[ActivityCall], Any]]:
    """A file that is there at that look: by its key, so that a repeated look sees the same."""

    def look(call: ActivityCall) -> Any:
        _, generation, number = call.idempotency_key.rsplit(":", 2)
        found = int(generation) * 2 + int(number) >= looks
        return {"bytes": 4_711 if found else None}

    return {"exports.look": look}


def _at_second_try(call: ActivityCall) -> Any:
    if call.attempt == 1:
        raise TimeoutError("the south does not answer")
    return {"region": call.input["region"], "cents": len(call.input["region"])}


_EXPENSE = {"id": "x1", "who": "Ada", "cents": 12_050}
_ORDER = {"id": "o1", "parcels": [{"id": "p1", "grams": 900}, {"id": "p2", "grams": 31_000}]}
_POLL = {"path": "export.csv", "per_generation": 2, "at_most": 6}
_REPORT = {"month": "2026-11", "regions": ["south", "north"]}

SCENARIOS = {
    "poll-found": Scenario("poll_until_ready", "poll-until-ready", _POLL, gives=_there(3)),
    "poll-never": Scenario("poll_until_ready", "poll-until-ready", _POLL, gives=_there(99)),
    "poll-waiting": Scenario(
        "poll_until_ready", "poll-until-ready", _POLL, gives=_there(99), until=40_000
    ),
    "report": Scenario("regional_report", "regional-report", _REPORT),
    "report-retried": Scenario(
        "regional_report", "regional-report", _REPORT, gives={"sales.total": _at_second_try}
    ),
    "parcel": Scenario("parcel", "parcel", _ORDER),
    "parcel-waiting": Scenario("parcel", "parcel", _ORDER, until=60_000),
    "expense-approved": Scenario(
        "expense", "expense", _EXPENSE, [said({"approved": True, "by": "Grace"}, 3_600_000)]
    ),
    "expense-reminded": Scenario(
        "expense", "expense", _EXPENSE, [said({"approved": True, "by": "Grace"}, 3 * DAY)]
    ),
    "expense-late": Scenario("expense", "expense", _EXPENSE),
    "expense-waiting": Scenario("expense", "expense", _EXPENSE, until=DAY),
    "expense-reminded-waiting": Scenario("expense", "expense", _EXPENSE, until=4 * DAY),
    "trial-ended": Scenario("trial_period", "trial-period", {"customer": "Ada"}),
    "trial-bought": Scenario("trial_period", "trial-period", {"customer": "Grace!"}),
    "trial-waiting": Scenario("trial_period", "trial-period", {"customer": "Ada"}, until=30 * DAY),
}


CALLED = ("report-retried", "parcel")
"""Scenarios whose first step is an instance of its own that is recorded, too."""


class Stage:
    """An engine whose activities are those of samples, and apps of functions on it."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)

    async def get(self) -> Any:
        """The engine; as `EngineProvider`."""
        return self.world.engine

    def app(self, scenario: Scenario) -> func.FunctionApp:
        """The functions of a scenario's sample."""
        sample = load(scenario.module)
        self.world.engine.activities = FakeActivities(
            **{
                one.name: _counted(scenario.gives.get(one.name) or _plain(sample, one.name))
                for one in sample.activities
            }
        )
        app = func.FunctionApp()
        app.register_functions(durable.blueprint(self, functions(sample.code)))  # type: ignore[arg-type]
        return app


def _counted(run: Callable[[ActivityCall], Any]) -> Callable[[ActivityCall], Any]:
    def counted(call: ActivityCall) -> Any:
        CALLS[call.idempotency_key] += 1
        return run(call)

    return counted


def _plain(sample: Sample, name: str) -> Callable[[ActivityCall], Any]:
    """The sample's own function, as the runner calls plain ones, but on the spot."""
    found = sample.activities.get(name)
    assert found is not None

    def run(call: ActivityCall) -> Any:
        arguments: list[Any] = []
        if found.signature.takes_input:
            arguments.append(read_input(found, call.input))
        if found.signature.takes_context:
            arguments.append(Context(call))
        try:
            return write_output(found, found.fn(*arguments))
        except Exception as error:
            raise ActivityFailed(failure_of(error)) from error

    return run


def recording_of(world: Run, instance: str = "i") -> str:
    """As `weft code export` writes it, without the stacks of failures: they name files."""
    text = recordings.exported(world.client.db, instance)
    assert text is not None, instance
    return re.sub(r'"Details": ".*"', '"Details": ""', text)


async def _record(folder: Path) -> None:
    for name, scenario in SCENARIOS.items():
        with tempfile.TemporaryDirectory() as temporary:
            stage = Stage(Path(temporary))
            await stage.world.open()
            world = Run(stage.app(scenario), Path(temporary) / "durable.db")
            await world.go(scenario.inputs(), scenario.until)
            (folder / f"{name}.json").write_text(recording_of(world), encoding="utf-8")
            if name in CALLED:
                text = recording_of(world, "i:0.1")
                (folder / f"{name}.call.json").write_text(text, encoding="utf-8")
            world.close()
            await stage.world.close()


if __name__ == "__main__":
    asyncio.run(_record(Path(sys.argv[1])))
