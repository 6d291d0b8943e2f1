"""Reads an answer that nobody vouches for: bounded in size, also after decompression, and kept
without loss as JSON.

httpx would inflate a chunk as a whole before anybody can count; 64 KiB of gzip may be 64 MiB. So
the raw stream is read and inflated here in steps.
"""

from __future__ import annotations

import math
import zlib
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx

from activities.errors import MAX_RETRY_AFTER_SECONDS, PermanentError, RetryableError
from activities.http_request import is_json
from orchestrator.domain.failure import FailureType
from orchestrator.domain.jsonvalues import NotJson, check_json, loads

RESPONSE_INVALID: Final = "HttpResponseInvalid"
ACCEPT_ENCODING: Final = "gzip, deflate"  # what `_Inflater` reads

_STEP: Final = 64 * 1024  # bytes inflated at a time
_GZIP_MAGIC: Final = b"\x1f\x8b"
_AUTO_HEADER: Final = 32 + zlib.MAX_WBITS  # zlib: gzip or zlib, by the header
_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252"})
"""Charsets that are read as declared. Python knows more under names that are no charset at all or
take quadratic time; text in another one is kept as base64."""


async def read_body(response: httpx.Response, limit: int) -> bytes:
    """The decoded body. Raises `PermanentError` PAYLOAD_TOO_LARGE beyond `limit` bytes, sent or
    inflated, and HttpResponseInvalid for an encoding that was not asked for; `RetryableError`
    HttpResponseInvalid for compressed data that is broken or cut off."""
    declared = response.headers.get("content-length", "")
    if response.request.method == "HEAD":
        return b""
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)
    encoding = response.headers.get("content-encoding", "identity").strip().lower() or "identity"
    if encoding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise PermanentError(
            f"the answer is encoded as {encoding[:40]!r}, which was not asked for",
            type=RESPONSE_INVALID,
        )
    inflater = None if encoding == "identity" else _Inflater()
    body, received = bytearray(), 0
    try:
        async for chunk in response.aiter_raw():
            received += len(chunk)
            for piece in inflater.feed(chunk) if inflater else (chunk,):
                body += piece
                if len(body) > limit:
                    raise _too_large(limit)
            if received > limit:  # compressed nothing, endlessly
                raise _too_large(limit)
        if inflater and received:
            body += inflater.end()
    except zlib.error:
        raise RetryableError(
            f"the answer's {encoding} data is broken", type=RESPONSE_INVALID
        ) from None
    return bytes(body)


def output_of(response: httpx.Response, body: bytes) -> dict[str, Any]:
    """`{"status", "headers", "body"}`; header names in lower case, repeated ones joined by commas.

    `body` is null if empty, the parsed value if the content type is JSON, else text. Where that
    would lose something `bodyEncoding` tells: `text` for JSON that cannot be kept exactly (NaN,
    integers beyond 64 bits, malformed, nested over 128 deep), `base64` for bytes that are not text
    in their charset. Such an answer is no failure: the request had its effect, and repeating it
    would not change the answer.
    """
    output: dict[str, Any] = {
        "status": response.status_code,
        "headers": {name.lower(): value for name, value in response.headers.items()},
        "body": None,
    }
    if not body:
        return output
    content_type = response.headers.get("content-type", "")
    json_body = is_json(content_type)
    text = _text(body, "utf-8" if json_body else _charset(content_type))
    if text is None:
        return output | {"body": b64encode(body).decode(), "bodyEncoding": "base64"}
    if not json_body:
        return output | {"body": text}
    try:
        return output | {"body": check_json(loads(text))}
    except (NotJson, ValueError, RecursionError):
        return output | {"body": text, "bodyEncoding": "text"}


def retry_after_seconds(value: str | None, now_ms: int) -> float | None:
    """The pause that a `Retry-After` header asks for (RFC 9110 section 10.2.3: seconds or an HTTP
    date), at most a day. None for a missing, malformed, negative, zero or past one."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:20])
    else:
        try:
            date = parsedate_to_datetime(text)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
        seconds -= now_ms / 1000
    if not math.isfinite(seconds) or seconds <= 0:
        return None
    return min(seconds, float(MAX_RETRY_AFTER_SECONDS))


class _Inflater:
    """gzip (any number of members) or deflate (with or without zlib header), in bounded steps."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(_AUTO_HEADER)
        self._started = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Inflate `data`, at most `_STEP` bytes at a time. Raises `zlib.error`."""
        while data:
            try:
                piece = self._zlib.decompress(data, _STEP)
            except zlib.error:
                if self._started:
                    raise
                # Some servers send `deflate` without the zlib header that RFC 9110 asks for.
                self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
                piece = self._zlib.decompress(data, _STEP)
            self._started = True
            yield piece
            if not self._zlib.eof:
                data = self._zlib.unconsumed_tail
            elif self._zlib.unused_data.startswith(_GZIP_MAGIC):
                data = self._zlib.unused_data
                self._zlib = zlib.decompressobj(_AUTO_HEADER)
            else:
                return  # padding after the end is ignored, as browsers do

    def end(self) -> bytes:
        """What is left (a few hundred bytes at most). Raises `zlib.error` if data was cut off."""
        rest = self._zlib.flush()
        if not self._zlib.eof:
            raise zlib.error("cut off")
        return rest


def _too_large(limit: int) -> PermanentError:
    return PermanentError(
        f"the answer is larger than {limit} bytes", type=FailureType.PAYLOAD_TOO_LARGE
    )


def _charset(content_type: str) -> str:
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'").lower()
    return "utf-8"


def _text(body: bytes, charset: str) -> str | None:
    if charset not in _CHARSETS:
        return None
    try:
        return body.decode("utf-8-sig" if charset in ("utf-8", "utf8") else charset)
    except UnicodeDecodeError:
        return None
