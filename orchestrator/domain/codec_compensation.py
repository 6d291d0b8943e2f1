"""Events of compensation as JSON, and back. Used by `codec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from orchestrator.domain import events as ev
from orchestrator.domain.codec_state import record_from_doc, record_to_doc

_Doc = dict[str, Any]


def _w_started(event: ev.CompensationStarted, doc: _Doc) -> None:
    doc["ending"] = event.ending
    if event.failure is not None:
        doc["failure"] = record_to_doc(event.failure)
    if event.by:
        doc["by"] = event.by
    if event.reason:
        doc["reason"] = event.reason


def _w_reopened(event: ev.CompensationReopened, doc: _Doc) -> None:
    doc["by"] = event.by
    if event.reason:
        doc["reason"] = event.reason


WRITE_COMPENSATION: Final[dict[type, tuple[str, Callable[[Any, _Doc], None]]]] = {
    ev.CompensationStarted: ("compensationStarted", _w_started),
    ev.CompensationReopened: ("compensationReopened", _w_reopened),
}

READ_COMPENSATION: Final[dict[str, Callable[[Mapping[str, Any], int], ev.Event]]] = {
    "compensationStarted": lambda doc, at: ev.CompensationStarted(
        at=at,
        ending=doc["ending"],
        failure=record_from_doc(doc["failure"]) if "failure" in doc else None,
        by=doc.get("by", ""),
        reason=doc.get("reason", ""),
    ),
    "compensationReopened": lambda doc, at: ev.CompensationReopened(
        at=at, by=doc["by"], reason=doc.get("reason", "")
    ),
}
