"""Reading and checking an HTTP request: which trace, which body, which parameters.

Every refusal is made here, with what was expected, so that handlers see only checked values. A
parameter nobody knows is refused too: a mistyped filter would otherwise list everything.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import azure.functions as func
from pydantic import BaseModel, ValidationError

from orchestrator.domain.errors import (
    ErrorDetail,
    InvalidError,
    MalformedError,
    TooLargeError,
    UnsupportedMediaError,
    WeftError,
)
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import child_path
from orchestrator.domain.nearest import Nearest
from orchestrator.domain.parsing import parse_json, parse_json_items, parse_yaml
from orchestrator.domain.topology import MAX_BODY_BYTES
from orchestrator.engine.control import MAX_REASON_CHARS
from orchestrator.engine.origin import Origin

JSON_TYPES: Final = ("application/json",)
YAML_TYPES: Final = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
MAX_KEY_CHARS: Final = 255
OFF_LOOP_BYTES: Final = 16 * 1024
MAX_FINDINGS: Final = 100  # shown of one body
MAX_ADDRESS_CHARS: Final = 60  # of a client: IPv6 with its port has 47
SHOWN_CHARS: Final = 200  # of a text that somebody sent

# W3C Trace Context, version 00; ids of only zeros are invalid there.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)

ModelT = TypeVar("ModelT", bound=BaseModel)

REASON_HEADER: Final = "X-Weft-Reason"


# --- which trace ---------------------------------------------------------------------------------


def origin(req: func.HttpRequest, trace_id: str) -> Origin:
    """Where the request came from. The address is the last one of `X-Forwarded-For`: the platform
    in front appends it, whatever the client itself has sent. Cut to a printable line."""
    last = req.headers.get("x-forwarded-for", "").rpartition(",")[2]
    return Origin(
        address=_line(last, MAX_ADDRESS_CHARS),
        agent=_line(req.headers.get("user-agent", ""), SHOWN_CHARS),
        trace=trace_id,
        reason=_line(unquote(req.headers.get(REASON_HEADER, "")), MAX_REASON_CHARS),
    )


def _line(text: str, most: int) -> str:
    return "".join(sign for sign in text[: most * 2] if sign.isprintable()).strip()[:most]


@dataclass(frozen=True, slots=True)
class Trace:
    """`id` names this request in answers and logs; `parent` is the caller's `traceparent`, empty
    if there was none (or not a well-formed one)."""

    id: str
    parent: str = ""


def trace(req: func.HttpRequest) -> Trace:
    """The caller's trace, or a new one."""
    given = req.headers.get("traceparent", "").strip()
    match = _TRACEPARENT.fullmatch(given)
    if match is None:
        return Trace(secrets.token_hex(16))
    return Trace(match[1], given)


def under(trace: Trace, traceparent: str) -> Trace:
    """The request's trace under a span of ours: what is recorded is found by the id in answers."""
    match = _TRACEPARENT.fullmatch(traceparent)
    return trace if match is None else Trace(match[1], traceparent)


def idempotency_key(req: func.HttpRequest) -> str | None:
    """`Idempotency-Key` or `X-Idempotency-Key`: 1 to 255 printable characters, or None.

    Raises `MalformedError` if it is not that, or if both are there and differ.
    """
    names = ("Idempotency-Key", "X-Idempotency-Key")
    given = {name: req.headers[name].strip() for name in names if name in req.headers}
    if len(set(given.values())) > 1:
        raise _bad_header(names[0], f"{names[0]} and {names[1]} differ; send one of them")
    for name, key in given.items():
        if not (0 < len(key) <= MAX_KEY_CHARS and key.isprintable()):
            raise _bad_header(name, f"{name} must be 1 to {MAX_KEY_CHARS} printable characters")
        return key
    return None


def _bad_header(name: str, message: str) -> MalformedError:
    return MalformedError(
        message, code="INVALID_HEADER", details=(ErrorDetail(name, message, code="INVALID_HEADER"),)
    )


# --- parameters -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A path, query or header parameter: how it is documented and how it is read.

    `read` turns the text into the value and raises `ValueError` with what was expected.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    read: Callable[[str], Any] = str
    default: Any = None
    example: Any = None


def read_params(
    known: Sequence[Param], given: Mapping[str, str], *, what: str = "query parameter"
) -> dict[str, Any]:
    """Values by name, defaults filled in. Every fault is listed, not only the first.

    Raises `MalformedError` (INVALID_PARAMETER, or UNKNOWN_PARAMETER if that is all).
    """
    values: dict[str, Any] = {param.name: param.default for param in known}
    faults: list[ErrorDetail] = []
    hints = Nearest()
    by_name = {param.name: param for param in known}
    for name, text in given.items():
        param = by_name.get(name)
        if param is None:
            hint = nearest(name, by_name, hints=hints)
            name = shorten(name)
            faults.append(
                ErrorDetail(name, f"unknown {what} '{name}'", code="UNKNOWN_PARAMETER", hint=hint)
            )
            continue
        try:
            values[name] = param.read(text)
        except ValueError as error:
            faults.append(ErrorDetail(name, str(error), code="INVALID_PARAMETER"))
    if faults:
        codes = {fault.code for fault in faults}
        raise MalformedError(
            "; ".join(_sentence(fault) for fault in faults[:3]),
            code=codes.pop() if len(codes) == 1 else "INVALID_PARAMETER",
            details=faults,
        )
    return values


def shorten(text: str) -> str:
    """`text` as it may be quoted in an answer."""
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…"


def _sentence(fault: ErrorDetail) -> str:
    text = fault.message if fault.code.startswith("UNKNOWN") else f"{fault.field}: {fault.message}"
    return f"{text} ({fault.hint})" if fault.hint else text


def nearest(name: str, known: Collection[str], *, hints: Nearest | None = None) -> str:
    """A hint with the nearest known name, or with all of them if none is near. `hints` bounds the
    work over many names."""
    close = (hints or Nearest()).hint(name, known)
    if close or not known:
        return close
    return f"known: {', '.join(sorted(known))}"


# --- body -----------------------------------------------------------------------------------------


def media_type(req: func.HttpRequest, allowed: Sequence[str]) -> str:
    """The content type without parameters, in lower case, one of `allowed`.

    Raises `UnsupportedMediaError` for any other, for none, and for a charset other than UTF-8.
    """
    header = req.headers.get("content-type", "")
    kind, *parameters = (part.strip() for part in header.split(";"))
    if kind.lower() not in allowed:
        named = f"'{kind}'" if kind else "without a Content-Type"
        raise UnsupportedMediaError(
            f"a body {named} is not read here; send Content-Type: {' or '.join(allowed)}",
            details=(ErrorDetail("Content-Type", "not one that this route reads"),),
        )
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        charset = value.strip().strip('"').lower()
        if key.strip().lower() == "charset" and charset not in ("utf-8", "utf8", "us-ascii"):
            raise UnsupportedMediaError(
                f"charset '{charset}' is not read here; send UTF-8",
                details=(ErrorDetail("Content-Type", "charset must be utf-8"),),
            )
    return kind.lower()


def raw_body(req: func.HttpRequest) -> bytes:
    """The body. Raises `TooLargeError` over 1 MiB."""
    body = req.get_body() or b""
    if len(body) > MAX_BODY_BYTES:
        raise TooLargeError(
            f"the body has {len(body)} bytes, at most {MAX_BODY_BYTES} are allowed; "
            "put large data where the workflow can fetch it and pass its address",
            code="BODY_TOO_LARGE",
        )
    return body


async def document(req: func.HttpRequest, allowed: Sequence[str]) -> Json:
    """The body as JSON or YAML, as its content type says. A large one is read in a thread: a
    megabyte of YAML takes a third of a second, and nobody else should wait for it.

    Raises `TooLargeError`, `UnsupportedMediaError`, `MalformedError`.
    """
    body = raw_body(req)
    kind = media_type(req, allowed)
    if not body.strip():
        raise MalformedError("the body is empty", code="EMPTY_BODY")
    parse = parse_yaml if kind in YAML_TYPES else parse_json
    if len(body) > OFF_LOOP_BYTES:
        return await asyncio.to_thread(parse, body)
    return parse(body)


async def items(req: func.HttpRequest, allowed: Sequence[str]) -> Json | list[Json | WeftError]:
    """The body as JSON, under one of the `allowed` content types; in a list, an element that cannot
    be read is its error (see `parse_json_items`). Raises as `document` does."""
    body = raw_body(req)
    media_type(req, allowed)
    if not body.strip():
        raise MalformedError("the body is empty", code="EMPTY_BODY")
    if len(body) > OFF_LOOP_BYTES:
        return await asyncio.to_thread(parse_json_items, body)
    return parse_json_items(body)


async def model(req: func.HttpRequest, kind: type[ModelT]) -> ModelT:
    """The JSON body as `kind`; an empty body is `{}`.

    Raises `TooLargeError`, `UnsupportedMediaError`, `MalformedError` and, with every finding,
    `InvalidError`.
    """
    value: Json = {} if not raw_body(req).strip() else await document(req, JSON_TYPES)
    if not isinstance(value, dict):
        hint = f"known fields: {', '.join(_names(kind))}"
        finding = ErrorDetail("$", "expected an object", code="INVALID_BODY", hint=hint)
        raise InvalidError(
            f"the body must be a JSON object ({hint})", code="INVALID_BODY", details=(finding,)
        )
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        # Bounded: a body of a megabyte can have a hundred thousand faults.
        found, hints = error.errors(include_url=False, include_input=False), Nearest()
        details = [_detail(finding, kind, hints) for finding in found[:MAX_FINDINGS]]
        raise InvalidError(
            f"the body has {len(found)} fault{'' if len(found) == 1 else 's'}: "
            + "; ".join(f"{detail.field}: {detail.message}" for detail in details[:3]),
            code="INVALID_BODY",
            details=details,
        ) from None


def _names(kind: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in kind.model_fields.items()]


def _detail(finding: Mapping[str, Any], kind: type[BaseModel], hints: Nearest) -> ErrorDetail:
    location: tuple[str | int, ...] = finding["loc"]
    path = reduce(child_path, location, "$")
    if finding["type"] == "extra_forbidden":
        name = str(location[-1])
        return ErrorDetail(
            path,
            f"unknown field '{shorten(name)}'",
            code="UNKNOWN_FIELD",
            hint=nearest(name, _names(kind), hints=hints),
        )
    # Our own validators raise `ValueError`; that word in front says nothing to who reads it.
    return ErrorDetail(path, finding["msg"].removeprefix("Value error, "), code="INVALID_FIELD")
