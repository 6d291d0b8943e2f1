"""What an operator wants done about dead letters (a *wish*), and the documents that it changes.

Pure, but for storing the value that the operator gives: `letters_act` decides, commits and sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orchestrator.domain import dependencies, jsonvalues, kin, orchestration
from orchestrator.domain.decide import Decision
from orchestrator.domain.events import FailureAccepted, TaskOverridden, TasksReopened, TasksReset
from orchestrator.domain.failure import Failure
from orchestrator.domain.inputs import Accept, Input, Override, Retry
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.status import TaskStatus
from orchestrator.engine import admission, claimcheck, documents
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.letters import LetterStatus
from orchestrator.ports import Delete, Document, Operation, Replace


class Action(StrEnum):
    """What can be done about a dead letter."""

    RETRY = "retry"  # run it again, perhaps with another input
    SKIP = "skip"  # go on as if it had given this output
    FAIL = "fail"  # accept the failure; an execution that holds goes on
    DISCARD = "discard"  # put the letter away, change nothing


AFTER = {
    Action.RETRY: LetterStatus.RETRIED,
    Action.SKIP: LetterStatus.SKIPPED,
    Action.FAIL: LetterStatus.FAILED,
    Action.DISCARD: LetterStatus.DISCARDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """An action and its parameters. `value`: the edited input of a retry (if `edited`), or the
    output of a skip."""

    action: Action
    by: str
    reason: str = ""
    value: Json = None
    edited: bool = False

    @property
    def digest(self) -> str:
        """Tells the same wish from another."""
        value = self.value if self.edited or self.action is Action.SKIP else None
        return jsonvalues.body_hash(
            {"action": self.action.value, "value": value, "edited": self.edited}
        )


def task_id(letter: dict[str, Any]) -> str:
    """Id of the document of the task (or item) that the letter is about."""
    return documents.task_id(letter["task"], letter.get("item"))


def is_latest(letter: dict[str, Any], doc: Document | None) -> bool:
    """Whether the letter is about how the task stands now."""
    return (
        doc is not None
        and doc.body["status"] == TaskStatus.DEAD_LETTERED.value
        and doc.body["attempt"] == letter["attempt"]
    )


def inputs(aggregate: Aggregate, letters: Sequence[dict[str, Any]], wish: Wish) -> list[Input]:
    """What `decide` is asked for, of all these letters at once."""
    places = [(aggregate.workflow.index[one["task"]], one.get("item"), one) for one in letters]
    by, reason = wish.by, wish.reason
    match wish.action:
        case Action.RETRY:
            return [
                Retry(
                    tasks=tuple(at for at, item, one in places if item is None and one["attempt"]),
                    items=tuple((at, item) for at, item, _ in places if item is not None),
                    judged=tuple(at for at, _, one in places if not one["attempt"]),
                    by=by,
                    reason=reason,
                )
            ]
        case Action.SKIP:
            return [Override(task=at, item=item, by=by, reason=reason) for at, item, _ in places]
        case _:
            return [
                Accept(task=at, failure=Failure.from_doc(one["failure"]), by=by, reason=reason)
                for at, _, one in places
            ]


def was_done(aggregate: Aggregate, decision: Decision, letter: dict[str, Any]) -> bool:
    """Whether the decision did what was wished about this letter."""
    at, item = aggregate.workflow.index[letter["task"]], letter.get("item")
    for event in decision.events:
        match event:
            case TasksReopened():
                done = at in event.tasks if item is None else (at, item) in event.items
            case TasksReset():
                done = item is None and not letter["attempt"] and at in event.tasks
            case TaskOverridden():
                done = (at, item) == (event.task, event.item)
            case FailureAccepted():
                done = at == event.task
            case _:
                done = False
        if done:
            return True
    return False


async def kept(engine: Engine, aggregate: Aggregate, id: str, wish: Wish) -> dict[str, Any] | None:
    """Where the edited input, or the given output, is kept."""
    if not wish.edited and wish.action is not Action.SKIP:
        return None
    name = f"{id}:{wish.action.value}"
    data = jsonvalues.dumps(wish.value)
    what = "output" if wish.action is Action.SKIP else "input"
    await admission.payload(engine, aggregate.partition[0], len(data), f"the {what}", f"$.{what}")
    return (await claimcheck.store(engine, aggregate.partition, name, data)).to_doc()


def again(
    doc: Document,
    letter: dict[str, Any],
    wish: Wish,
    value: dict[str, Any] | None,
    now: int,
    grace: int,
    *,
    http: bool = False,
) -> Operation:
    """The task document after the action. `http`: the task is one, so an edited input may call
    another host."""
    if wish.action is Action.RETRY and not letter["attempt"]:
        return Delete(doc.id, doc.etag)  # it says nothing but the failure
    dropped = ("failure", "output", "endedAt", "lease", "sweepAt", "dueAt", "recorded")
    body = {key: kept for key, kept in doc.body.items() if key not in dropped}
    if wish.action is Action.SKIP:
        body |= {"status": TaskStatus.COMPLETED.value, "endedAt": now, "output": value}
        if kin.has_open_child(body):
            body["sweepAt"] = now  # until it is known to have been stopped
        return Replace(body, doc.etag)
    body |= {
        "status": TaskStatus.RETRYING.value,
        "granted": doc.body["attempt"],
        "dueAt": now,
        "sweepAt": now + grace,
    }
    if value is None and "instance" in body:
        body["instance"] = orchestration.taken_up(body["instance"])
    if value is not None:
        body["inputOverride"] = value
        if dependency := _called(wish.value) if http else "":
            body["dependency"] = dependency  # for the sweeper, as a claim would say
    return Replace(body, doc.etag)


def _called(request: Json) -> str:
    return dependencies.host_of(request.get("url")) if isinstance(request, dict) else ""


def marked(letter: Document, wish: Wish, now: int) -> Replace:
    """The letter after the action."""
    resolved = {"action": wish.action.value, "by": wish.by, "at": now, "reason": wish.reason}
    after = {"status": AFTER[wish.action].value, "resolved": resolved, "wish": wish.digest}
    return Replace({**letter.body, **after}, letter.etag)
