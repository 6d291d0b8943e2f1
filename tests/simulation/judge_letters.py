"""What must hold of dead letters, audit and replays when everything has ended."""

from __future__ import annotations

from typing import Any

from orchestrator.domain import codec
from orchestrator.domain.events import TasksCopied
from orchestrator.domain.topology import EXECUTIONS
from tests.simulation.redrive import Deed
from tests.simulation.watch_letters import place_of, public_id
from tests.simulation.world import TENANT, World

ALTERING = {"skip"}


def judge_letters(world: World) -> None:
    """Letters, records and replays agree with what operators did."""
    letters = world.watch.letters.letters.values()
    for letter in letters:
        if letter["status"] == "OPEN":
            _is_dead(world, letter)
        else:
            by = letter["resolved"]["by"]
            name = f"deadletter.{letter['resolved']['action']}"
            _audited(world, name, letter["executionId"], public_id(letter), by)
    for deed in world.deeds.values():
        if deed.action == "replay":
            _replayed(world, deed)


def altered(world: World, execution: str) -> bool:
    """Whether an operator changed what comes out (not only when), here or in what it came from."""
    for letter in world.watch.letters.letters.values():
        done = letter.get("resolved")
        if letter["executionId"] == execution and done is not None:
            wish = world.deeds[done["by"]].wish
            if done["action"] in ALTERING or (wish is not None and wish.edited):
                return True
    doc = world.document(execution)
    if doc is None or "replayFrom" not in doc:
        return False
    return doc["replayOf"] in world.cancelled or altered(world, doc["replayOf"])


def _is_dead(world: World, letter: dict[str, Any]) -> None:
    """Nobody has to decide about what is not dead."""
    task, item = place_of(letter)
    id = f"task:{task}" + ("" if item is None else f":{item}")
    doc = world.store.body(EXECUTIONS, (TENANT, letter["executionId"]), id)
    if doc is None or doc["status"] != "DEAD_LETTERED" or doc["attempt"] != letter["attempt"]:
        world.fail(f"{public_id(letter)} is OPEN, its task {doc}")


def _audited(world: World, action: str, execution: str, task: str, by: str) -> None:
    deed = world.deeds[by]
    found = world.watch.letters.audited[action, execution, task, by]
    # Whoever died between the action and its record was not answered; the same words again write
    # it, unless they go by a filter, which finds what is OPEN only.
    mended = deed.letter is not None or deed.action == "replay"
    if not found and deed.answered and not deed.unaudited and (mended or not deed.cut):
        world.fail(f"{by}: {action} of {task} is not in the audit")


def _replayed(world: World, deed: Deed) -> None:
    """Linked to its origin; one for each key; what was copied is in the history."""
    stored = [
        body
        for body in world.store.bodies(EXECUTIONS).values()
        if body["type"] == "execution" and body.get("startedBy") == deed.by
    ]
    ids = {body["id"] for body in stored}
    if not deed.made <= ids or (deed.answered and not deed.made):
        world.fail(f"{deed.by} was told of {deed.made}, stored are {ids}")
    if len(ids) > 1:
        world.fail(f"{deed.by} made {ids}")
    for body in stored:
        if body["replayOf"] != deed.execution or body.get("replayFrom") != deed.start_at:
            world.fail(f"{deed.by}: {body['id']} says it is a replay of {body['replayOf']}")
        names = list(world.flow(body["id"]).definition["tasks"])
        events = world.store.body(EXECUTIONS, (TENANT, body["id"]), "events:0000000000")
        assert events is not None
        known = [codec.event_from_doc(doc) for doc in events["events"]]
        copied = {
            f"task:{names[task]}"
            for event in known
            if isinstance(event, TasksCopied)
            for task in event.tasks
        }
        found = world.watch.letters.copied.get(body["id"], set())
        waits = {f"task:{id}" for id, task in world.flow(body["id"]).definition["tasks"].items()
                 if task["type"] == "wait"}  # fmt: skip
        again = {f"task:{id}" for id in _behind(world, body["id"], deed.start_at)}
        if copied & again:
            world.fail(f"{body['id']}: copied {copied & again}, which lie behind {deed.start_at}")
        if not found <= copied or copied - found - waits:
            world.fail(f"{body['id']}: {found} were copied, its history says {copied}")
        _audited(world, "replay", str(deed.execution), body["id"], deed.by)


def _behind(world: World, execution: str, start_at: str | None) -> set[str]:
    """What a replay from a task runs again: it, and what needs it. None: everything."""
    names = list(world.flow(execution).definition["tasks"])
    found = {start_at} if start_at else set(names)
    shapes = world.tasks(execution)[: len(names)]  # without compensations
    for name, (needs, _) in zip(names, shapes, strict=True):  # needs come first
        if found & {names[need] for need in needs}:
            found.add(name)
    return found
