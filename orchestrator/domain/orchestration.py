"""What Weft and a Durable Functions orchestration that it runs say to each other.

A `durable` task starts an *instance* and waits for its end. The instance is given an envelope, not
the bare input: it says whose it is, so that its last step can tell. Signals come in one, too, so
that the instance can drop doubles: they are handed over at least once.

    input    {"v": 1, "tenant", "execution", "task", "item"?, "workflow", "version",
              "input" | "inputRef", "traceparent"?}
    signal   {"v": 1, "id", "at", "payload" | "payloadRef"}

`inputRef` and `payloadRef` are stored payloads (`Payload.to_doc`) of what is too large for a
message; an activity of the instance loads them by the claim check.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.domain import jsonvalues
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.payload import Payload

VERSION: Final = 1
MAX_INSTANCE_CHARS: Final = 100
"""Instance ids become keys of Azure Storage tables and names of blobs."""
MAX_ROOT_CHARS: Final = 82
"""Of the instance of a task: the ids of those that it starts begin with it, and say more."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:~-]+")

_FUNCTION: Final = re.compile(r"code_(.+)_v([0-9]+)")
_USE: Final = "code:"
MAIN: Final = "main"
"""The one task of a code workflow."""


class BadEnvelope(Exception):
    """It was not written by `encode`, or by a newer Weft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The input of an instance, and whose it is. Exactly one of `input` (JSON text) and
    `input_ref` (a payload that is stored beside) holds it."""

    tenant: str
    execution: str
    task: str
    item: int | None = None
    workflow: str
    version: int
    input: str | None = None
    input_ref: Payload | None = None
    traceparent: str = ""

    def encode(self) -> str:
        """JSON text."""
        doc: dict[str, Any] = {
            "v": VERSION,
            "tenant": self.tenant,
            "execution": self.execution,
            "task": self.task,
            "workflow": self.workflow,
            "version": self.version,
        }
        if self.item is not None:
            doc["item"] = self.item
        if self.traceparent:
            doc["traceparent"] = self.traceparent
        return _with_value(doc, "input", self.input, self.input_ref)

    @staticmethod
    def decode(text: str) -> Envelope:
        """Inverse of `encode`. Raises `BadEnvelope`."""
        doc = _read(text)
        try:
            value, ref = _value(doc, "input")
            return Envelope(
                tenant=doc["tenant"],
                execution=doc["execution"],
                task=doc["task"],
                item=doc.get("item"),
                workflow=doc["workflow"],
                version=doc["version"],
                input=value,
                input_ref=ref,
                traceparent=doc.get("traceparent", ""),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadEnvelope(f"no envelope of Weft: {error!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalEnvelope:
    """An external event: a signal of Weft. `id` is the same whenever it is handed over again."""

    id: str
    at: int  # when Weft received it, epoch ms
    payload: str | None = None  # JSON text…
    payload_ref: Payload | None = None  # …or where it is stored

    def encode(self) -> str:
        """JSON text."""
        doc: dict[str, Any] = {"v": VERSION, "id": self.id, "at": self.at}
        return _with_value(doc, "payload", self.payload, self.payload_ref)

    @staticmethod
    def decode(text: str) -> SignalEnvelope:
        """Inverse of `encode`. Raises `BadEnvelope`."""
        doc = _read(text)
        try:
            value, ref = _value(doc, "payload")
            return SignalEnvelope(id=doc["id"], at=doc["at"], payload=value, payload_ref=ref)
        except (KeyError, TypeError, ValueError) as error:
            raise BadEnvelope(f"no signal of Weft: {error!r}") from None


def _with_value(doc: dict[str, Any], name: str, text: str | None, ref: Payload | None) -> str:
    """The JSON text of `doc` with the value added as it is: it may hold numbers that parsing would
    change."""
    if ref is not None:
        return jsonvalues.dumps({**doc, f"{name}Ref": ref.to_doc()}).decode()
    head = jsonvalues.dumps(doc).decode()
    return f'{head[:-1]},"{name}":{text or "null"}}}'


def _read(text: str) -> Mapping[str, Any]:
    try:
        doc: Json = jsonvalues.loads(text)
    except ValueError as error:
        raise BadEnvelope(f"not JSON: {error}") from None
    if not isinstance(doc, dict) or doc.get("v") != VERSION:
        raise BadEnvelope(f"not an envelope of version {VERSION}")
    return doc


def _value(doc: Mapping[str, Any], name: str) -> tuple[str | None, Payload | None]:
    if (ref := doc.get(f"{name}Ref")) is not None:
        return None, Payload.from_doc(ref)
    return jsonvalues.dumps(doc[name]).decode(), None


def instance_id(execution: str, task: str, item: int | None, number: int, *, own: bool) -> str:
    """Id of the `number`-th instance of a task. `own`: of a code workflow's `main`, whose first
    instance has the execution's own id: Durable then suppresses doubles, too. What Durable's stores
    would not take is hashed."""
    if own and number == 1 and _fits(execution):
        return execution
    place = task if item is None else f"{task}:{item}"
    plain = f"{execution}:{place}:{number}"
    if _fits(plain):
        return plain
    return "h" + hashlib.sha256(plain.encode()).hexdigest()[:31]


def _fits(id: str) -> bool:
    return len(id) <= MAX_ROOT_CHARS and _PLAIN.fullmatch(id) is not None


def next_instance(
    partition: tuple[str, str], doc: Mapping[str, Any], *, own: bool
) -> dict[str, Any]:
    """The `instance` of a task document that is being claimed: the one before, unless its end is
    known; else the next. Fields:

    number      1, 2, … : instances of this task so far
    id          its id, whether or not it exists yet
    settled     its end is taken in, or it will never exist (absent: it may be running)
    failed      it ended as Failed, so that it can be rewound
    rewind      an operator wants the failed one taken up again, not another one
    failedAt    when the one that was rewound had failed: that end is no news (Durable's time)
    deadlineAt  when the task's `timeout` ends it (epoch ms; absent: never)
    lookMs      how long the next look waits; doubles while nothing is wrong
    crashes     workers that died while they started it
    refused     starts that were put off, because Durable or its orchestrator was not there
    missing     looks in a row that did not find it, after it was started
    raisingUntil  until when a worker has its turn to raise signals (epoch ms)
    """
    before = doc.get("instance")
    if before is not None and not before.get("settled"):
        return before
    number = 1 if before is None else before["number"] + 1
    id = instance_id(partition[1], doc["task"], doc.get("item"), number, own=own)
    return {"number": number, "id": id}


def taken_up(instance: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `instance` of a task that an operator retries as it was: one that failed is rewound."""
    if not instance.get("failed"):
        return instance
    return {"number": instance["number"], "id": instance["id"], "rewind": True}


def following(
    partition: tuple[str, str], doc: Mapping[str, Any], instance: Mapping[str, Any]
) -> dict[str, Any]:
    """The instance after one that should have been rewound and cannot be."""
    number = instance["number"] + 1
    id = instance_id(partition[1], doc["task"], doc.get("item"), number, own=False)
    return {"number": number, "id": id}


def pin(name: str) -> str:
    """Where an execution's header keeps (`pins`) the version of code workflow `name` that its
    `durable` tasks run. No workflow's name holds a colon."""
    return f"durable:{name}"


def use_field(name: str, version: int) -> str:
    """Property of an execution document that says that it runs this version of a code workflow."""
    return f"{_USE}{name}:{version}"


def is_use(field: str) -> bool:
    """Whether it is a `use_field`."""
    return field.startswith(_USE)


def function_name(name: str, version: int) -> str:
    """The orchestrator function of a version of a code workflow."""
    return f"code_{name}_v{version}"


def workflow_of(function: str) -> tuple[str, int] | None:
    """Name and version of the code workflow that an orchestrator function is (`function_name`)."""
    found = _FUNCTION.fullmatch(function)
    return None if found is None else (found[1], int(found[2]))


def execution_in(instance: str) -> str:
    """The execution that an instance, or one below it, belongs to; what is hashed is no one's."""
    return instance.partition(":")[0]
