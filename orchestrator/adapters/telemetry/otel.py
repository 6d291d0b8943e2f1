"""`Tracer` over the OpenTelemetry SDK: its exporters, processors, sampler and ids.

Nothing global is set: several engines live in one process, and a user's activities may bring their
own instrumentation. It finds our span as the current one, though, so its spans join the trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from types import TracebackType
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from orchestrator.ports_telemetry import (
    TRACEPARENT_CHARS,
    Attributes,
    Kind,
    Passing,
    Span,
    is_sampled,
)

SCOPE: Final = InstrumentationScope("weft")
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)
_ERROR: Final = Status(StatusCode.ERROR)
_UNSET: Final = Status(StatusCode.UNSET)
PREFIX: Final = "weft."
"""Before the names of our own attributes."""
CLOSING_S: Final = 5.0
"""A process that stops must not wait longer for an exporter that does not answer."""

_KINDS: Final[dict[Kind, SpanKind]] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
_FORM: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
)


class OtelTracer:
    """Spans to `processor`, which is shut down with it."""

    def __init__(
        self,
        processor: SpanProcessor,
        *,
        ratio: float = 1.0,
        resource: Resource | None = None,
        also: Sequence[Callable[[], object]] = (),
    ) -> None:
        """`ratio`: share of new traces that is recorded. `resource`: who we are. `also`: what else
        is to be shut down at the end; called in a thread."""
        self.processor = processor
        self.resource = resource or Resource.get_empty()
        self._sampler = TraceIdRatioBased(ratio)
        self._ids = RandomIdGenerator()
        self._closing: list[Callable[[], object]] = [processor.shutdown, *also]

    def span(
        self,
        name: str,
        *,
        parent: str = "",
        kind: Kind = "internal",
        links: Sequence[str] = (),
        about: Attributes | None = None,
    ) -> AbstractContextManager[Span]:
        """See `Tracer`. A parent that is not sampled answers for all that follows from it."""
        above = None
        if len(parent) == TRACEPARENT_CHARS:
            if not is_sampled(parent):
                return Passing(parent)
            above = context_of(parent)
        trace_id = self._ids.generate_trace_id() if above is None else above.trace_id
        flags = _SAMPLED
        if above is None and not self._begins(trace_id, name):
            flags = _UNSAMPLED
        own = SpanContext(trace_id, self._ids.generate_span_id(), False, flags)
        if not flags.sampled:
            return Passing(_text(own))
        known = (context_of(link) for link in links)
        attributes = {PREFIX + key: value for key, value in (about or {}).items()}
        found = [Link(link) for link in known if link is not None]
        return _Recorded(self, name, own, above, _KINDS[kind], found, attributes)

    def _begins(self, trace_id: int, name: str) -> bool:
        return self._sampler.should_sample(None, trace_id, name).decision.is_sampled()

    async def close(self) -> None:
        """See `Tracer`."""
        closing, self._closing = self._closing, []
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            for close in closing:
                with contextlib.suppress(Exception):  # the next one is to be closed, too
                    close()
            with contextlib.suppress(RuntimeError):  # nobody waited for so long
                loop.call_soon_threadsafe(done.set)

        if closing:
            # An exporter blocks while it sends. A thread of the loop's pool would hold up the end
            # of the process for as long as that takes; this one is left behind.
            threading.Thread(target=work, name="weft-telemetry-close", daemon=True).start()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_S):
                    await done.wait()


class _Recorded:
    """A span that is exported when it ends. Made by hand: the SDK's own guards each attribute by a
    lock and a check of its type, for three times the cost, and nobody but us touches this one."""

    __slots__ = (
        "_above",
        "_attributes",
        "_begun",
        "_failed",
        "_kind",
        "_links",
        "_name",
        "_own",
        "_token",
        "_tracer",
        "traceparent",
    )
    recorded = True

    def __init__(
        self,
        tracer: OtelTracer,
        name: str,
        own: SpanContext,
        above: SpanContext | None,
        kind: SpanKind,
        links: Sequence[Link],
        attributes: dict[str, str | int | bool],
    ) -> None:
        self._tracer, self._name, self._own, self._above = tracer, name, own, above
        self._kind, self._links, self._attributes = kind, links, attributes
        self._failed = False
        self.traceparent = _text(own)

    def note(self, attributes: Attributes) -> None:
        """See `Span`."""
        self._attributes.update(attributes)

    def fail(self, kind: str) -> None:
        """See `Span`."""
        self._attributes.setdefault("error.type", kind)  # what wraps it says less
        self._failed = True

    def __enter__(self) -> _Recorded:
        self._begun = time.time_ns()
        self._token = contexts.attach(trace.set_span_in_context(trace.NonRecordingSpan(self._own)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        contexts.detach(self._token)
        ended = ReadableSpan(
            self._name,
            self._own,
            self._above,
            self._tracer.resource,
            self._attributes,
            links=self._links,
            kind=self._kind,
            status=_ERROR if self._failed else _UNSET,
            start_time=self._begun,
            end_time=max(self._begun, time.time_ns()),
            instrumentation_scope=SCOPE,
        )
        self._tracer.processor.on_end(ended)


@lru_cache(4_096)
def context_of(traceparent: str) -> SpanContext | None:
    """A W3C traceparent as the SDK's own value; None if it is not well-formed."""
    found = _FORM.fullmatch(traceparent)
    if found is None:
        return None
    return SpanContext(
        int(found[1], 16),
        int(found[2], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(found[3], 16)),
    )


def _text(span: SpanContext) -> str:
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
