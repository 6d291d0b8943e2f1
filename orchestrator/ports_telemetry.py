"""The seam to tracing and to what exports metrics. Small, so that the engine knows no SDK.

A trace is named by its W3C `traceparent`, the text that travels in messages and stored documents.
Without a tracer it is handed on unchanged, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

Kind: TypeAlias = Literal["internal", "server", "client", "producer", "consumer"]
Attributes: TypeAlias = Mapping[str, str | int | bool]
"""Names and ids only: what travels in payloads may be personal or secret."""


TRACEPARENT_CHARS: Final = 55


def is_sampled(traceparent: str) -> bool:
    """Whether this trace is recorded, as its begin decided; never one that is not well-formed."""
    return len(traceparent) == TRACEPARENT_CHARS and traceparent[-1] in "13579bdf"


class Span(Protocol):
    """A piece of work in progress. `traceparent` is what it hands on to the work it causes, ""
    if there is no trace; `recorded`: somebody will see it, so attributes are worth making."""

    @property
    def traceparent(self) -> str:
        """W3C trace context of this span."""
        ...

    @property
    def recorded(self) -> bool:
        """Whether somebody will see it."""
        ...

    def note(self, attributes: Attributes) -> None:
        """Add what became known meanwhile."""
        ...

    def fail(self, kind: str) -> None:
        """It failed, with an error of this type; the first one counts. Never its text, which may
        hold anything."""
        ...


class Tracer(Protocol):
    """Makes spans."""

    def span(
        self,
        name: str,
        *,
        parent: str = "",
        kind: Kind = "internal",
        links: Sequence[str] = (),
        about: Attributes | None = None,
    ) -> AbstractContextManager[Span]:
        """A span that ends with the context. `parent`: a traceparent; empty (or not a well-formed
        one) begins a new trace. `links`: traceparents of what else caused it. `about`: what it is
        about, as attributes `weft.NAME`. Whether a trace is recorded is decided at its begin."""
        ...

    async def close(self) -> None:
        """Export what is left, within seconds. Idempotent."""
        ...


class Passing:
    """The span of a trace that nobody records: hands its parent's context on, and costs nothing."""

    __slots__ = ("traceparent",)
    recorded = False

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def note(self, attributes: Attributes) -> None:
        """Nobody would see it."""

    def fail(self, kind: str) -> None:
        """Nobody would see it."""

    def __enter__(self) -> Passing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


class NoTracer:
    """Tracing is switched off."""

    def span(
        self,
        name: str,
        *,
        parent: str = "",
        kind: Kind = "internal",
        links: Sequence[str] = (),
        about: Attributes | None = None,
    ) -> AbstractContextManager[Span]:
        """See `Tracer`."""
        return Passing(parent)

    async def close(self) -> None:
        """There is nothing to export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """A metric, as an exporter declares it. `label`: name of its one label, "" if it has none.
    `bounds`: upper ends of a histogram's buckets."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    label: str = ""
    bounds: tuple[float, ...] = ()


class Listener(Protocol):
    """Hears each value of a histogram as it is observed."""

    def __call__(self, name: str, label: str, value: float) -> None:
        """`value` in seconds."""
        ...


class MetricSource(Protocol):
    """What a process counts."""

    def instruments(self) -> Iterable[Instrument]:
        """All there are."""
        ...

    def read(self, name: str) -> Mapping[str, float]:
        """Values of a counter or gauge by label value ("" if it has no label). Any thread."""
        ...

    def listen(self, heard: Listener) -> None:
        """From now on, tell every value of a histogram."""
        ...


@runtime_checkable
class Backlog(Protocol):
    """A broker that can say what waits in its queues."""

    async def oldest(self) -> Mapping[str, int]:
        """Of each queue with receivable messages: when the oldest of them became receivable (epoch
        ms). Raises `TransportError`."""
        ...


@runtime_checkable
class Pinging(Protocol):
    """A dependency that can be asked whether it answers, cheaply."""

    async def ping(self) -> None:
        """Raises any error if it does not answer."""
        ...
