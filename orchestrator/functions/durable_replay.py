"""`ports_durable.Replay` over the context of azure-functions-durable 1.7.

The one place that knows the library's inside, for two reasons. Of external events that come early
the library keeps only the last one, hands that out again for every later wait, and calls it a
duplicate (`deferred_tasks`); so signals are taken in by an inbox of ours, before the library sees
that nobody waits for them. And it loads JSON with a hook that makes objects of what a user sends
(`__class__`, `__module__`); so everything that we send is text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from azure.durable_functions import DurableOrchestrationContext
from azure.durable_functions.models.actions.WhenAllAction import WhenAllAction
from azure.durable_functions.models.history import HistoryEventType
from azure.durable_functions.models.ReplaySchema import ReplaySchema

from orchestrator.domain.orchestration import BadEnvelope, SignalEnvelope
from orchestrator.ports_durable import Pending

MAX_SEEN: Final = 200
"""Ids of signals that the next generation is told of: doubles come within minutes."""
_UNNUMBERED: Final = -1
"""A task of this id takes no number and is registered nowhere: the inbox completes it."""


class DurableReplay:
    """One turn. Make it before the first step is taken."""

    def __init__(self, context: DurableOrchestrationContext) -> None:
        self._context = context
        self._inbox = _Inbox(context)

    @property
    def input(self) -> str:
        """See `Replay`. Durable quotes text once more on some ways, so quotes are taken off."""
        raw = self._context._input
        while isinstance(raw, str) and raw.lstrip().startswith('"'):
            raw = json.loads(raw)
        return raw if isinstance(raw, str) else json.dumps(raw)

    @property
    def instance(self) -> str:
        """See `Replay`."""
        return self._context.instance_id

    @property
    def now(self) -> datetime:
        """See `Replay`."""
        moment = self._context.current_utc_datetime
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)

    @property
    def replaying(self) -> bool:
        """See `Replay`."""
        return self._context.is_replaying

    def new_id(self) -> str:
        """See `Replay`."""
        return self._context.new_uuid()

    def activity(self, name: str, payload: str) -> Pending:
        """See `Replay`."""
        return self._context.call_activity(name, payload, expected_type=str)

    def orchestrator(self, name: str, payload: str, instance: str) -> Pending:
        """See `Replay`."""
        return self._context.call_sub_orchestrator(name, payload, instance, expected_type=str)

    def timer(self, at: datetime) -> Pending:
        """See `Replay`."""
        if self._context.current_utc_datetime.tzinfo is None:
            at = at.replace(tzinfo=None)
        return self._context.create_timer(at)

    def cancel(self, timer: Pending) -> None:
        """See `Replay`. A long one is made of short ones, and only those are Durable's."""
        task: Any = timer
        for one in getattr(task, "children", [task]):
            if not one.is_completed:
                one.cancel()

    def signal(self, name: str) -> Pending:
        """See `Replay`."""
        return self._inbox.next(name)

    def withdraw(self, signal: Pending) -> None:
        """See `Replay`."""
        self._inbox.withdraw(signal)

    def all(self, tasks: Sequence[Pending]) -> Pending:
        """See `Replay`."""
        raw: Any = list(tasks)
        task: Any = self._context.task_all(raw)
        if not raw:
            task.result = []
        return task

    def any(self, tasks: Sequence[Pending]) -> Pending:
        """See `Replay`."""
        raw: Any = list(tasks)
        return self._context.task_any(raw)

    def set_status(self, value: Any) -> None:
        """See `Replay`."""
        self._context.set_custom_status(value)

    def restore(self, signals: Sequence[tuple[str, str]], seen: Sequence[str]) -> None:
        """See `Replay`."""
        self._inbox.restore(signals, seen)

    def unread(self) -> tuple[list[tuple[str, str]], list[str]]:
        """See `Replay`."""
        return self._inbox.unread()

    def continue_as_new(self, payload: str) -> None:
        """See `Replay`."""
        self._context.continue_as_new(payload)


class _Inbox:
    """Signals of one instance, in the order of its history."""

    def __init__(self, context: DurableOrchestrationContext) -> None:
        self._context = context
        self._tasks: Any = context.open_tasks  # where the library looks for who waits
        self._raised: list[Any] = [
            event
            for event in context.histories
            if event.event_type == HistoryEventType.EVENT_RAISED
        ]
        self._arrived = 0
        self._waiting: list[tuple[str, Any]] = []
        self._kept: list[tuple[str, str]] = []
        self._seen: dict[str, None] = {}
        for event in self._raised:
            self._tasks[event.Name] = _Slot(self, event.Name)

    def next(self, name: str) -> Any:
        """A task for the next signal; complete if one has come."""
        task: Any = self._context.wait_for_external_event(name, expected_type=str)
        task.id = _UNNUMBERED
        for index, (kept, text) in enumerate(self._kept):
            if kept == name:
                del self._kept[index]
                self._at_once(task, text)
                return task
        self._waiting.append((name, task))
        return task

    def withdraw(self, task: Any) -> None:
        self._waiting = [pair for pair in self._waiting if pair[1] is not task]

    def arrived(self, name: str, value: Any, played: bool) -> None:
        """The library has read an event of that name from the history."""
        self._arrived += 1
        self._tasks[name] = _Slot(self, name)  # it takes out what it completes
        text = _new(value, self._seen)
        if text is None:
            return
        for index in range(len(self._waiting) - 1, -1, -1):
            waiting, task = self._waiting[index]
            if waiting == name:
                del self._waiting[index]
                task.set_is_played(played)
                task.set_value(is_error=False, value=text)
                return
        self._kept.append((name, text))

    def restore(self, signals: Sequence[tuple[str, str]], seen: Sequence[str]) -> None:
        self._kept.extend(signals)
        self._seen.update(dict.fromkeys(seen))

    def unread(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Also what stands in the history behind the step that is being taken."""
        seen = dict(self._seen)
        later = [
            (event.Name, text)
            for event in self._raised[self._arrived :]
            if (text := _new(json.loads(event.Input or "null"), seen)) is not None
        ]
        return [*self._kept, *later], list(seen)[-MAX_SEEN:]

    def _at_once(self, task: Any, text: str) -> None:
        """Complete a task before anybody waits for it. Durable's host must not wait for the event
        either: it may have given it to a wait that we have withdrawn. Of nothing, all is done."""
        if self._context._replay_schema is not ReplaySchema.V1:
            task.action_repr = WhenAllAction([])
        task.set_is_played(self._context.is_replaying)
        task.set_value(is_error=False, value=text)


def _new(value: Any, seen: dict[str, None]) -> str | None:
    """The signal as text, its id noted; None if its id is known."""
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        id = SignalEnvelope.decode(text).id
    except BadEnvelope:
        return text  # raised by somebody else, who knows no ids
    if id in seen:
        return None
    seen[id] = None
    return text


class _Slot:
    """Stands where the library looks for the task of an event's name."""

    _api_name = "WaitForExternalEventAction"
    _expected_output_type = str

    def __init__(self, inbox: _Inbox, name: str) -> None:
        self._inbox = inbox
        self._name = name
        self._played = False

    def set_is_played(self, is_played: bool) -> None:
        self._played = is_played

    def set_value(self, is_error: bool, value: Any) -> None:
        self._inbox.arrived(self._name, value, self._played)
