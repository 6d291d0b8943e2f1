"""Compensation in the simulation: which tasks can be undone, and what must hold of it.

Everything that completed is undone once, last first, one at a time, and only after all the rest
has settled; and nothing of an execution that completes.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import orjson

from orchestrator.domain.workflow import UNDO_SUFFIX

if TYPE_CHECKING:
    from tests.simulation.world import World

HIDDEN = "H"
UNSETTLED = frozenset("PQW")


def all_tasks(definition: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The tasks of a definition, and behind them their compensations, as the engine orders them."""
    tasks: dict[str, dict[str, Any]] = definition["tasks"]
    hidden = {
        id + UNDO_SUFFIX: task["compensate"] for id, task in tasks.items() if "compensate" in task
    }
    return {**tasks, **hidden}


def own_random(definition: dict[str, Any]) -> random.Random:
    """For what is added to a workflow that was drawn without it: that it is added changes no other
    choice."""
    text = orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)
    return random.Random(text)


class UndoWatch:
    """Looks at every commit of every execution."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.left: defaultdict[str, list[str]] = defaultdict(list)
        """Per execution, what completed and can be undone, in order of completion."""
        self.retried: set[str] = set()
        """Executions of which an operator retried something: beside what is in flight."""

    def commit(self, execution: str, before: Any, after: Any, records: list[Any]) -> None:
        """`before`, `after`: the stored states; `records`: the history of the commit."""
        tasks = all_tasks(self.world.flow(execution).definition)
        ids = list(tasks)
        for event in (event for record in records for event in record["events"]):
            if event["type"] == "tasksReopened":
                self.retried.add(execution)
            done = event["type"] in ("taskCompleted", "taskOverridden") and "item" not in event
            if done and "compensate" in tasks[ids[event["task"]]]:
                self.left[execution].append(ids[event["task"]])
        visible = after["tasks"][: len(ids) - after.get("hidden", 0)]
        if after["tasks"][len(visible) :].count("Q") > 1 and execution not in self.retried:
            self.world.fail(f"{execution}: two compensations at once")
        for id, was, now in zip(ids, before["tasks"], after["tasks"], strict=True):
            if was == HIDDEN and now != HIDDEN:
                self._called(execution, id, now, visible, after["status"])

    def _called(self, execution: str, id: str, now: str, visible: str, status: str) -> None:
        left = self.left[execution]
        expected = left.pop() + UNDO_SUFFIX if left else "nothing"
        if id != expected:
            self.world.fail(f"{execution}: {id} is undone, it is the turn of {expected}")
        if now != "Q" or status != "COMPENSATING":
            self.world.fail(f"{execution}: {id} became {now} while it is {status}")
        if UNSETTLED & set(visible):
            self.world.fail(f"{execution}: {id} is undone while others are {visible}")

    def judge(self, execution: str, status: str, state: dict[str, Any]) -> None:
        """After its end."""
        hidden = state["tasks"][len(state["tasks"]) - state.get("hidden", 0) :]
        left = self.left[execution]
        undoes = status == "FAILED" or (state.get("ending") and not state.get("terminated"))
        if status == "COMPLETED" and set(hidden) - {HIDDEN}:
            self.world.fail(f"{execution}: completed, and undone: {hidden}")
        if undoes and (left or not set(hidden) <= {HIDDEN, "C", "D"}):
            self.world.fail(f"{execution}: {status}, {left} are not undone: {hidden}")
