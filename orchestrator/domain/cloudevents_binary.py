"""CloudEvents in the binary form: attributes in headers (HTTP) or properties (AMQP), data as the
body."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_to_bytes

from orchestrator.domain.cloudevents import CloudEvent, invalid, structured
from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.parsing import parse_json

HTTP_PREFIX: Final = "ce-"
AMQP_PREFIXES: Final = ("cloudEvents:", "cloudEvents_")
_JSON: Final = re.compile(r"(application|text)/(json|[a-z0-9.+-]*\+json)")
_TEXT: Final = re.compile(r"text/[a-z0-9.+-]+")
_UTF8: Final = frozenset({"", "utf-8", "utf8", "us-ascii"})


def from_http(headers: Iterable[tuple[str, str]], body: bytes) -> CloudEvent:
    """The event of a request whose headers begin with `ce-`. Values are percent-decoded, as the
    specification has it.

    Raises `MalformedError` with every finding, each under the header's name; `InvalidError`,
    `TooLargeError` as `parse_json` does."""
    attributes: dict[str, Json] = {}
    found: list[ErrorDetail] = []
    media = ""
    for header, text in headers:
        name = header.lower()
        if name == "content-type":
            media = text
        if not name.startswith(HTTP_PREFIX):
            continue
        name = name.removeprefix(HTTP_PREFIX)
        if name in attributes:
            found.append(ErrorDetail(header, f"`{header}` stands twice", "DUPLICATE_KEY"))
        elif (value := _decoded(text)) is None:
            found.append(ErrorDetail(header, "must be UTF-8 once decoded", "NOT_UTF8"))
        else:
            attributes[name] = value
    return _event(attributes, media, body, found)


def from_amqp(properties: Iterable[tuple[str, str]], media: str, body: bytes) -> CloudEvent | None:
    """The event of a message whose properties begin with `cloudEvents:` (or `cloudEvents_`); None
    if none does. `media`: its content type. Raises as `from_http` does."""
    attributes: dict[str, Json] = {}
    for key, value in properties:
        for prefix in AMQP_PREFIXES:
            if key.startswith(prefix):
                attributes[key.removeprefix(prefix)] = value
    return _event(attributes, media, body, []) if attributes else None


def _event(
    attributes: dict[str, Json], media: str, body: bytes, found: list[ErrorDetail]
) -> CloudEvent:
    for name in ("datacontenttype", "data", "data_base64"):
        if name in attributes:
            hint = "the content type says what the data is, the body is the data"
            text = f"`{name}` is no attribute of a binary event"
            found.append(ErrorDetail(f"$.{name}", text, "BAD_ATTRIBUTE", hint))
            del attributes[name]
    if found:
        raise invalid(found)
    if media.strip():
        attributes["datacontenttype"] = media.strip()
    structured(attributes)  # before the body, which may be long
    if body:
        name, value = _data(media, body)
        attributes[name] = value
    return structured(attributes)


def _data(media: str, body: bytes) -> tuple[str, Json]:
    """JSON as its value, text as text, anything else in base64."""
    kind, _, parameters = media.partition(";")
    kind = kind.strip().lower()
    charset = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", parameters, re.IGNORECASE)
    readable = (charset[1].lower() if charset else "") in _UTF8
    if readable and (not kind or _JSON.fullmatch(kind)):
        return "data", parse_json(body)
    if readable and _TEXT.fullmatch(kind):
        try:
            return "data", body.decode()
        except UnicodeDecodeError as error:
            text = f"the text is not UTF-8: byte {error.start} is not part of a character"
            raise invalid([ErrorDetail("$", text, "NOT_UTF8")]) from None
    return "data_base64", base64.b64encode(body).decode()


def _decoded(text: str) -> str | None:
    """A header's value: unquoted, percent-decoded; None if that is no UTF-8."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError:
        return None
