"""Text put into a URL stays data: it cannot add a path segment, a query or another host.

A URL is a template, `https://pay.example/charges/${tasks.charge.output.body.id}`; every value is
encoded before it is pasted. Without this an id such as `../admin?x=` would choose the resource.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from orchestrator.domain.failure import scrub

_DOTS: Final = frozenset({".", ".."})


def encode_part(text: str) -> str:
    """`text` percent-encoded for use inside one part of a URL.

    Only the unreserved characters of RFC 3986 section 2.3 stay (letters, digits, `-._~`);
    everything else becomes the percent-encoding of its UTF-8 bytes, lone surrogates as U+FFFD. A
    part that is `.` or `..` gets its dots encoded, so that no client takes it for a step in the
    path. Some servers decode before they resolve dots; the `http` activity therefore refuses a
    whole URL whose path holds such a segment.

    Raises `ValueError` for an empty text: `…/charges/` instead of `…/charges/7` names the whole
    collection, which no DELETE should meet by accident.
    """
    if not text:
        raise ValueError("an empty text cannot be part of a url: it would name something else")
    if text in _DOTS:
        return "%2E" * len(text)
    return quote(scrub(text), safe="")
