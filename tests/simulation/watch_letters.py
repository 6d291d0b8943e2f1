"""Invariants of dead letters and of what operators do about them, looked at with every commit.

What has settled moves in one way only: an operator acted, and the commit that moves it holds the
event that says so, by that operator, together with the letter that it resolves. So a letter has
exactly one effect, and every effect has its letter.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from orchestrator.domain import codec
from orchestrator.domain import events as ev
from orchestrator.domain.audit_chain import HEAD_ID
from orchestrator.domain.topology import AUDIT
from tests.simulation.store import Commit
from tests.simulation.undoing import all_tasks

if TYPE_CHECKING:
    from tests.simulation.world import World

AFTER = {"retry": "RETRIED", "skip": "SKIPPED", "fail": "FAILED", "discard": "DISCARDED"}
Kinds = dict[str, list[tuple[Any, Any]]]
Place = tuple[str, int | None]


def public_id(letter: dict[str, Any]) -> str:
    """As the API names it."""
    return f"{letter['executionId']}~{letter['id'].removeprefix('dead:').replace(':', '~')}"


def place_of(doc: dict[str, Any]) -> Place:
    """The task or item that a document is about."""
    return doc["task"], doc.get("item")


class LetterWatch:
    """See the module."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.letters: dict[tuple[str, str], dict[str, Any]] = {}  # (execution, id), as stored
        self.audited: Counter[tuple[str, str, str, str]] = Counter()
        self.reopened: set[str] = set()  # executions in which an operator moved something
        self.acted: set[tuple[str, str]] = set()  # (operator, execution) with an event or a letter
        self.copied: dict[str, set[str]] = {}  # replays: documents of results that were copied
        self.base: dict[tuple[str, Place], int] = {}  # attempts that an operator's retry forgave

    def fail(self, text: str) -> None:
        self.world.fail(text)

    def audit(self, commit: Commit) -> None:
        """One record for each action."""
        if commit.container != AUDIT:
            return
        for id, old, new in commit.changes:
            if id == HEAD_ID:
                continue
            if old is not None or new is None:
                self.fail(f"the audit record {id} was changed or removed")
                continue
            key = (new["action"], new["execution"], new.get("task", ""), new["by"])
            self.audited[key] += 1
            # An execution that failed again may be retried again by the same words.
            once = new["by"] in self.world.deeds and new["action"] != "retry"
            if self.audited[key] > 1 and once:
                self.fail(f"{key} is in the audit twice")

    def commit(self, execution: str, kinds: Kinds) -> list[ev.Event]:
        """A commit of one execution, before anything else is made of it; its events."""
        events = [
            codec.event_from_doc(doc)
            for _, new in kinds.get("events", ())
            if new is not None
            for doc in new["events"]
        ]
        resolved: dict[Place, dict[str, Any]] = {}
        for old, new in kinds.get("deadletter", ()):
            self._letter(execution, old, new, kinds)
            if new is not None and new["kind"] != "message" and new["status"] != "OPEN":
                resolved[place_of(new)] = new
        self._effects(execution, events, resolved)
        for old, new in kinds.get("task", ()):
            self._task(execution, old, new, events, resolved)
        return events

    def _letter(self, execution: str, old: Any, new: Any, kinds: Kinds) -> None:
        if new is None or new["kind"] == "message":
            self.fail(f"{execution}: a message became a dead letter, or one was removed: {new}")
            return
        self.letters[execution, new["id"]] = new
        if old is None:
            docs = [doc for _, doc in kinds.get("task", ()) if doc is not None]
            dead = [doc for doc in docs if place_of(doc) == place_of(new)]
            if new["status"] != "OPEN" or not dead or dead[0]["status"] != "DEAD_LETTERED":
                self.fail(f"{execution}: {new['id']} was written without a failure")
            return
        if old["status"] != "OPEN":
            self.fail(f"{execution}: {new['id']} was {old['status']}, became {new['status']}")
            return
        done = new["resolved"]
        deed = self.world.deeds.get(done["by"])
        if deed is None or deed.execution not in (None, execution):
            self.fail(f"{execution}: {new['id']} was resolved by {done['by']}, who did not act")
        elif deed.letter not in (None, public_id(new)) or deed.action != done["action"]:
            self.fail(f"{execution}: {new['id']} was resolved by {deed}")
        if AFTER[done["action"]] != new["status"]:
            self.fail(f"{execution}: {new['id']} is {new['status']} after {done}")
        self.acted.add((done["by"], execution))

    def _effects(
        self, execution: str, events: list[ev.Event], resolved: dict[Place, dict[str, Any]]
    ) -> None:
        """Every effect has a letter in the same commit, every letter its effect."""
        effects: dict[Place, str] = {}
        accepted: set[str] = set()
        names = self._names(execution, events)
        for event in events:
            match event:
                case ev.TasksReopened():
                    effects |= {(names[task], None): "RETRIED" for task in event.tasks}
                    effects |= {(names[task], item): "RETRIED" for task, item in event.items}
                case ev.TaskOverridden():
                    effects[names[event.task], event.item] = "SKIPPED"
                case ev.FailureAccepted():
                    accepted.add(names[event.task])
                case ev.TasksReset():
                    self.reopened.add(execution)
                    places = [(names[task], None) for task in event.tasks]
                    unworked = [one for one in places if one in resolved]
                    effects |= dict.fromkeys(unworked, "RETRIED")
                    continue
                case ev.ExecutionReopened() | ev.CompensationReopened():
                    pass
                case _:
                    continue
            self.reopened.add(execution)
            deed = self.world.deeds.get(event.by)
            if deed is None or deed.execution not in (None, execution):
                self.fail(f"{execution}: {event} although {event.by} did not act")
            self.acted.add((event.by, execution))
        for place, status in effects.items():
            if place not in resolved:
                self.fail(f"{execution}: {place} was {status} without its letter")
            elif resolved[place]["status"] != status:
                self.fail(f"{execution}: {place} was {status}, its letter is {resolved[place]}")
        failed = {task for (task, _), one in resolved.items() if one["status"] == "FAILED"}
        if not accepted <= failed:  # a map's by a letter of one of its items
            self.fail(f"{execution}: {accepted} were accepted, the letters of {failed}")
        for place, letter in resolved.items():
            if letter["status"] in ("RETRIED", "SKIPPED") and place not in effects:
                self.fail(f"{execution}: {letter['id']} is {letter['status']} without an effect")

    def _names(self, execution: str, events: list[ev.Event]) -> list[str]:
        return list(all_tasks(self.world.flow(execution).definition)) if events else []

    def _task(
        self,
        execution: str,
        old: Any,
        new: Any,
        events: list[ev.Event],
        resolved: dict[Place, dict[str, Any]],
    ) -> None:
        """Dead-lettered together with a letter, alive again together with its resolution."""
        doc = new or old
        where, place = f"{execution}/{doc['id']}", place_of(doc)
        if new is not None and "copiedFrom" in new:
            self.copied.setdefault(execution, set()).add(new["id"])
        was = old is not None and old["status"] == "DEAD_LETTERED"
        if new is not None and new["status"] == "DEAD_LETTERED" and (not was or place in resolved):
            self._dead(execution, new)
        if not was or (new is not None and new["status"] == "DEAD_LETTERED"):
            return
        letter = resolved.get(place)
        items = self._items(execution, events)
        if letter is None and not (old["attempt"] == 0 and place[0] in items):
            self.fail(f"{where}: {new and new['status']} after it was dead, without a letter")
        elif letter is not None and letter["attempt"] != old["attempt"]:
            self.fail(f"{where}: taken up again by the letter of another attempt, {letter['id']}")
        if new is None or letter is None:
            return
        if new["status"] == "RETRYING":
            self.base[execution, place] = old["attempt"]
        wanted = {"RETRIED": "RETRYING", "SKIPPED": "COMPLETED"}
        if letter["status"] == "RETRIED" and self._took_signal(execution, place, events):
            return  # one that waits for a signal, and one was there
        if new["status"] != wanted[letter["status"]] or new["attempt"] != old["attempt"]:
            self.fail(f"{where}: {letter['status']} made it {new['status']} {new['attempt']}")

    def _took_signal(self, execution: str, place: Place, events: list[ev.Event]) -> bool:
        names = self._names(execution, events)
        done = [one for one in events if isinstance(one, ev.TaskCompleted) and one.signal]
        return any((names[one.task], None) == place for one in done)

    def _dead(self, execution: str, doc: dict[str, Any]) -> None:
        """It has a letter, and no attempt less than it may have."""
        place = place_of(doc)
        mine = [
            letter
            for (owner, _), letter in self.letters.items()
            if owner == execution and place_of(letter) == place and letter["status"] == "OPEN"
        ]
        if doc["attempt"] == 0 and doc["failure"]["type"] == "MAP_ITEM_FAILED":
            return  # its items have theirs
        if [letter["attempt"] for letter in mine] != [doc["attempt"]]:
            ids = [letter["id"] for letter in mine]
            self.fail(f"{execution}/{doc['id']}: dead at {doc['attempt']}, its letters are {ids}")
            return
        task = all_tasks(self.world.flow(execution).definition)[place[0]]
        work = task if place[1] is None else task["do"]
        may = work.get("retry", {}).get("maxAttempts")
        base = self.base.get((execution, place), 0)
        used = doc["attempt"] - base - _forgiven(work, doc, base)
        if may is not None and mine[0]["reason"] == "attemptsExhausted" and used != may:
            self.fail(f"{execution}/{doc['id']}: given up after {used} of {may} attempts")

    def _items(self, execution: str, events: list[ev.Event]) -> set[str]:
        """Maps of which an operator took up an item."""
        names = self._names(execution, events)
        found: set[str] = set()
        for event in events:
            if isinstance(event, ev.TasksReopened):
                found |= {names[task] for task, _ in event.items}
            if isinstance(event, ev.TaskOverridden) and event.item is not None:
                found.add(names[event.task])
        return found

    def may_move(self, events: list[ev.Event], position: int) -> bool:
        """Whether an operator's event in this commit moves what had settled."""
        for event in events:
            match event:
                case ev.TasksReopened():
                    moved = {*event.tasks, *(task for task, _ in event.items)}
                case ev.TasksReset():
                    moved = set(event.tasks)
                case ev.TaskOverridden() | ev.FailureAccepted():
                    moved = {event.task}
                case _:
                    continue
            if position in moved:
                return True
        return False


def _forgiven(work: dict[str, Any], doc: dict[str, Any], base: int) -> int:
    """Attempts after `base` to start a child or an orchestration that cost nothing: the platform
    could not, or the worker died."""
    if work["type"] not in ("workflow", "durable"):
        return 0
    later = [entry for entry in doc["attempts"] if entry["attempt"] > base]
    free = ("PUT_OFF", "LEASE_EXPIRED")
    return sum(entry.get("error", {}).get("type") in free for entry in later)
