"""Events of signals as JSON, and back. Used by `codec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from orchestrator.domain import events as ev

_Doc = dict[str, Any]


def _w_received(event: ev.SignalReceived, doc: _Doc) -> None:
    doc["id"] = event.id
    doc["name"] = event.name


def _w_awaited(event: ev.SignalAwaited, doc: _Doc) -> None:
    doc["task"] = event.task
    doc["name"] = event.name
    if event.due_at is not None:
        doc["dueAt"] = event.due_at
    if event.deadline_at is not None:
        doc["deadlineAt"] = event.deadline_at


def _w_raised(event: ev.SignalRaised, doc: _Doc) -> None:
    doc["id"] = event.id
    doc["name"] = event.name
    doc["task"] = event.task


def _w_item(event: ev.MapItemSignalled, doc: _Doc) -> None:
    doc["task"] = event.task
    doc["item"] = event.item
    doc["signal"] = event.signal


WRITE_SIGNALS: Final[dict[type, tuple[str, Callable[[Any, _Doc], None]]]] = {
    ev.SignalReceived: ("signalReceived", _w_received),
    ev.SignalAwaited: ("signalAwaited", _w_awaited),
    ev.SignalRaised: ("signalRaised", _w_raised),
    ev.MapItemSignalled: ("mapItemSignalled", _w_item),
}

READ_SIGNALS: Final[dict[str, Callable[[Mapping[str, Any], int], ev.Event]]] = {
    "signalReceived": lambda doc, at: ev.SignalReceived(at=at, id=doc["id"], name=doc["name"]),
    "signalAwaited": lambda doc, at: ev.SignalAwaited(
        at=at,
        task=doc["task"],
        name=doc["name"],
        due_at=doc.get("dueAt"),
        deadline_at=doc.get("deadlineAt"),
    ),
    "signalRaised": lambda doc, at: ev.SignalRaised(
        at=at, id=doc["id"], name=doc["name"], task=doc["task"]
    ),
    "mapItemSignalled": lambda doc, at: ev.MapItemSignalled(
        at=at, task=doc["task"], item=doc["item"], signal=doc["signal"]
    ),
}
