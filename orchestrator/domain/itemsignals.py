"""Map items that wait for signals, as a decision sees them.

A worker parks such an item (`engine/mapsignals.py`); the decision that hands it a signal completes
it, and its commit writes the item's document (`engine/signalled_items.py`). Each is an operation of
a batch that holds 100, so one decision hands out a bounded number; the commit sends itself a
message for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.domain import events as ev
from orchestrator.domain.draft import Draft
from orchestrator.domain.state import ExecutionState, MapState
from orchestrator.domain.status import Code, ExecutionStatus
from orchestrator.domain.topology import MAP_CHUNK_ITEMS
from orchestrator.domain.workflow import HANDLERS, OnFailure, Workflow

AT_ONCE: Final = 36
"""Signals that one decision hands to items, where maps are small: room is left for the statuses of
items (a document per 500), 30 outbox documents, and more."""
AT_LEAST: Final = 4
"""The same, where up to 60 documents of item statuses may go with it."""


def waiting(draft: Draft, task: int) -> Iterator[int]:
    """Items of the map `task` that wait for its signal and may take one now, by index."""
    state = draft.fold.maps.get(task)
    if state is None or draft.fold.codes[task] != Code.WAITING or draft.stopped(task):
        return
    item = state.items.find(Code.QUEUED)
    while item >= 0:
        yield item
        item = state.items.find(Code.QUEUED, item + 1)


def serve(draft: Draft, task: int, item: int, name: str) -> bool:
    """Complete the item with the oldest signal of this name; whether there was one, and room."""
    ids = draft.fold.signals.get(name)
    if not ids or not draft.items_listen or len(draft.signalled_items) >= _room(draft):
        return False
    draft.emit(ev.MapItemSignalled(at=draft.now, task=task, item=item, signal=ids[0]))
    draft.signalled_items[task, item] = ids[0]
    draft.maps.add(task)
    return True


def _room(draft: Draft) -> int:
    return max(AT_LEAST, AT_ONCE - _chunks(draft.fold.maps))


def _chunks(maps: Mapping[int, MapState]) -> int:
    return sum(-(-state.count // MAP_CHUNK_ITEMS) for state in maps.values())


def left(workflow: Workflow, state: ExecutionState) -> bool:
    """Whether an item could take a signal that is buffered: there were more than one decision
    hands out."""
    if not state.signals or state.status is not ExecutionStatus.RUNNING:
        return False
    failing = state.failure is not None and workflow.on_failure is OnFailure.FAIL_FAST
    for name in state.signals:
        for task in workflow.signals.get(name, ()):
            stopped = failing and workflow.tasks[task].run_when not in HANDLERS
            progress = state.maps.get(task)
            waits = progress is not None and state.tasks[task] == Code.WAITING
            if progress is not None and waits and not stopped and progress.queued:
                return True
    return False
