"""The event of a `publish` task: what its author wrote becomes a CloudEvent 1.0.

Pure. The id comes from the task, never from a clock or a random source: every attempt of one task
publishes the same event, so a consumer that remembers (source, id), and a broker that remembers
message ids, see it once.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from orchestrator.domain import cloudevents
from orchestrator.domain.cloudevents import HOPS
from orchestrator.domain.codec import iso
from orchestrator.domain.errors import MalformedError
from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json

STRUCTURED: Final = "application/cloudevents+json"
"""Media type of one CloudEvent as JSON."""
OWN_TARGET: Final = "events"
"""The target that is always there: the platform's own queue of events, where triggers look."""
EVENT_INVALID: Final = "EVENT_INVALID"
EVENT_REFUSED: Final = "EVENT_REFUSED"
PUBLISH_FAILED: Final = "PUBLISH_FAILED"
MAX_ID_CHARS: Final = 128

_FIELDS: Final = ("type", "source", "subject", "data")


class BadEvent(Exception):
    """What the expressions gave is no event; `failure` says which field, and why."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.failure = Failure(
            type=EVENT_INVALID, message=f"`{field}` {message}", retryable=False, field=field
        )


def cloud_event(
    value: Json, *, id: str, source: str, time: int, traceparent: str = "", hops: int = 0
) -> dict[str, Any]:
    """The CloudEvent of `value`, the evaluated `event` of a task: `{type, source?, subject?,
    data?}`. `source`: what stands for a source that was left out. `time`: epoch ms. A null field
    counts as left out. `hops`: see `CloudEvent.hops`. Raises `BadEvent`."""
    if not isinstance(value, dict):
        raise BadEvent("event", "must be an object")
    given = {name: value.get(name) for name in _FIELDS}
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": id,
        "source": _text(given, "source") or source,
        "type": _text(given, "type"),
        "time": iso(time),
    }
    if not event["type"]:
        raise BadEvent("event.type", "is missing")
    if subject := _text(given, "subject"):
        event["subject"] = subject
    if traceparent:
        event["traceparent"] = traceparent
    if hops:
        event[HOPS] = hops
    if given["data"] is not None:
        event["datacontenttype"] = "application/json"
        event["data"] = given["data"]
    try:
        cloudevents.structured(event)
    except MalformedError as error:  # or the target would refuse it, after the task has succeeded
        first = error.details[0]
        raise BadEvent(f"event{first.field.removeprefix('$')}", first.message) from None
    return event


def message_id(event_id: str) -> str:
    """What a broker's duplicate detection looks at: the same for every sending of the event."""
    if len(event_id) <= MAX_ID_CHARS:
        return event_id
    return hashlib.sha256(event_id.encode()).hexdigest()


def _text(given: dict[str, Json], name: str) -> str:
    value = given[name]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadEvent(f"event.{name}", "must be text")
    return value
