"""Random workflows: every shape and rule of the definition, with activities that misbehave."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.simulation.undoing import own_random

MANY = 60
"""Attempts that no run's faults use up, where the outcome must not depend on them."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A definition with an input. `comparable`: its outcome depends on nothing but itself."""

    name: str
    definition: dict[str, Any]
    input: dict[str, Any]
    comparable: bool

    @property
    def signals(self) -> dict[str, list[str]]:
        """Signal name -> ids of the tasks that wait for it."""
        found: dict[str, list[str]] = {}
        for id, task in self.definition["tasks"].items():
            if task["type"] == "signal":
                found.setdefault(task["signal"], []).append(id)
        return found


def draw(rng: random.Random, name: str) -> Flow:
    """A workflow of 1 to 9 tasks; now and then a wide one."""
    gentle = rng.random() < 0.5  # nothing fails for good, so that whole graphs run
    tasks: dict[str, Any] = {}
    wide = rng.random() < 0.05
    for position in range(25 if wide else rng.randint(1, 9)):
        ids = list(tasks)
        needs = sorted(rng.sample(ids, min(len(ids), rng.choice((0, 1, 1, 2, 3)))))
        tasks[f"t{position}"] = _task(rng, needs, gentle)
    timeout = None if rng.random() < 0.9 else rng.choice(("15s", "60s"))
    definition: dict[str, Any] = {"name": name, "tasks": tasks}
    definition["onFailure"] = rng.choice(("continue", "continue", "failFast", "failFast", "hold"))
    if timeout is not None:
        definition["timeout"] = timeout
    if rng.random() < 0.7:
        names = rng.sample(list(tasks), min(len(tasks), 3))
        output: dict[str, Any] = {id: f"${{tasks.{id}.output}}" for id in names}
        output["states"] = [f"${{tasks.{id}.status}}" for id in tasks]
        definition["output"] = output
    _add_compensations(definition, gentle)
    given = {
        "a": rng.randint(0, 9),
        "items": [rng.randint(0, 99) for _ in range(rng.randint(0, 6))],
    }
    late = _deadlines(definition)
    limited = _signals(definition)
    return Flow(name, definition, given, comparable=timeout is None and not (late or limited))


def _signals(definition: dict[str, Any]) -> bool:
    """Let some tasks of one workflow in three wait for signals; whether any of them has a limit:
    which side wins against that depends on when things happen."""
    rng = random.Random(f"signals {definition}")
    if rng.random() > 0.33:
        return False
    common = ("needs", "runWhen", "when", "continueOnError", "deadline")
    limited = False
    for id, task in definition["tasks"].items():
        if task["type"] in ("wait", "transform") or rng.random() < 0.2:
            wait = {"type": "signal", "signal": rng.choice(("go", "go", "stop", "big"))}
            if rng.random() < 0.2:
                wait["timeout"] = rng.choice(("5s", "60s", "10m"))
                limited = True
            kept = {name: task[name] for name in common if name in task}
            definition["tasks"][id] = wait | kept
    return limited


def _deadlines(definition: dict[str, Any]) -> bool:
    """Give some tasks of one workflow in eight a deadline. Drawn from the definition, so that the
    rest of a seed stays what it was."""
    rng = random.Random(f"deadlines {definition}")
    if rng.random() > 0.125:
        return False
    some = [task for task in definition["tasks"].values() if rng.random() < 0.5]
    for task in some:
        task["deadline"] = rng.choice(("1s", "5s", "30s", "2m", "10m"))
    return bool(some)


def _add_compensations(definition: dict[str, Any], gentle: bool) -> None:
    rng = own_random(definition)
    if rng.random() < 0.5:
        return
    for id, task in definition["tasks"].items():
        if rng.random() < 0.6:
            task["compensate"] = _work(rng, [f"${{tasks.{id}.output}}", "${input.a}"], gentle)


def _task(rng: random.Random, needs: list[str], gentle: bool) -> dict[str, Any]:
    kind = rng.choice(("activity",) * 6 + ("map", "map", "wait", "transform"))
    task: dict[str, Any] = {"type": kind}
    if needs:
        task["needs"] = needs
        if rng.random() < 0.3:
            task["runWhen"] = rng.choice(("allDone", "anyFailed", "anySucceeded", "noneFailed"))
    if rng.random() < 0.2:
        task["when"] = _condition(rng, needs)
    if rng.random() < 0.25:
        task["continueOnError"] = True
    if kind == "wait":
        if rng.random() < 0.2:
            task["until"] = "2020-01-01T00:00:00Z"
        else:
            task["duration"] = rng.choice(("0s", "1s", "20s", "90s"))
    elif kind == "transform":
        task["output"] = {"n": rng.randint(0, 9), "of": _uses(rng, needs)}
    elif kind == "map":
        task["items"] = _items(rng, needs)
        task["do"] = _work(rng, ["${item}", "${index}"], gentle)
        if rng.random() < 0.5:
            task["maxConcurrency"] = rng.randint(1, 3)
        task |= _limits(rng, task["do"]["input"]["do"])
    else:
        task |= _work(rng, _uses(rng, needs), gentle)
    return task


def _work(rng: random.Random, uses: list[str], gentle: bool) -> dict[str, Any]:
    do = _behaviour(rng, gentle)
    work = {"type": "activity", "activity": "sim.work", "input": {"do": do, "of": uses}}
    return work | _limits(rng, do)


def _behaviour(rng: random.Random, gentle: bool) -> dict[str, Any]:
    roll = rng.random()
    if roll < 0.5:
        return {"kind": "ok", "ms": rng.choice((0, 1, 20, 300, 3_000))}
    if roll < 0.65:
        return {"kind": "flaky", "times": rng.randint(1, 3), "ms": rng.choice((0, 50))}
    if roll < 0.72:
        return {"kind": "hang", "times": 1}
    if roll < 0.78:
        return {"kind": "ok", "ms": rng.choice((25_000, 45_000, 100_000))}
    if roll < 0.84:
        return {"kind": "big", "ms": 5}
    if gentle:
        return {"kind": "ok", "ms": 5}
    return {"kind": rng.choice(("fatal", "exhaust", "nan")), "ms": rng.choice((0, 100))}


def _limits(rng: random.Random, do: dict[str, Any]) -> dict[str, Any]:
    long = do.get("ms", 0) > 20_000
    return {
        "timeout": "10m" if long else "20s",
        "retry": {
            "maxAttempts": rng.randint(1, 3) if do["kind"] == "exhaust" else MANY,
            "initialInterval": rng.choice(("100ms", "1s", "3s")),
            "backoffCoefficient": rng.choice((1, 2)),
            "maxInterval": "5s",
            "jitter": rng.choice(("none", "full", "equal", "decorrelated")),
        },
    }


def _uses(rng: random.Random, needs: list[str]) -> list[str]:
    uses = ["${input.a}"] if rng.random() < 0.3 else []
    for need in needs:
        uses.append(
            rng.choice((f"${{tasks.{need}.output}}", f"${{tasks.{need}.status}}", f"after {need}"))
        )
    return uses


def _condition(rng: random.Random, needs: list[str]) -> str:
    choices = ["${input.a > 4}", "${true}"]
    for need in needs:
        choices += [f"${{tasks.{need}.status == 'COMPLETED'}}", f"${{tasks.{need}.output.n > 300}}"]
    return rng.choice(choices)


def _items(rng: random.Random, needs: list[str]) -> Any:
    choices: list[Any] = ["${input.items}", "${input.items}", [1, 2, 3]]
    choices += [f"${{tasks.{need}.output.list}}" for need in needs]
    return rng.choice(choices)
