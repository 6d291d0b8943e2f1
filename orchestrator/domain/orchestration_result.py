"""How a code workflow's output and failure travel through Durable Functions.

Durable keeps an output as JSON of its own making (dates are written anew, numbers parsed), and of a
failure only a text, wrapped in others. So the output is JSON *text* within an envelope, and the
failure is told twice: for people, and encoded where no quoting can reach it.

    output   {"v": 1, "output"} | {"v": 1, "outputRef"}
    failure  TYPE: message [weft:BASE64URL]
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Final

from orchestrator.domain import jsonvalues
from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.orchestration import MAX_INSTANCE_CHARS, MAX_ROOT_CHARS
from orchestrator.domain.payload import Payload

VERSION: Final = 1
MAX_STEP_BYTES: Final = 512 * 1024
"""The most that one step may hand over: JSON text, of an activity's input or output, a signal, a
workflow's output. Durable keeps all of it in the instance's history and reads that at every turn;
its scheduler takes messages of 1 MB, in which quotes count twice."""
MAX_FAILURE_BYTES: Final = 4 * 1024
"""Of a failure in transit; it comes twice in what Durable tells."""

HASH_CHARS: Final = MAX_INSTANCE_CHARS - MAX_ROOT_CHARS - len(":~")
_STEPS: Final = re.compile(rf"(?::(?:[0-9]+\.[0-9]+|~[a-z2-7]{{{HASH_CHARS}}}))+$")
_MARK: Final = re.compile(r"\[weft:([A-Za-z0-9_=-]+)\]")


def step_too_large(what: str, size: int) -> str:
    """Why `what`, of `size` bytes of JSON, is refused, and the way out."""
    return (
        f"{what} has {size} bytes of JSON, one step of a code workflow may have {MAX_STEP_BYTES}; "
        "store the data elsewhere and pass a reference"
    )


def is_below(parent: str, id: str) -> bool:
    """Whether `id` is a `child_id` of `parent`, or one of such a child: the next instance of the
    same task also begins with the id of the first."""
    return id.startswith(f"{parent}:") and _STEPS.fullmatch(id, len(parent)) is not None


def child_id(parent: str, generation: int, number: int) -> str:
    """Id of the instance that is step `number` of a generation of `parent`. All below the instance
    of a task are found by its id as a prefix, and a colon: Durable itself ends and deletes only the
    one that it is told of. Where the whole way would be too long, its hash stands in its place."""
    plain = f"{parent}:{generation}.{number}"
    if len(plain) <= MAX_INSTANCE_CHARS:
        return plain
    way = _STEPS.search(parent)
    root = parent if way is None else parent[: way.start()]
    digest = base64.b32encode(hashlib.sha256(plain.encode()).digest()).decode().lower()
    return f"{root}:~{digest[:HASH_CHARS]}"


def encode_output(text: str | None, ref: Payload | None = None) -> str:
    """What the orchestrator function returns: `text` (JSON) as it is, or where it is stored."""
    if ref is not None:
        return jsonvalues.dumps({"v": VERSION, "outputRef": ref.to_doc()}).decode()
    return f'{{"v":{VERSION},"output":{text or "null"}}}'


def decode_output(output: str | None) -> tuple[str | None, Payload | None]:
    """JSON text of the output, or where it is stored. `output` as the port tells it: JSON text of
    what Durable kept. What no code workflow of Weft returned is taken as it is."""
    doc = _envelope(output)
    if doc is None:
        return output, None
    ref = doc.get("outputRef")
    if isinstance(ref, dict):
        return None, Payload.from_doc(ref)
    return jsonvalues.dumps(doc.get("output")).decode(), None


def _envelope(output: str | None) -> dict[str, Json] | None:
    try:
        value: Json = jsonvalues.loads(output or "null")
        if isinstance(value, str):
            value = jsonvalues.loads(value)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("v") != VERSION:
        return None
    return value if "output" in value or "outputRef" in value else None


def failure_text(failure: Failure) -> str:
    """The message of the exception that ends an activity or an orchestrator function."""
    short = failure.bounded(MAX_FAILURE_BYTES)
    mark = base64.urlsafe_b64encode(jsonvalues.dumps(short.to_doc())).decode()
    return f"{short.type}: {short.message} [weft:{mark}]"


def failure_from(text: str | None) -> Failure | None:
    """Inverse of `failure_text`, whatever Durable has put around it; None if it is not there."""
    found = _MARK.search(text or "")
    if found is None:
        return None
    try:
        return Failure.from_doc(jsonvalues.loads(base64.urlsafe_b64decode(found[1])))  # type: ignore[arg-type]
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return None
