"""The request of an `http` task: its shape, and every check before a byte leaves the process.

Its parts come from templates, so each may hold a caller's data. Data must stay data: it cannot add
a header, climb out of the path, choose another host or break out of the JSON body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import httpx
from pydantic import BaseModel, ConfigDict, Field

from activities.context import Context
from activities.errors import PermanentError
from orchestrator.domain import redaction
from orchestrator.domain.jsonvalues import dumps

INVALID: Final = "HttpRequestInvalid"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BODILESS: Final = frozenset({"GET", "HEAD"})
MAX_URL_CHARS: Final = 8192  # servers commonly stop at 8 KiB for the whole request line

REFUSED_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""They frame the message or choose the peer: the client sets them, or requests can be smuggled."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # RFC 9110 section 5.6.2
_HEADER_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # all but tab
_URL_UNSAFE: Final = re.compile(r"[\s\x00-\x20\x7f-\x9f\\\ud800-\udfff]")
_CODES: Final = re.compile(r"([1-5][0-9]{2})(?:\s*-\s*([1-5][0-9]{2}))?\Z")
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h)\Z")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

Scalar = str | int | float | bool | None


class HttpRequest(BaseModel):
    """What a definition writes under `request`, after its expressions were resolved.

    `headers`, `query`: a null leaves the entry out; a list in `query` repeats it. `body`: any JSON,
    sent as JSON; text with a content type that is not JSON is sent as it is. `successCodes`: codes
    or ranges such as `"200-299"`. `timeout`: of the whole exchange, seconds or `500ms 30s 5m`.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    method: str = "GET"
    url: str
    headers: dict[str, Scalar] = Field(default_factory=dict[str, Scalar])
    query: dict[str, Scalar | list[Scalar]] = Field(
        default_factory=dict[str, "Scalar | list[Scalar]"]
    )
    body: Any = None
    success_codes: list[int | str] = Field(default=["200-299"], alias="successCodes", min_length=1)
    timeout: float | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request that is safe to send."""

    method: str
    url: httpx.URL
    headers: dict[str, bytes]  # lower-case names
    content: bytes | None
    success: tuple[range, ...]
    timeout: float | None  # seconds
    label: str
    """Method, host and port, for messages; paths, queries and users may hold secrets."""


def prepare(request: HttpRequest, ctx: Context) -> Prepared:
    """Check and assemble. Raises `PermanentError` of type HttpRequestInvalid."""
    method = request.method.upper()
    if method not in METHODS:
        raise invalid(f"method {method[:20]!r} is not one of {', '.join(sorted(METHODS))}")
    headers = _headers(request.headers)
    content = _content(request, method, headers)
    for name, value in (
        ("idempotency-key", ctx.idempotency_key),
        ("traceparent", ctx.traceparent),
    ):
        if value and name not in headers:
            headers[name] = _header_value(name, value)
    url = checked_url(_with_query(request.url, request.query))
    return Prepared(
        method=method,
        url=url,
        label=f"{method} {_shown_host(url, request.url)}",
        headers=headers,
        content=content,
        success=tuple(_code_range(code) for code in request.success_codes),
        timeout=_timeout(request.timeout),
    )


def _shown_host(url: httpx.URL, text: str) -> str:
    """Host and port; masked if they are made of a secret, which may be spelled otherwise by now."""
    host = url.netloc.decode()
    redactor = redaction.current()
    if redactor and host.lower() not in redactor.text(text).lower():
        return redaction.MASK
    return host


def checked_url(text: str) -> httpx.URL:
    """The URL, if it is absolute http(s), without credentials, control characters, white space and
    backslashes, and if its path has no `.` or `..` segment even after percent-decoding (servers
    differ in which they do first). Raises `PermanentError`."""
    if len(text) > MAX_URL_CHARS:
        raise invalid(f"the url is longer than {MAX_URL_CHARS} characters")
    if _URL_UNSAFE.search(text):
        raise invalid("the url holds white space, a control character or a backslash")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        raise invalid("the url must start with http:// or https://")
    authority, path = re.match(r"([^/?#]*)([^?#]*)", rest).groups()  # type: ignore[union-attr]
    if "@" in authority:
        raise invalid("the url holds credentials; send them in a header, from `secrets`")
    if "%" in authority:
        raise invalid("the host of the url holds percent-encoded characters")
    if any(s.partition(";")[0] in (".", "..") for s in re.split(r"[/\\]", unquote(path))):
        raise invalid("the path of the url holds a `.` or `..` segment")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        raise invalid("the url cannot be parsed") from None
    check_target(url)
    return url


def check_target(url: httpx.URL) -> None:
    """Refuse everything but http(s) to a named host without credentials; also for redirects."""
    if url.scheme not in ("http", "https") or not url.host:
        raise invalid("the url must name a host and start with http:// or https://")
    if url.userinfo:
        raise invalid("the url holds credentials")
    if url.port is not None and not 0 < url.port < 65536:
        raise invalid("the port of the url is out of range")


def is_json(content_type: str) -> bool:
    """Whether a content type means JSON (`application/json`, `…+json`)."""
    media = content_type.partition(";")[0].strip().lower()
    return media == "application/json" or ("/" in media and media.endswith("+json"))


def invalid(reason: str) -> PermanentError:
    """The failure of a request that must not be sent."""
    return PermanentError(f"the request was not sent: {reason}", type=INVALID)


def _headers(given: dict[str, Scalar]) -> dict[str, bytes]:
    headers: dict[str, bytes] = {}
    for name, value in given.items():
        lower = name.lower()
        if not _TOKEN.match(name):
            raise invalid(f"{name[:64]!r} is not a header name")
        if lower in REFUSED_HEADERS:
            raise invalid(f"header {name} is set by Weft alone")
        if lower in headers:
            raise invalid(f"header {name} is given twice")
        if value is not None:
            headers[lower] = _header_value(name, _text(value))
    return headers


def _header_value(name: str, value: str) -> bytes:
    if _HEADER_CONTROL.search(value):
        raise invalid(f"the value of header {name} holds a line break or control character")
    return value.strip(" \t").encode(errors="replace")


def _content(request: HttpRequest, method: str, headers: dict[str, bytes]) -> bytes | None:
    if "body" not in request.model_fields_set:
        return None
    if method in BODILESS:
        if request.body is None:
            return None
        raise invalid(f"{method} has no body; use `query`")
    content_type = headers.setdefault("content-type", b"application/json").decode()
    if is_json(content_type):
        return dumps(request.body)
    if isinstance(request.body, str):
        return request.body.encode(errors="replace")
    raise invalid("a body with a content type other than JSON must be text")


def _with_query(url: str, query: dict[str, Any]) -> str:
    """`url` with `query` added to the query that it has; a fragment is never sent."""
    pairs = [
        (name, _text(value))
        for name, values in query.items()
        for value in (values if isinstance(values, list) else [values])
        if value is not None
    ]
    base = url.partition("#")[0]
    if not pairs:
        return base
    joint = "?" if "?" not in base else "" if base[-1] in "?&" else "&"
    return base + joint + urlencode(pairs, quote_via=quote, safe="", errors="replace")


def _text(value: str | int | float | bool) -> str:
    """As JSON writes it, so that `true` does not become `True`; text as it is."""
    return value if isinstance(value, str) else dumps(value).decode()


def _code_range(code: int | str) -> range:
    found = _CODES.match(str(code).strip())
    if not found:
        raise invalid(f"success code {str(code)[:20]!r} is not a status or a range like '200-299'")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise invalid(f"success codes {first}-{last} run backwards")
    return range(first, last + 1)


def _timeout(value: float | str | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        found = _DURATION.match(value.strip())
        value = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < value < 1e9:
        raise invalid("timeout must be a positive number of seconds or text like `500ms 30s 5m`")
    return value
