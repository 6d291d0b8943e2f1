"""Route templates of HTTP triggers, and which function a request is for.

Like the real host's routing where it matters: routes are tried in the order given (the host sorts
functions by name, specific or not), letter case of literals is ignored, a trailing slash too, and a
percent-encoded slash never splits a segment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

T = TypeVar("T")

_LITERAL: Final = re.compile(r"[A-Za-z0-9._~-]+")
_PARAMETER: Final = re.compile(r"{(\*?)([A-Za-z_][A-Za-z0-9_]*)}")
_LITERAL_RANK, _PARAMETER_RANK, _REST_RANK = 0, 1, 2


class BadPath(ValueError):
    """The path of a request is not UTF-8 once its percent-encoding is undone."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. Each segment is (rank, lower-case text or parameter name)."""

    text: str
    segments: tuple[tuple[int, str], ...]

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        """Parameters, decoded once; None if `parts` do not fit. Raises `BadPath`."""
        found: dict[str, str] = {}
        for position, (rank, name) in enumerate(self.segments):
            if rank == _REST_RANK:
                found[name] = "/".join(decode(part) for part in parts[position:])
                return found
            if position >= len(parts):
                return None
            value = decode(parts[position])
            if rank == _PARAMETER_RANK:
                if not value:
                    return None
                found[name] = value
            elif value.lower() != name:
                return None
        return found if len(parts) == len(self.segments) else None


def parse(text: str) -> Template:
    """Understand a template such as `v1/executions/{id}` or `{*path}`. Raises `ValueError` for
    forms that this host does not serve (constraints, optional or partial segments)."""
    segments: list[tuple[int, str]] = []
    pieces = text.split("/") if text else []
    for position, piece in enumerate(pieces):
        if _LITERAL.fullmatch(piece):
            segments.append((_LITERAL_RANK, piece.lower()))
            continue
        parameter = _PARAMETER.fullmatch(piece)
        if parameter is None:
            raise ValueError(f"route {text!r}: the segment {piece!r} is not served here")
        if any(rank and name == parameter[2] for rank, name in segments):
            raise ValueError(f"route {text!r}: {parameter[2]} appears twice")
        if parameter[1] and position != len(pieces) - 1:
            raise ValueError(f"route {text!r}: a catch-all must be the last segment")
        segments.append((_REST_RANK if parameter[1] else _PARAMETER_RANK, parameter[2]))
    return Template(text, tuple(segments))


def decode(part: str) -> str:
    """One path segment with its percent-encoding undone, once. Raises `BadPath`."""
    try:
        # Bytes that were not ASCII in the request line are surrogates in `part`.
        return unquote_to_bytes(part.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeError as error:
        raise BadPath("a segment of the path is not UTF-8") from error


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The target of a request, with its route parameters."""

    target: T
    params: dict[str, str]


class RouteTable(Generic[T]):
    """All routes, in the order in which they are tried."""

    def __init__(self) -> None:
        self._routes: list[tuple[Template, frozenset[str], T]] = []

    def add(self, template: Template, methods: frozenset[str], target: T) -> None:
        """Add a route. Raises `ValueError` if another takes the same requests."""
        for other, taken, _ in self._routes:
            if _shape(other) == _shape(template) and taken & methods:
                raise ValueError(
                    f"route {template.text!r} takes the same requests as {other.text!r}"
                )
        self._routes.append((template, methods, target))

    def find(self, method: str, path: str) -> Found[T] | frozenset[str]:
        """The target for `method` and raw `path`; else the methods that this path has (none: it is
        unknown). Raises `BadPath`."""
        body = path.removeprefix("/").removesuffix("/")
        parts = body.split("/") if body else []
        allowed: set[str] = set()
        for template, methods, target in self._routes:
            params = template.match(parts)
            if params is None:
                continue
            if method in methods:
                return Found(target, params)
            allowed |= methods
        return frozenset(allowed)


def _shape(template: Template) -> tuple[tuple[int, str], ...]:
    return tuple((rank, "" if rank else text) for rank, text in template.segments)
