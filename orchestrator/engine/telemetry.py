"""Spans and the ids of log records: one context manager around each piece of work.

A context variable and not an argument, as in `origin`: whoever sends messages needs the span that
it works in, and whoever logs needs the ids, and neither should be handed them through a dozen use
cases. What goes in are names and ids, never what a payload holds.

    HTTP server span
      └ start                   its context is the execution's `traceparent`, for good
          ├ relay send          producer; what it sends carries it as `tracelink`
          ├ orchestrate         one per execution and batch, links to what sent its messages
          ├ execute             one per attempt, so retries are siblings
          │   ├ http            client; the called service continues it
          │   └ start           of a child, which so continues the parent's trace
          └ …
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, TypeAlias

from orchestrator.engine.incoming import Incoming
from orchestrator.ports_telemetry import Kind, NoTracer, Span, Tracer

TRACEPARENT: Final = "traceparent"
"""Property of a message: the trace of its execution."""
TRACELINK: Final = "tracelink"
"""Property of a message: the span that sent it, if that is recorded."""
MAX_LINKS: Final = 32

Ids: TypeAlias = Mapping[str, str | int]

_NONE: Final = NoTracer()
_SPAN: ContextVar[Span | None] = ContextVar("weft_span", default=None)
_IDS: ContextVar[tuple[Any, Ids] | None] = ContextVar("weft_ids", default=None)
"""Those of the innermost work, behind those of the work around it: joined only when asked for."""


def current() -> Span | None:
    """The span that this work is part of."""
    return _SPAN.get()


def traceparent(otherwise: str = "") -> str:
    """What the work in progress hands on; `otherwise` outside of every span."""
    span = _SPAN.get()
    return span.traceparent if span is not None else otherwise


def ids() -> dict[str, str | int]:
    """What a log record of this work is about: `tenant`, `execution`, `task`, `item`, `attempt`
    as far as there are, and `trace_id`, `span_id`."""
    found: dict[str, str | int] = {}
    known = _IDS.get()
    while known is not None:
        known, given = known
        found = {**given, **found}
    parts = traceparent().split("-")
    if len(parts) == 4:
        found["trace_id"], found["span_id"] = parts[1], parts[2]
    return found


class span:
    """Work under a span of this name, whose log records carry `about`; an exception fails it.

    Without a `parent` there is only a span if it may begin a trace (`root`): steps of an execution
    that has none would each be a trace of their own. A class and not a generator, because it is
    entered several times for each task, mostly for nothing."""

    __slots__ = ("_about", "_before", "_known", "_made", "_manager")

    def __init__(
        self,
        tracer: Tracer,
        name: str,
        *,
        parent: str,
        root: bool = False,
        kind: Kind = "internal",
        links: Sequence[str] = (),
        about: Ids | None = None,
    ) -> None:
        self._about = about
        self._manager = (tracer if parent or root else _NONE).span(
            name, parent=parent, kind=kind, links=links, about=about
        )

    def __enter__(self) -> Span:
        made = self._made = self._manager.__enter__()
        self._before = _SPAN.set(made)
        self._known = _IDS.set((_IDS.get(), self._about or {}))
        return made

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is GeneratorExit:
            return  # thrown away at a loop's end, from another context: this one is gone
        _SPAN.reset(self._before)
        _IDS.reset(self._known)
        if kind is not None:
            self._made.fail(kind.__name__)
        self._manager.__exit__(None, None, None)


def parent_of(incoming: Iterable[Incoming]) -> str:
    """The trace that messages of one execution belong to, "" if none says it."""
    return next((trace for one in incoming if (trace := one.properties.get(TRACEPARENT))), "")


def links_of(incoming: Iterable[Incoming]) -> list[str]:
    """The spans that sent these messages, each once."""
    found = dict.fromkeys(one.properties.get(TRACELINK, "") for one in incoming)
    return [link for link in found if link][:MAX_LINKS]
