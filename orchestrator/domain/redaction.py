"""Takes known values out of texts and JSON, also where somebody has encoded them.

A service that is sent a secret may echo it: in a header, in an error text, percent-encoded, in
base64 at any offset. What an attempt leaves behind (output, failure, progress, log records) passes
here first. Anything that transforms a value (a hash, encryption, compression, reversal) hides it
from this search, and so does a value of fewer than `MIN_CHARS` characters: taking every "7" out of
an answer would destroy the answer and protect nothing.

A value is found case-insensitively, character by character, each of them raw or in any of the usual
escapes (percent, JSON, HTML, quoted-printable, a wrong charset), mixed at will; and as a whole in
base64 and hexadecimal.
"""

from __future__ import annotations

import html.entities
import re
import unicodedata
from base64 import b64encode
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from orchestrator.domain import jsonvalues
from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json

MASK: Final = "***"
"""What people see in place of a secret or a sensitive value."""
MIN_CHARS: Final = 6
PIECE_CHARS: Final = 96
"""A longer value is found piece by piece: so is a part of it, cut off or wrapped into lines."""

_ANCHOR: Final = re.compile(r"[A-Za-z0-9]+")
_SHORT_ESCAPES: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_BREAK: Final = r"(?:\\+[rn]|%0[ad]|\s)*"  # lines of base64
_ANCHOR_CHARS: Final = 12
_LONGEST_ESCAPE: Final = 24  # characters
_BASE64: Final = {
    "+": r"(?:[+-]|%(?:25)*2b|\\+u002b)",
    "/": r"(?:[/_]|\\+/|%(?:25)*2f|\\+u002f)",
}
_NAMED: Final = {39: "apos", 43: "plus", 47: "sol", 61: "equals"} | html.entities.codepoint2name


class Redactor:
    """Replaces what it knows by `MASK`. Immutable, usable from any thread; shows no value."""

    __slots__ = ("_forms", "_plain", "_values")

    def __init__(self, values: Iterable[str] = (), *, plain: Iterable[str] = ()) -> None:
        """`values`: those of fewer than `MIN_CHARS` characters are left alone. `plain`: others,
        found as they are only: many may come and go, and patterns of each would cost too much."""
        self._plain = frozenset(value for value in plain if len(value) >= MIN_CHARS)
        self._values = frozenset(value for value in values if len(value) >= MIN_CHARS)
        ordered = sorted(self._values, key=len, reverse=True)
        self._forms = [form for value in ordered for form in _compiled(value)]

    def __bool__(self) -> bool:
        return bool(self._values or self._plain)

    def __repr__(self) -> str:
        return f"Redactor({len(self._values)} values)"

    def text(self, text: str) -> str:
        """`text` without the values."""
        for value in self._plain:
            text = text.replace(value, MASK)
        if not self._values:
            return text
        lower = _lower(text)
        for form in self._forms:
            if any(anchor in lower for anchor in form.anchors):
                text = form.replaced(text, lower)
                lower = _lower(text)
        return text

    def value(self, value: Json) -> Json:
        """`value` without them, in keys too; the same object if there are none. A number that is
        written like a value becomes `MASK`."""
        return self._walk(value) if self else value

    def data(self, data: bytes) -> bytes:
        """JSON text, likewise (but for those that are `plain`)."""
        lower = data.decode().lower()  # of JSON: escapes of `"` and `\\` only, in no anchor
        if not any(anchor in lower for form in self._forms for anchor in form.anchors):
            return data
        return jsonvalues.dumps(self._walk(jsonvalues.loads(data)))

    def failure(self, failure: Failure) -> Failure:
        """A failure and its causes, likewise."""
        if not self:
            return failure
        return replace(
            failure,
            type=self.text(failure.type),
            message=self.text(failure.message),
            causes=tuple(self.failure(cause) for cause in failure.causes),
        )

    def _walk(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._walk(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._walk(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if jsonvalues.dumps(value).decode() in self._values else value
        return value


NOTHING: Final = Redactor()
_current: ContextVar[Redactor] = ContextVar("redactor", default=NOTHING)


def current() -> Redactor:
    """The one of the attempt that runs here, for log records."""
    return _current.get()


@contextmanager
def redacting(redactor: Redactor) -> Generator[None]:
    """`current()` inside, also in the tasks and threads that take over this context."""
    token = _current.set(redactor)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass(frozen=True, slots=True)
class _Form:
    """One way of writing a value. Every text that holds it has one of `anchors` (lower case)
    within `reach` characters: a cheap search tells where the costly one need look."""

    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    reach: int

    def replaced(self, text: str, lower: str) -> str:
        parts: list[str] = []
        done = 0
        for start, end in self._windows(lower):
            parts += [text[done:start], self.pattern.sub(MASK, text[start:end])]
            done = end
        return "".join([*parts, text[done:]])

    def _windows(self, lower: str) -> list[tuple[int, int]]:
        found = sorted(at for anchor in self.anchors for at in _positions(lower, anchor))
        windows: list[tuple[int, int]] = []
        for at in found:
            start, end = max(0, at - self.reach), min(len(lower), at + self.reach)
            if windows and start <= windows[-1][1]:
                windows[-1] = (windows[-1][0], end)
            else:
                windows.append((start, end))
        return windows


def _positions(text: str, anchor: str) -> Iterator[int]:
    at = text.find(anchor)
    while at >= 0:
        yield at
        at = text.find(anchor, at + max(1, len(anchor)))


def _lower(text: str) -> str:
    """Of the same length: one letter has a lower case of two characters."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text.replace("\u0130", "i").lower()


@lru_cache(maxsize=256)
def _compiled(value: str) -> list[_Form]:
    return [form for piece in _pieces(value) for form in _forms(piece, len(value))]


def _forms(piece: str, chars: int) -> Iterator[_Form]:
    """The ways of writing `piece`, of a value of `chars` characters: of a long one (a key, a
    certificate) fewer are known, to keep its patterns small."""
    long = chars > PIECE_CHARS
    yield _form(_anchors(piece), [_spelled_char(char, long) for char in piece], _LONGEST_ESCAPE)
    if host := _host(piece):
        yield _form({host}, [re.escape(host)], len(host))
    for data in [piece.encode(errors="replace")] if long else _byte_forms(piece):
        text = data.hex()
        pairs = [text[at : at + 2] for at in range(0, len(text), 2)]
        yield _form({text[:2]}, pairs, 4, r"[:,\s-]?")
        for offset in range(3):
            start, end = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
            core = b64encode(b"\0" * offset + data).decode()[start:end]
            # A line break may cut one half of it, not both.
            half = len(core) // 2
            anchors = {_run(core[:half]), _run(core[half:])}
            spelled = [_BASE64.get(char, char) for char in core]
            yield _form(anchors, spelled, 8, "" if long else _BREAK)


def _form(anchors: Iterable[str], parts: Sequence[str], widest: int, between: str = "") -> _Form:
    pattern = re.compile(between.join(parts), re.IGNORECASE)
    return _Form(tuple(anchors), pattern, 64 + widest * len(parts))


def _pieces(value: str) -> list[str]:
    if len(value) <= PIECE_CHARS:
        return [value]
    pieces = [value[at : at + PIECE_CHARS] for at in range(0, len(value), PIECE_CHARS)]
    if len(pieces[-1]) < MIN_CHARS:
        pieces[-1] = value[-PIECE_CHARS:]
    return pieces


def _run(text: str) -> str:
    """The longest run of letters and digits, which most encoders leave alone."""
    return max(_ANCHOR.findall(text), key=len, default="")[:_ANCHOR_CHARS].lower()


def _anchors(text: str) -> set[str]:
    """One of them is in every spelling of `text`: a run, or the beginning with all escaped."""
    code, byte = ord(text[0]), text[0].encode(errors="replace")[0]
    escaped = {f"%{byte:02x}", f"25{byte:02x}", f"x{byte:02x}", f"={byte:02x}"}
    return {_run(text), f"u{code:04x}", f"u{{{code:x}", f"x{code:x};", f"#{code};", *escaped}


def _host(value: str) -> str:
    """What a name server is asked for where the value begins a URL's host; "" if nothing else."""
    label = re.split(r"[/?#:@.]", value, maxsplit=1)[0].lower()
    return "" if label.isascii() else f"xn--{label.encode('punycode').decode()}"


def _byte_forms(value: str) -> set[bytes]:
    """What may have been written in base64 or hexadecimal in place of `value`."""
    plain = value.encode(errors="replace")
    forms = {plain, value.encode("utf-16-le", errors="replace")}
    forms.add(quote(value, safe="", errors="replace").encode())
    if all(ord(char) < 256 for char in value):
        forms.add(value.encode("latin-1"))
    forms.add(b64encode(plain).rstrip(b"="))  # wrapped twice
    return forms


@lru_cache(maxsize=4096)
def _spelled_char(char: str, long: bool) -> str:
    """A pattern of one character, raw or escaped. Case does not count. `long`: letters and digits
    are not escaped."""
    if long and char.isascii() and char.isalnum():
        return char
    code = ord(char)
    data = char.encode(errors="replace")
    forms = [re.escape(char)]
    forms.append("".join(f"%(?:25)*{byte:02x}" for byte in data))
    units = [code] if code < 0x10000 else _surrogates(code)
    forms.append("".join(rf"\\+u\{{?0*{unit:x}\}}?" for unit in units))
    forms.append("".join(rf"(?:\\+x|=){byte:02x}" for byte in data))
    forms.append(rf"&(?:amp;)*#(?:0*{code}|x0*{code:x});")
    if name := _NAMED.get(code):
        forms.append(f"&(?:amp;)*{name};")
    if char in _SHORT_ESCAPES:
        forms.append(rf"\\+{_SHORT_ESCAPES[char]}")
    if char in "\"'\\/":
        forms.append(r"\\+" + re.escape(char))
    if char == " ":
        forms.append(r"\+")
    if code > 127:
        wrong = ("latin-1", "cp1252")
        forms += [re.escape(data.decode(charset, errors="replace")) for charset in wrong]
        forms.append(re.escape(unicodedata.normalize("NFD", char)))
        forms.append(rf"[?\ufffd]{{1,{len(data)}}}")
    unique = list(dict.fromkeys(forms))
    return f"(?:{'|'.join(unique)})"


def _surrogates(code: int) -> list[int]:
    code -= 0x10000
    return [0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)]
