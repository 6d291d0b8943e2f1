"""CloudEvents 1.0: what an event is, and how it is read from JSON, from headers, from Event Grid.

An event comes from outside and is kept for years, so it is checked once, here, completely: every
finding with its path. What is let in can be stored, compared and shown without further thought.

Stricter than the specification in two places: an extension attribute holds text, a whole number or
a boolean (nothing nested), and no attribute holds control characters.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from orchestrator.domain.errors import ErrorDetail, MalformedError, WeftError
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import body_hash, child_path

SPEC_VERSION: Final = "1.0"
HOPS: Final = "wefthops"
"""Name of the extension attribute that `CloudEvent.hops` reads."""
MAX_BATCH_EVENTS: Final = 500
MAX_NAME_CHARS: Final = 64
"""Of an extension attribute's name; the specification advises 20."""
REQUIRED: Final = ("specversion", "id", "source", "type")
CODE: Final = "INVALID_EVENT"

_TEXTS: Final = frozenset({*REQUIRED, "subject", "time", "datacontenttype", "dataschema"})
_NAME: Final = re.compile(r"[a-z0-9]{1,64}")
_MEDIA: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(\s*;.*)?")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_TRACE: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_DIGITS: Final = re.compile("[0-9]{1,9}")
_INT32: Final = 2**31


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """A checked event. `body`: its attributes and data as one JSON object (the structured form),
    without nulls; treat it as frozen."""

    body: Mapping[str, Json]

    @property
    def id(self) -> str:
        """Unique within the source."""
        return cast("str", self.body["id"])

    @property
    def source(self) -> str:
        """Where it happened, a URI reference."""
        return cast("str", self.body["source"])

    @property
    def type(self) -> str:
        """What happened."""
        return cast("str", self.body["type"])

    @property
    def subject(self) -> str | None:
        """To what in the source it happened."""
        return cast("str | None", self.body.get("subject"))

    @property
    def scope(self) -> Mapping[str, Json]:
        """What expressions see as `event`: attributes that are there, and always `data`."""
        return {"data": None, **self.body}

    @property
    def traceparent(self) -> str:
        """The W3C trace context that it carries (extension `traceparent`); empty without a
        well-formed one."""
        given = self.body.get("traceparent")
        return given if isinstance(given, str) and _TRACE.fullmatch(given) else ""

    @property
    def hops(self) -> int:
        """How many executions that an event started lie behind it (extension `HOPS`): what Weft
        publishes counts them, so that a circle ends. Text is read too: headers know nothing else.
        Anything that is no number of hops is 0."""
        given = self.body.get(HOPS)
        if isinstance(given, str) and _DIGITS.fullmatch(given):
            given = int(given)
        return max(0, given) if type(given) is int else 0

    @property
    def content(self) -> str:
        """Hash of what the event says. Two events of one source and id should have the same;
        times and extension attributes do not count, since whoever forwards an event may set
        them."""
        said = ("type", "subject", "data", "data_base64")
        return body_hash({name: self.body[name] for name in said if name in self.body})


def structured(value: Json, path: str = "$") -> CloudEvent:
    """The event of a JSON object in the structured form. Raises `MalformedError` with every
    finding, each below `path`."""
    return _checked(value, path, {})


def event_grid(value: Json, path: str = "$") -> CloudEvent:
    """The event of a JSON object in Event Grid's own schema, as a CloudEvent: topic -> source,
    eventType -> type, eventTime -> time, dataVersion -> the extension `dataversion`. Raises
    `MalformedError` with every finding, under the names that were sent."""
    if not isinstance(value, dict):
        return structured(value, path)
    body: dict[str, Json] = {"specversion": SPEC_VERSION}
    for name, ours in _FROM_GRID.items():
        if (given := value.get(name)) not in (None, ""):
            body[ours] = given
    if "data" in value:
        body["data"] = value["data"]
    return _checked(body, path, {ours: name for name, ours in _FROM_GRID.items()})


_FROM_GRID: Final = {
    "id": "id",
    "topic": "source",
    "subject": "subject",
    "eventType": "type",
    "eventTime": "time",
    "dataVersion": "dataversion",
}


def is_event_grid(value: Json) -> bool:
    """Whether an object is in Event Grid's own schema rather than a CloudEvent."""
    return isinstance(value, dict) and "eventType" in value and "specversion" not in value


def either(value: Json, path: str = "$") -> CloudEvent:
    """`structured` or `event_grid`, whichever it is."""
    return event_grid(value, path) if is_event_grid(value) else structured(value, path)


def batch(value: Json | list[Json | WeftError]) -> list[CloudEvent | MalformedError]:
    """The events of a list, each by itself: one that is wrong, or that could not be read
    (`parse_json_items`), is its error instead. Raises `MalformedError` if it is no list, or has
    more than `MAX_BATCH_EVENTS`."""
    if not isinstance(value, list):
        raise invalid([ErrorDetail("$", "a batch must be a list of events", "WRONG_TYPE")])
    if len(value) > MAX_BATCH_EVENTS:
        text = f"a batch has at most {MAX_BATCH_EVENTS} events, this one {len(value):,}"
        raise invalid([ErrorDetail("$", text, "BATCH_TOO_LARGE")])
    found: list[CloudEvent | MalformedError] = []
    for position, item in enumerate(value):
        if isinstance(item, WeftError):
            found.append(invalid(list(item.details)))
            continue
        try:
            found.append(either(item, f"$[{position}]"))
        except MalformedError as error:
            found.append(error)
    return found


def invalid(findings: list[ErrorDetail]) -> MalformedError:
    """The error for an event with these findings."""
    first = findings[0]
    message = f"{first.field}: {first.message}"
    if len(findings) > 1:
        message = f"the event has {len(findings)} faults, the first: {message}"
    return MalformedError(message, code=CODE, details=findings)


def _checked(value: Json, path: str, names: Mapping[str, str]) -> CloudEvent:
    """`names`: how the sender calls attributes that have another name."""
    if isinstance(value, list):
        text = "an event must be an object; a batch holds no further batch"
        raise invalid([ErrorDetail(path, text, "WRONG_TYPE")])
    if not isinstance(value, dict):
        raise invalid([ErrorDetail(path, "an event must be an object", "WRONG_TYPE")])
    found: list[ErrorDetail] = []
    body: dict[str, Json] = {}
    for name, given in value.items():
        if given is None:  # null is the same as left out
            continue
        body[name] = given
        if name != "data" and (fault := _fault(name, given)):
            found.append(ErrorDetail(child_path(path, names.get(name, name)), *fault))
    for name in REQUIRED:
        if name not in body:
            where = child_path(path, names.get(name, name))
            found.append(ErrorDetail(where, f"`{names.get(name, name)}` is missing", "MISSING"))
    if "data" in body and "data_base64" in body:
        text = "an event has `data` or `data_base64`, not both"
        found.append(ErrorDetail(child_path(path, "data_base64"), text, "BOTH_DATA"))
    if found:
        raise invalid(found)
    return CloudEvent(body)


def _fault(name: str, value: Json) -> tuple[str, str, str] | None:
    """What is wrong with an attribute: message, code, hint."""
    if name == "data_base64":
        return _base64_fault(value)
    if name in _TEXTS:
        return _text_fault(name, value)
    if not _NAME.fullmatch(name):
        hint = f"lower-case letters and digits, at most {MAX_NAME_CHARS}"
        return "this is no name of an attribute", "BAD_ATTRIBUTE", hint
    if isinstance(value, str):
        if _CONTROL.search(value):
            return "must not hold control characters", "BAD_VALUE", ""
    elif isinstance(value, int):
        if not -_INT32 <= value < _INT32:
            return "a whole number in an attribute has 32 bits; write it as text", "BAD_VALUE", ""
    else:
        hint = "nested values belong into `data`"
        return "must be text, a whole number or a boolean", "WRONG_TYPE", hint
    return None


def _text_fault(name: str, value: Json) -> tuple[str, str, str] | None:
    if not isinstance(value, str):
        return "must be text", "WRONG_TYPE", ""
    if not value.strip():
        return "must not be empty", "BAD_VALUE", ""
    if _CONTROL.search(value):
        return "must not hold control characters", "BAD_VALUE", ""
    if name == "specversion" and value != SPEC_VERSION:
        return f"must be {SPEC_VERSION}, the only version that is read here", "BAD_VERSION", ""
    if name == "time" and not _is_time(value):
        hint = "write it like 2027-03-28T02:30:00Z"
        return "must be a time of RFC 3339, with an offset", "BAD_TIME", hint
    if name == "datacontenttype" and not _MEDIA.fullmatch(value):
        return "must be a media type such as application/json", "BAD_VALUE", ""
    return None


def _is_time(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        # A leap second is a time, but none that Python knows.
        datetime.fromisoformat(re.sub(r":60(?=[.Zz+-])", ":59", text.upper()))
    except ValueError:
        return False
    return True


def _base64_fault(value: Json) -> tuple[str, str, str] | None:
    if not isinstance(value, str):
        return "must be text", "WRONG_TYPE", ""
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return "must be base64", "BAD_VALUE", ""
    return None
