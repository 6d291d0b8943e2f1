"""What `bench/chaos.py` runs: workflows of every kind, their activities, and what must come out.

The activities are the bench's own, so they are not in the `activities` folder. A `sitecustomize` in
a temporary folder on `PYTHONPATH` imports this module into every process of `weft up`, which itself
stays exactly as users start it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

from activities import Context, activity

PATIENT: Final = {"maxAttempts": 50, "initialInterval": "100ms", "maxInterval": "1s"}
"""Every kill costs attempts; none of these tasks may run out of them."""
NUMBERS: Final = list(range(30))


@activity("chaos.step")
def step(value: int, ctx: Context) -> int:
    """Adds one, after a few milliseconds in which its process may be killed."""
    time.sleep(0.02)
    return value + 1


@activity("chaos.flaky")
def flaky(value: int, ctx: Context) -> int:
    """Fails twice, whatever else befalls it."""
    if ctx.attempt <= 2:
        raise ValueError(f"attempt {ctx.attempt} of {value}")
    return value


@activity("chaos.broken")
def broken(value: int, ctx: Context) -> int:
    """Fails always."""
    raise ValueError(f"never {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A workflow, the status and output of each execution, and which tasks end dead-lettered."""

    definition: dict[str, Any]
    status: str = "COMPLETED"
    output: Any = None
    dead: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def name(self) -> str:
        """The workflow."""
        return self.definition["name"]


def _step(value: Any, *needs: str) -> dict[str, Any]:
    return {"type": "activity", "activity": "chaos.step", "input": value, "needs": list(needs)}


def _flow(name: str, tasks: dict[str, Any], output: str, **more: Any) -> dict[str, Any]:
    return {
        "name": f"chaos-{name}",
        "defaults": {"retry": PATIENT},
        "tasks": tasks,
        "output": output,
        **more,
    }


def _chain(length: int) -> Load:
    tasks = {"t0": _step(0)}
    for at in range(1, length):
        tasks[f"t{at}"] = _step(f"${{tasks.t{at - 1}.output}}", f"t{at - 1}")
    last = f"${{tasks.t{length - 1}.output}}"
    return Load(definition=_flow("chain", tasks, last), output=length)


def _fan(width: int) -> Load:
    middle = {f"m{at}": _step(at, "first") for at in range(width)}
    tasks = {"first": _step(0), **middle, "last": _step(width, *middle)}
    return Load(definition=_flow("fan", tasks, "${tasks.last.output}"), output=width + 1)


def _map() -> Load:
    do = {"type": "activity", "activity": "chaos.step", "input": "${item}"}
    each = {"type": "map", "items": NUMBERS, "maxConcurrency": 8, "do": do}
    output = [number + 1 for number in NUMBERS]
    return Load(definition=_flow("map", {"each": each}, "${tasks.each.output}"), output=output)


def _flaky() -> Load:
    fails = {"type": "activity", "activity": "chaos.flaky", "input": 7}
    return Load(definition=_flow("flaky", {"t": fails}, "${tasks.t.output}"), output=7)


def _wait() -> Load:
    tasks = {"first": _step(1), "rest": {"type": "wait", "duration": "2s", "needs": ["first"]}}
    tasks["last"] = _step("${tasks.first.output}", "rest")
    return Load(definition=_flow("wait", tasks, "${tasks.last.output}"), output=3)


def _doomed() -> Load:
    """Its activity fails for good, its handler tidies up."""
    fails: dict[str, Any] = {"type": "activity", "activity": "chaos.broken", "input": 1}
    fails["retry"] = {**PATIENT, "maxAttempts": 2}
    handler = _step(1, "t") | {"runWhen": "anyFailed"}
    definition = _flow("doomed", {"t": fails, "tidy": handler}, "${null}")
    return Load(definition=definition, status="FAILED", dead=frozenset({"t"}))


LOADS: Final = (_chain(6), _fan(15), _map(), _flaky(), _wait(), _doomed())
