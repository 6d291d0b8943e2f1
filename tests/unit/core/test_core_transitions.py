"""Every cell of every table, the forbidden ones too, and that `evolve` obeys them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain import events as ev
from orchestrator.domain import transitions as tr
from orchestrator.domain.evolve import accepted, evolve, fold
from orchestrator.domain.failure import Failure
from orchestrator.domain.state import ExecutionState, FailureRecord, MapState
from orchestrator.domain.status import SETTLED_CODES, Code, ExecutionStatus, TaskStatus

RECORD = FailureRecord(failure=Failure(type="Boom", message="boom"))
PAGE = Path(__file__).parents[3] / "docs" / "state-machines.md"


def test_page_is_printed_from_the_code() -> None:
    assert PAGE.read_text("utf-8") == tr.markdown()


@pytest.mark.parametrize(
    ("operation", "status"), [*itertools.product(tr.ExecutionOperation, ExecutionStatus)]
)
def test_an_execution_goes_the_ways_of_its_table_only(
    operation: tr.ExecutionOperation, status: ExecutionStatus
) -> None:
    if (operation, status) in tr.EXECUTION:
        assert tr.check_execution(operation, status) is tr.EXECUTION[operation, status]
    else:
        with pytest.raises(tr.IllegalTransition) as caught:
            tr.check_execution(operation, status)
        assert (caught.value.operation, caught.value.status) == (operation, status)


OPERATORS = {"retry", "reset", "override", "accept", "reopen"}


def test_nothing_leaves_a_settled_status_but_by_an_operators_decision() -> None:
    final = {
        TaskStatus.COMPLETED,
        TaskStatus.SKIPPED,
        TaskStatus.CANCELLED,
        TaskStatus.DEAD_LETTERED,
    }
    for table in (tr.TASK, tr.ITEM, tr.WORKER):
        left = {(operation, source) for operation, source in table if source in final}
        given_back = {
            (tr.WorkerOperation.CLAIM, TaskStatus.CANCELLED),
            (tr.WorkerOperation.WAIT, TaskStatus.CANCELLED),
            (tr.WorkerOperation.COMPLETE, TaskStatus.CANCELLED),
            (tr.WorkerOperation.FAIL, TaskStatus.CANCELLED),
        }
        assert {operation for operation, _ in left - given_back} <= OPERATORS
    ended = {ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
    left = [(operation, source) for operation, source in tr.EXECUTION if source in ended]
    again = tr.ExecutionOperation.COMPENSATE_AGAIN
    assert left == [
        (tr.ExecutionOperation.REOPEN, ExecutionStatus.FAILED),
        (again, ExecutionStatus.FAILED),
        (again, ExecutionStatus.CANCELLED),
    ]


def state(code: int, **fields: Any) -> ExecutionState:
    """Two tasks; the first at `code`, the second done. A waiting one is a wait."""
    waits = {0: 99} if code == Code.WAITING else {}
    fields = {"status": ExecutionStatus.RUNNING, "waits": waits} | fields
    return ExecutionState(tasks=bytes([code, Code.COMPLETED]), accepted_at=1, **fields)


def mapping(code: int, items: bytes, **counts: Any) -> ExecutionState:
    return state(code, maps={0: MapState(items=items, count=len(items), **counts)}, waits={})


TASK_EVENTS: list[tuple[ev.Event, tr.TaskOperation]] = [
    (ev.TasksQueued(at=2, tasks=(0,)), tr.TaskOperation.QUEUE),
    (ev.TasksRequeued(at=2, tasks=(0,)), tr.TaskOperation.REQUEUE),
    (ev.TaskWaiting(at=2, task=0, due_at=9), tr.TaskOperation.WAIT),
    (ev.MapStarted(at=2, task=0, count=3), tr.TaskOperation.WAIT),
    (ev.TasksSkipped(at=2, tasks=(0,)), tr.TaskOperation.SKIP),
    (ev.TasksSkipped(at=2, tasks=(0,), condition=True), tr.TaskOperation.SKIP),
    (ev.TaskCompleted(at=2, task=0), tr.TaskOperation.COMPLETE),
    (ev.TaskFailed(at=2, task=0, failure=RECORD), tr.TaskOperation.FAIL),
    (ev.TasksCancelled(at=2, tasks=(0,), reason="failFast"), tr.TaskOperation.CANCEL),
    (ev.TasksReopened(at=2, tasks=(0,), by="eve"), tr.TaskOperation.RETRY),
    (ev.TasksReset(at=2, tasks=(0,)), tr.TaskOperation.RESET),
    (ev.TaskOverridden(at=2, task=0, by="eve"), tr.TaskOperation.OVERRIDE),
    (ev.FailureAccepted(at=2, task=0, by="eve"), tr.TaskOperation.ACCEPT),
]
ALLOWED = {
    tr.TaskOperation.QUEUE: "P",
    tr.TaskOperation.REQUEUE: "Q",
    tr.TaskOperation.WAIT: "P",
    tr.TaskOperation.SKIP: "P",
    tr.TaskOperation.COMPLETE: "PQW",
    tr.TaskOperation.FAIL: "PQ",  # from W: only a map with a failed item, below
    tr.TaskOperation.CANCEL: "PQW",
    tr.TaskOperation.RETRY: "Dd",
    tr.TaskOperation.RESET: "DdXSs",
    tr.TaskOperation.OVERRIDE: "Dd",
    tr.TaskOperation.ACCEPT: "D",
}
AFTER = {"TasksQueued": "Q", "TasksRequeued": "Q", "TaskWaiting": "W", "MapStarted": "W"}
AFTER |= {"TaskCompleted": "C", "TaskFailed": "D", "TasksCancelled": "X", "TasksReopened": "Q"}
AFTER |= {"TasksReset": "P", "TaskOverridden": "C", "FailureAccepted": "d"}


@pytest.mark.parametrize("letter", "PQWCSsXDd")
@pytest.mark.parametrize(("event", "operation"), TASK_EVENTS)
def test_evolve_obeys_the_task_table(event: Any, operation: tr.TaskOperation, letter: str) -> None:
    before = state(ord(letter))
    if letter in ALLOWED[operation]:
        skipped = "s" if getattr(event, "condition", False) else "S"
        expected = AFTER.get(type(event).__name__, skipped)
        assert evolve(before, event).tasks.decode() == expected + "C"
    else:
        with pytest.raises(tr.IllegalTransition):
            evolve(before, event)


@pytest.mark.parametrize("task", [-1, 2, 10_000])
def test_a_task_that_does_not_exist_is_refused(task: int) -> None:
    with pytest.raises(tr.IllegalTransition):
        evolve(state(Code.PENDING), ev.TasksQueued(at=2, tasks=(task,)))


ITEM_EVENTS: list[tuple[ev.Event, str, str]] = [
    (ev.MapItemsQueued(at=2, task=0, start=0, count=1), "P", "Q"),
    (ev.TasksRequeued(at=2, items=((0, 0),)), "Q", "Q"),
    (ev.MapItemsCompleted(at=2, task=0, items=(0,)), "Q", "C"),
    (ev.MapItemFailed(at=2, task=0, item=0, failure=RECORD), "Q", "D"),
    (ev.MapItemsCancelled(at=2, task=0, items=(0,)), "Q", "X"),
]


@pytest.mark.parametrize("letter", "PQCXD")
@pytest.mark.parametrize(("event", "allowed", "after"), ITEM_EVENTS)
def test_evolve_obeys_the_item_table(event: Any, allowed: str, after: str, letter: str) -> None:
    counts = {"Q": {"queued": 1}, "C": {"completed": 1}, "D": {"failed": 1}, "X": {"cancelled": 1}}
    before = mapping(Code.WAITING, f"{letter}P".encode(), **counts.get(letter, {}))
    if letter != allowed:
        with pytest.raises(tr.IllegalTransition):
            evolve(before, event)
        return
    found = evolve(before, event).maps[0]
    assert found.items.decode() == after + "P"
    counted = (found.queued, found.completed, found.failed, found.cancelled)
    assert counted == tuple(int(after == kind) for kind in "QCDX")
    for other in b"PQCD":
        with pytest.raises(tr.IllegalTransition):
            evolve(mapping(other, before.maps[0].items, **counts.get(letter, {})), event)


def test_a_map_is_gathered_only_when_all_items_completed() -> None:
    gather = ev.TasksQueued(at=2, tasks=(0,))
    assert evolve(mapping(Code.WAITING, b"CC", completed=2), gather).tasks == b"QC"
    for items, counts in ((b"CQ", {"completed": 1, "queued": 1}), (b"CD", {"completed": 1})):
        with pytest.raises(tr.IllegalTransition):
            evolve(mapping(Code.WAITING, items, **counts), gather)
    with pytest.raises(tr.IllegalTransition):  # a waiting map is no wait
        evolve(mapping(Code.WAITING, b"CC", completed=2), ev.TaskCompleted(at=2, task=0))


def test_a_waiting_map_fails_only_with_a_failed_item_and_none_in_flight() -> None:
    fail = ev.TaskFailed(at=2, task=0, failure=RECORD)
    assert evolve(mapping(Code.WAITING, b"DP", failed=1), fail).tasks == b"DC"
    for items, counts in ((b"DQ", {"failed": 1, "queued": 1}), (b"CP", {"completed": 1})):
        with pytest.raises(tr.IllegalTransition):
            evolve(mapping(Code.WAITING, items, **counts), fail)


def test_cancelling_a_map_cancels_its_items() -> None:
    before = mapping(Code.WAITING, b"CDQP", completed=1, failed=1, queued=1)
    after = evolve(before, ev.TasksCancelled(at=2, tasks=(0,), reason="executionTimeout")).maps[0]
    assert (after.items, after.queued, after.cancelled) == (b"CDXX", 0, 2)


def test_a_failed_map_waits_again_for_the_items_that_are_retried() -> None:
    before = mapping(Code.DEAD_LETTERED, b"CDXDP", completed=1, failed=2, cancelled=1)
    one = evolve(before, ev.TasksReopened(at=2, items=((0, 1),), by="eve"))
    found = one.maps[0]
    assert (one.tasks, found.items, found.queued, found.failed) == (b"WC", b"CQXDP", 1, 1)
    assert found.cancelled == 1
    both = evolve(one, ev.TaskOverridden(at=2, task=0, item=3, by="eve")).maps[0]
    assert (both.items, both.failed, both.cancelled, both.completed) == (b"CQPCP", 0, 0, 2)
    stopped = mapping(Code.CANCELLED, b"CXX", completed=1, cancelled=2)
    reset = evolve(stopped, ev.TasksReset(at=2, tasks=(0,)))
    assert (reset.tasks, reset.maps[0].items, reset.maps[0].cancelled) == (b"WC", b"CPP", 0)
    for letter in b"PQC":
        with pytest.raises(tr.IllegalTransition):
            evolve(
                mapping(letter, b"D", failed=1),
                ev.TasksReopened(at=2, items=((0, 0),), by="eve"),
            )
    with pytest.raises(tr.IllegalTransition):
        evolve(before, ev.TasksReopened(at=2, items=((0, 0),), by="eve"))


EXECUTION_EVENTS: list[Any] = [
    (ev.ExecutionReopened(at=2, by="eve"), "reopen"),
    (ev.TasksCopied(at=2, tasks=()), "copy"),
    (ev.ExecutionStarted(at=2), "start"),
    (ev.FailureNoted(at=2, failure=RECORD), "progress"),
    (ev.TasksRequeued(at=2), "progress"),
    (ev.ExecutionCompleted(at=2), "complete"),
    (ev.ExecutionFailed(at=2, failure=RECORD), "fail"),
    (ev.CompensationStarted(at=2, ending="CANCELLED", by="eve"), "compensate"),
]


@pytest.mark.parametrize("status", list(ExecutionStatus))
@pytest.mark.parametrize(("event", "operation"), EXECUTION_EVENTS)
def test_evolve_obeys_the_execution_table(event: Any, operation: str, status: Any) -> None:
    before = state(Code.COMPLETED, status=status)
    cell = (tr.ExecutionOperation(operation), status)
    if cell in tr.EXECUTION:
        assert evolve(before, event).status is tr.EXECUTION[cell]
    else:
        with pytest.raises(tr.IllegalTransition):
            evolve(before, event)


@pytest.mark.parametrize("code", sorted({Code.PENDING, Code.QUEUED, Code.WAITING}))
def test_an_execution_ends_only_when_every_task_settled(code: int) -> None:
    for event in (ev.ExecutionCompleted(at=2), ev.ExecutionFailed(at=2, failure=RECORD)):
        with pytest.raises(tr.IllegalTransition):
            evolve(state(code), event)


def test_an_execution_with_a_failure_cannot_complete() -> None:
    with pytest.raises(tr.IllegalTransition):
        evolve(state(Code.COMPLETED, failure=RECORD), ev.ExecutionCompleted(at=2))


def test_a_history_begins_with_acceptance_once() -> None:
    first = ev.ExecutionAccepted(at=1, tasks=2)
    assert fold(None, [first]) == accepted(first)
    for history in ([], [ev.ExecutionStarted(at=2)], [first, first]):
        with pytest.raises(tr.IllegalTransition):
            fold(None, history)


def test_settled_codes_are_those_without_a_way_out() -> None:
    sources = {source for operation, source in tr.TASK if operation not in OPERATORS}
    from orchestrator.domain.status import STATUS_OF_CODE

    settled = {c for c, s in STATUS_OF_CODE.items() if s not in sources} | {Code.HIDDEN}
    assert settled == SETTLED_CODES
