"""Invariants that are looked at with every commit, every message and every attempt.

Each is judged from what the store holds, by rules written down here a second time: code of the
engine would repeat its own mistakes. A breach does not raise (the engine might catch it), it is
noted in the world, which ends the run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.domain import codec
from orchestrator.domain.events import CompensationReopened, Event, ExecutionReopened
from orchestrator.domain.evolve import fold
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.transitions import WORKER, IllegalTransition
from orchestrator.ports import ActivityCall, OutMessage
from tests.simulation.store import Commit
from tests.simulation.undoing import UndoWatch
from tests.simulation.watch_letters import LetterWatch

if TYPE_CHECKING:
    from tests.simulation.world import World

FINAL = {"COMPLETED", "DEAD_LETTERED", "CANCELLED"}
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}
SETTLED = frozenset("CSsXDd")
ATTEMPT_WAYS = frozenset((source.value, to.value) for (_, source), to in WORKER.items())
MAX_SKEW_MS = 5_000

RUN_WHEN = {
    "allSucceeded": lambda codes: codes <= {"C"},
    "allDone": lambda codes: True,
    "anyFailed": lambda codes: "D" in codes,
    "anySucceeded": lambda codes: "C" in codes,
    "noneFailed": lambda codes: "D" not in codes,
}


class Watch:
    """See the module."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.claims: Counter[tuple[str, str]] = Counter()  # (execution, task document) -> claims
        self.started: set[tuple[str, str, int]] = set()
        self.sent: dict[tuple[str, str], OutMessage] = {}
        self.ids: set[str] = set()  # of what was sent
        self.leases: dict[tuple[str, str, int], int] = {}  # until when each attempt has its task
        self.deadlines: dict[tuple[str, str], int] = {}  # of the tasks last dispatched
        self.statuses: dict[str, str] = {}
        self.outboxes: set[str] = set()
        self.folded: dict[str, ExecutionState] = {}
        self.parents: dict[str, str] = {}  # child -> the execution that started it
        self.born: dict[tuple[Any, ...], str] = {}  # (parent, task, item, number or attempt)
        self.undoing = UndoWatch(world)
        self.letters = LetterWatch(world)
        self.dispatched: set[tuple[str, int]] = set()  # (execution, task) that ever was

    def fail(self, text: str) -> None:
        """An invariant is broken."""
        self.world.fail(text)

    # --- commits ----------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> None:
        """Called by the store for each transaction."""
        self.letters.audit(commit)
        if commit.container != EXECUTIONS:
            return
        execution = commit.partition[1]
        if execution == "_events":
            return  # dead letters of events belong to no execution
        kinds: dict[str, list[tuple[Any, Any]]] = {}
        for _, old, new in commit.changes:
            body = new or old
            if body is not None:
                kinds.setdefault(body["type"], []).append((old, new))
        for _, new in kinds.get("execution", ()):
            self.statuses[execution] = new["status"]
        events = self.letters.commit(execution, kinds)
        for old, new in kinds.get("outbox", ()):
            self._outbox(execution, old, new)
        for old, new in kinds.get("task", ()):
            self._task(execution, old, new)
        for old, new in kinds.get("execution", ()):
            self._execution(execution, old, new, kinds.get("events", []), events)
        for old, new in kinds.get("events", ()):
            if old is not None:
                self.fail(f"{execution}: history {old['id']} was written twice or removed")
            elif not kinds.get("execution"):
                self.fail(f"{execution}: history {new['id']} without its state")

    def _outbox(self, execution: str, old: Any, new: Any) -> None:
        """Written once under a name of its own, removed only when all of it was sent."""
        if new is not None:
            if old is not None or new["id"] in self.outboxes:
                self.fail(f"{execution}: {new['id']} was used twice")
            self.outboxes.add(new["id"])
            return
        name = old["id"].removeprefix("outbox:")
        if any(f"{name}.{position}" not in self.ids for position in range(len(old["messages"]))):
            self.fail(f"{execution}: {old['id']} was removed before it was sent")

    def _allowed(self, execution: str, old: Any, new: Any) -> None:
        """A task document goes the ways of the machine "Task attempt", or keeps its status."""
        before = "QUEUED" if old is None else old["status"]
        if new["status"] != before and (before, new["status"]) not in ATTEMPT_WAYS:
            self.fail(f"{execution}: {new['id']} went from {before} to {new['status']}")

    def _task(self, execution: str, old: Any, new: Any) -> None:
        if new is None:  # for a failure without a worker that is judged again, see LetterWatch
            if old["status"] != "DEAD_LETTERED" or old["attempt"]:
                self.fail(f"{execution}: {old['id']} was removed")
            return
        self._allowed(execution, old, new)
        where = f"{execution}/{new['id']}"
        before = 0 if old is None else old["attempt"]
        was = None if old is None else old["status"]
        again = was != "COMPLETED" and execution in self.letters.reopened
        if was in FINAL and not again and _result(old) != _result(new):
            self.fail(f"{where}: result recorded twice, {_result(old)} then {_result(new)}")
        if new["status"] == "RUNNING":
            self.leases[execution, new["id"], new["attempt"]] = new["lease"]["until"]
        claimed = new["status"] == "RUNNING" and (
            old is None or was != "RUNNING" or old["lease"]["token"] != new["lease"]["token"]
        )
        if claimed:
            self.claims[execution, new["id"]] += 1
            self._claimed(where, execution, old, new)
            for feature in self.world.features:
                feature.claimed(where, new)
        elif new["attempt"] != before and not _no_time(new):
            self.fail(f"{where}: attempt {before} became {new['attempt']} without a claim")
        self._child(where, (old or {}).get("child", {}), new.get("child", {}))
        # What is overdue in a paused execution gives up this one field; resuming looks after it.
        rests = (
            old is not None
            and "child" not in new
            and {**old, "sweepAt": 0} == {**new, "sweepAt": 0}
        )
        if new["status"] not in FINAL and "sweepAt" not in new and not rests:
            self.fail(f"{where}: {new['status']} without sweepAt, nobody would miss it")

    def _child(self, where: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        """What is told to have ended has, or undoes what it did; or it was born later, of a
        submission that nobody waited for any more: it asks at its start, and ends then."""
        if not new.get("settled") or old.get("settled"):
            return
        id = new["execution"]
        runs = self.statuses.get(id, "CANCELLED") not in ENDED | {"COMPENSATING", "PENDING"}
        if runs and id not in self.letters.reopened:
            self.fail(f"{where}: its child {id} has not ended: {self.statuses[id]}")

    def _claimed(self, where: str, execution: str, old: Any, new: Any) -> None:
        if new["attempt"] != (0 if old is None else old["attempt"]) + 1:
            self.fail(f"{where}: claim made attempt {new['attempt']} of {old and old['attempt']}")
        if old is not None and old["status"] == "RUNNING":
            if old["lease"]["until"] > self.world.now() + MAX_SKEW_MS:
                self.fail(f"{where}: two valid leases")
            if "error" not in new["attempts"][-2]:
                self.fail(f"{where}: attempt {old['attempt']} has no end in the record")
        state = self.world.state(execution)
        if state is None:
            self.fail(f"{where}: claimed without an execution")
            return
        # A replica may show what was true a while ago, so what counts is that it ever was queued.
        position = self.world.position(execution, new["task"])
        code = state["tasks"][position]
        if code in "PH" and (execution, position) not in self.dispatched:
            self.fail(f"{where}: claimed before it was dispatched")

    def _execution(
        self, execution: str, old: Any, new: Any, records: list[Any], events: list[Event]
    ) -> None:
        if new is None:
            self.fail(f"{execution}: the execution was removed")
            return
        state = new["state"]
        if old is None:
            self._birth(execution, new)
            if state["seq"] != 0 or not records:
                self.fail(f"{execution}: begins at commit {state['seq']}")
            return
        before = old["state"]
        reopened = any(
            isinstance(event, ExecutionReopened | CompensationReopened) for event in events
        )
        if old["status"] in ENDED and before != state and not reopened:
            self.fail(f"{execution}: changed after it had ended")
        if state == before:
            return
        if new["status"] not in ENDED | {"PAUSED"} and "sweepAt" not in new:
            self.fail(f"{execution}: {new['status']} without sweepAt, nobody would miss it")
        if state["seq"] != before["seq"] + 1:
            self.fail(f"{execution}: commit {state['seq']} after {before['seq']}")
        if [new["seq"] for _, new in records if new is not None] != [state["seq"]]:
            self.fail(f"{execution}: commit {state['seq']} without its history")
        written = [new for _, new in records if new is not None]
        self._fold(execution, before, state, written)
        self.undoing.commit(execution, before, state | {"status": new["status"]}, written)
        tasks = self.world.tasks(execution)
        for position, (was, now) in enumerate(zip(before["tasks"], state["tasks"], strict=True)):
            due = state.get("deadlines", {}).get(str(position))
            if due is not None:
                self.deadlines[execution, f"task:{self.world.names(execution)[position]}"] = due
            if was == now:
                continue
            if now in "QW":
                self.dispatched.add((execution, position))
            moved = was in SETTLED and self.letters.may_move(events, position)
            if was == "C" or (was in SETTLED and not moved):
                self.fail(f"{execution}: task {position} moved from {was} to {now}")
            # A map that had begun and was stopped goes on when an operator takes up the execution,
            # though what it needs may be taken up, too.
            goes_on = was == "X" and now == "W" and str(position) in before.get("maps", {})
            if was in "PSsX" and now in "QWCD" and not goes_on:
                self._needs(execution, state["tasks"], *tasks[position])

    def _birth(self, execution: str, new: Any) -> None:
        """No task starts two children for one attempt, or under one number."""
        if "parent" not in new:
            return
        self.parents[execution] = new["parent"]
        place = new["parentTask"]
        for kind in ("number", "attempt"):
            key = (new["parent"], place["task"], place.get("item"), kind, place[kind])
            if self.born.setdefault(key, execution) != execution:
                self.fail(f"{key} started {self.born[key]} and {execution}")

    def _fold(self, execution: str, before: Any, state: Any, events: list[Any]) -> None:
        """The events of this commit lead from the state before to the state after."""
        folded = self.folded.get(execution) or codec.state_from_doc(before)
        try:
            for record in events:
                folded = fold(folded, [codec.event_from_doc(doc) for doc in record["events"]])
        except IllegalTransition as error:
            self.fail(f"{execution}: the history is impossible: {error}")
            return
        folded = self.folded[execution] = replace(folded, seq=state["seq"])
        if codec.state_to_doc(folded) != state:
            self.fail(f"{execution}: history gives {codec.state_to_doc(folded)}, stored {state}")

    def _needs(self, execution: str, codes: str, needs: list[int], rule: str) -> None:
        have = {codes[need] for need in needs}
        if "D" in have and self.world.flow(execution).definition["onFailure"] == "hold":
            self.fail(f"{execution}: a task began although one that it needs is held")
        have = {code.upper() if code == "d" else code for code in have}
        if not have <= SETTLED or not RUN_WHEN[rule](have):
            self.fail(f"{execution}: a task began under {rule} while its needs were {have}")

    # --- messages and attempts --------------------------------------------------------------------

    def message(self, message: OutMessage) -> None:
        """Called by the broker for each message that is sent."""
        key = (message.queue, message.message_id)
        first = self.sent.setdefault(key, message)
        self.ids.add(message.message_id)
        if first is not message and (
            first.body != message.body
            or first.due_at != message.due_at
            or "." not in message.message_id
        ):
            self.fail(f"message id {message.message_id} was used for two messages")

    def attempt(self, call: ActivityCall, now: int) -> None:
        """Called when an activity begins; `now` by its worker's clock."""
        id = f"task:{call.task}" + ("" if call.item is None else f":{call.item}")
        key = (call.execution, id, call.attempt)
        if key in self.started:
            self.fail(f"{call.execution}/{id}: attempt {call.attempt} ran twice")
        self.started.add(key)
        doc = self.world.store.body(EXECUTIONS, (call.tenant, call.execution), id)
        if doc is not None and "copiedFrom" in doc:
            self.fail(f"{call.execution}/{id}: was copied and ran")
        if doc is None or doc["attempt"] < call.attempt:
            self.fail(f"{call.execution}/{id}: attempt {call.attempt} ran without a claim")
            return
        until = self.leases[key]
        if now >= until:
            self.fail(f"{call.execution}/{id}: attempt {call.attempt} began without a lease")
        in_time = now < self.deadlines.get((call.execution, id), now + 1)
        if not in_time:
            self.fail(f"{call.execution}/{id}: attempt {call.attempt} began after its deadline")
        # Nobody else may end this attempt before its lease has expired by the clock of somebody,
        # or its deadline has passed by the clock of an orchestrator that is ahead of the worker.
        valid = self.world.now() + MAX_SKEW_MS < until
        late = doc.get("failure", {}).get("type") == "DEADLINE_EXCEEDED"
        if doc["status"] in FINAL and doc["attempt"] <= call.attempt and valid and not late:
            self.fail(f"{call.execution}/{id}: attempt {call.attempt} ran after its result")


def _no_time(doc: Any) -> bool:
    """Whether a wait inside a map had no time to wait for, or a signal there did not come in time:
    attempts without a lease."""
    type = doc.get("failure", {}).get("type")
    kinds = ("WAIT_INVALID", "EXPRESSION_FAILED", "SIGNAL_TIMEOUT")
    return doc["status"] == "DEAD_LETTERED" and type in kinds


def _result(doc: Any) -> tuple[Any, ...]:
    return doc["status"], doc["attempt"], doc.get("output"), doc.get("failure")
