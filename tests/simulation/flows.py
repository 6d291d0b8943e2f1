"""Random workflows: every shape and rule of the definition, with activities that misbehave."""

from __future__ import annotations

import random
from collections.abc import Iterator
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
    children: tuple[Flow, ...] = ()  # workflows that it starts

    def family(self) -> Iterator[Flow]:
        """It, its children, theirs."""
        yield self
        for child in self.children:
            yield from child.family()

    @property
    def signals(self) -> dict[str, list[str]]:
        """Signal name -> ids of the tasks, and of the maps whose items, wait for it."""
        found: dict[str, list[str]] = {}
        for id, task in self.definition["tasks"].items():
            work = task.get("do", task)
            if work["type"] == "signal":
                found.setdefault(work["signal"], []).append(id)
        return found


MAX_LEVEL = 2
"""Generations below the one that a client starts."""


def draw(rng: random.Random, name: str, level: int = 0) -> Flow:
    """A workflow of 1 to 9 tasks; now and then a wide one. Children (`level` over 0) are small."""
    gentle = rng.random() < 0.5  # nothing fails for good, so that whole graphs run
    tasks: dict[str, Any] = {}
    wide = level == 0 and rng.random() < 0.05
    child = f"{name}-c" if level < MAX_LEVEL else None
    for position in range(25 if wide else rng.randint(1, 3 if level else 9)):
        ids = list(tasks)
        needs = sorted(rng.sample(ids, min(len(ids), rng.choice((0, 1, 1, 2, 3)))))
        tasks[f"t{position}"] = _task(rng, needs, gentle, child)
    timeout = None if level or rng.random() < 0.9 else rng.choice(("15s", "60s"))
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
    # Signallers know executions that a client started; a child would wait for ever.
    waits = level == 0 and _signals(definition)
    born = [task for task in tasks.values() if _starts(task)]
    children = (draw(rng, str(child), level + 1),) if born else ()
    limited = any("timeout" in task or "timeout" in task.get("do", {}) for task in born)
    same = timeout is None and not (late or limited or waits)
    same = same and all(one.comparable for one in children)
    return Flow(name, definition, given, comparable=same, children=children)


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
        elif task["type"] == "map" and rng.random() < 0.6:
            task["do"] = {"type": "signal", "signal": rng.choice(("go", "stop", "big"))}
            for inherited in ("timeout", "retry"):
                task.pop(inherited, None)
            if rng.random() < 0.3:
                task["do"]["timeout"] = rng.choice(("5s", "60s", "10m"))
                limited = True
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


def _starts(task: dict[str, Any]) -> bool:
    return "workflow" in (task["type"], task.get("do", {}).get("type"))


def _task(
    rng: random.Random, needs: list[str], gentle: bool, child: str | None = None
) -> dict[str, Any]:
    kinds = ("activity",) * 6 + ("map", "map", "wait", "transform")
    kind = rng.choice(kinds if child is None else (*kinds, "workflow"))
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
        _map(rng, task, gentle, child)
    elif kind == "workflow":
        task |= _child(rng, str(child), "${input.a}")
    else:
        task |= _work(rng, _uses(rng, needs), gentle)
    return task


def _map(rng: random.Random, task: dict[str, Any], gentle: bool, child: str | None) -> None:
    """What a map runs, and how."""
    if rng.random() < 0.5:
        task["maxConcurrency"] = rng.randint(1, 3)
    if rng.random() < 0.3:
        task["tolerateFailures"] = rng.choice((1, 2, "50%", "100%"))
    roll = rng.random()
    if child is not None and roll < 0.2:
        task["do"] = _child(rng, child, "${index}")
    elif roll < 0.3:
        task["do"] = {"type": "wait", "duration": rng.choice(("0s", "1s", "40s"))}
    elif roll < 0.35:
        task["do"] = {"type": "wait", "until": "${item}"}  # no time
    else:
        task["do"] = _work(rng, ["${item}", "${index}"], gentle)
        task |= _limits(rng, task["do"]["input"]["do"])


def _child(rng: random.Random, child: str, number: str) -> dict[str, Any]:
    given = {"a": number, "items": "${input.items}"}
    task: dict[str, Any] = {"type": "workflow", "workflow": child, "input": given}
    if rng.random() < 0.3:
        task["retry"] = {"maxAttempts": 2, "initialInterval": "1s", "jitter": "none"}
    if rng.random() < 0.1:
        task["timeout"] = rng.choice(("5s", "40s"))
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
