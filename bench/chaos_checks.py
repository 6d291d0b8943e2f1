"""What must be true of the files when chaos is over: the invariants of `tests/simulation`, on disk.

Nothing accepted is lost or doubled, every execution ended as it had to, every history folds to its
state, every result is recorded once, and nothing is left over: no message, no lease, no open task.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.chaos_load import Load
from orchestrator.domain.positions import unpack
from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, EXECUTIONS
from orchestrator.engine import inspect, verify
from orchestrator.engine.core import Engine
from orchestrator.ports import Query, Where

TENANT: Final = "default"
FINAL: Final = frozenset({"COMPLETED", "DEAD_LETTERED", "CANCELLED"})
PAGE: Final = 1_000


@dataclass(slots=True)
class Findings:
    """How much was looked at, and what is wrong with it, by check."""

    looked: Counter[str] = field(default_factory=Counter[str])
    wrong: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def check(self, name: str, holds: bool, text: str) -> None:
        """Count one look; remember `text` if it does not hold."""
        self.looked[name] += 1
        if not holds:
            self.wrong.setdefault(name, []).append(text)


async def documents(engine: Engine, type: str) -> list[dict[str, Any]]:
    """All documents of a type, in every partition."""
    found: list[dict[str, Any]] = []
    after = None
    while True:
        query = Query(
            partition=(),
            where=(Where("type", "=", type),),
            order_by="executionId",
            after=after,
            limit=PAGE,
        )
        page = await engine.store.query(EXECUTIONS, query)
        found += [doc.body for doc in page]
        if len(page) < PAGE:
            return found
        after = (page[-1].body["executionId"], page[-1].id)


async def check(
    engine: Engine, accepted: Mapping[str, tuple[str, Load]], unanswered: Sequence[str]
) -> Findings:
    """`accepted`: idempotency key -> (execution id that was answered, what was started).
    `unanswered`: keys of starts that nobody answered; each may have an execution or none."""
    found = Findings()
    stored = {body["id"]: body for body in await documents(engine, "execution")}
    ids = {id for id, _ in accepted.values()}
    keys = Counter(body["key"] for body in stored.values())
    for key, (id, load) in accepted.items():
        found.check("accepted starts exist", id in stored, f"{key}: {id} is lost")
        found.check("one execution for each key", keys[key] == 1, f"{key} has {keys[key]}")
        if id in stored:
            await _execution(engine, found, id, load)
    for id, body in stored.items():
        known = id in ids or body["key"] in unanswered
        found.check("no execution that nobody started", known, f"{id}, key {body['key']}")
    for body in await documents(engine, "outbox"):
        found.check("no outbox left", False, f"{body['executionId']}: {body['id']}")
    found.check("no outbox left", True, "")
    letters = await documents(engine, "deadletter")
    _tasks(found, await documents(engine, "task"), letters, accepted)
    for body in letters:
        text = f"{body['executionId']}: {body['reason']}"
        found.check("no message became a dead letter", body["kind"] != "message", text)
    await _results_once(engine, found)
    return found


async def _execution(engine: Engine, found: Findings, id: str, load: Load) -> None:
    view = await inspect.execution(engine, TENANT, id)
    ends = (view.status.value, view.output) == (load.status, load.output)
    text = f"{id} ({load.name}): {view.status.value} {view.output!r}"
    found.check("every execution ended as it must", ends, text)
    report = await verify.verify(engine, TENANT, id)
    found.check("history folds to the state", report.ok, f"{id}: {report.problems}")


def _tasks(
    found: Findings,
    tasks: Sequence[dict[str, Any]],
    letters: Sequence[dict[str, Any]],
    accepted: Mapping[str, tuple[str, Load]],
) -> None:
    loads = dict(accepted.values())
    has_letter = {(body["executionId"], body.get("task"), body["attempt"]) for body in letters}
    for body in tasks:
        where = f"{body['executionId']}/{body['id']}"
        status = body["status"]
        found.check("no task left open", status in FINAL, f"{where} is {status}")
        found.check("no lease left", "lease" not in body, f"{where} has {body.get('lease')}")
        ends = [one for one in body["attempts"] if "error" not in one]
        once = len(ends) == (status == "COMPLETED" and body["attempt"] > 0)
        numbers = [one["attempt"] for one in body["attempts"]]
        once = once and numbers == sorted(set(numbers))
        found.check("one successful attempt at most", once, f"{where}: {body['attempts']}")
        load = loads.get(body["executionId"])
        dead = status == "DEAD_LETTERED"
        if load is not None:
            text = f"{where} is {status}, {body.get('failure')}"
            found.check("only what must fail failed", dead == (body["task"] in load.dead), text)
        if dead:
            key = (body["executionId"], body["task"], body["attempt"])
            found.check("every dead task has its letter", key in has_letter, where)


async def _results_once(engine: Engine, found: Findings) -> None:
    """In the history, each task and each item of a map completes once."""
    completed: Counter[tuple[str, int, int | None]] = Counter()
    for body in await documents(engine, "events"):
        for event in body["events"]:
            if event["type"] == "taskCompleted":
                completed[body["executionId"], event["task"], None] += 1
            elif event["type"] == "mapItemsCompleted":
                for item in unpack(event["items"]):
                    completed[body["executionId"], event["task"], item] += 1
    for place, times in completed.items():
        found.check("each result is recorded once", times == 1, f"{place}: {times} times")


def check_broker(found: Findings, file: Path) -> None:
    """Nothing waits in the broker's file, and nothing was given up by it. `file` must not be in
    use."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT queue, count(*) FROM messages GROUP BY queue").fetchall()
    left = dict(rows)
    buried = {queue: count for queue, count in left.items() if queue.endswith(DEAD_LETTER_SUFFIX)}
    found.check("no message was dead-lettered", not buried, str(buried))
    found.check("no message left", not left, str(left))
