"""`Tracer` over the OpenTelemetry SDK, with a provider of its own.

Nothing global is set: several engines live in one process, and a user's activities may bring their
own instrumentation. It finds our span as the current one, though, so its spans join the trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Token
from functools import lru_cache
from types import TracebackType
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags

from orchestrator.ports_telemetry import (
    TRACEPARENT_CHARS,
    Attributes,
    Kind,
    Passing,
    Span,
    is_sampled,
)

SCOPE: Final = "weft"
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
    """Spans of `provider`, which is shut down with it."""

    def __init__(
        self, provider: TracerProvider, *, also: Sequence[Callable[[], object]] = ()
    ) -> None:
        """`also`: what else is to be shut down at the end; called in a thread."""
        self._tracer = provider.get_tracer(SCOPE)
        self._closing: list[Callable[[], object]] = [provider.shutdown, *also]

    def span(
        self,
        name: str,
        *,
        parent: str = "",
        kind: Kind = "internal",
        links: Sequence[str] = (),
        about: Attributes | None = None,
    ) -> AbstractContextManager[Span]:
        """See `Tracer`. A parent that is not sampled answers for all that follows from it, so the
        SDK is not even asked."""
        context = Context()
        if len(parent) == TRACEPARENT_CHARS:
            if not is_sampled(parent):
                return Passing(parent)
            if (above := context_of(parent)) is not None:
                context = trace.set_span_in_context(trace.NonRecordingSpan(above), context)
        known = (context_of(link) for link in links)
        span = self._tracer.start_span(
            name,
            context=context,
            kind=_KINDS[kind],
            attributes={PREFIX + key: value for key, value in (about or {}).items()},
            links=[Link(link) for link in known if link is not None],
        )
        return _Recorded(span) if span.is_recording() else Passing(_text(span.get_span_context()))

    async def close(self) -> None:
        """See `Tracer`."""
        closing, self._closing = self._closing, []
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            for close in closing:
                with contextlib.suppress(Exception):
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
    """A span that is exported when it ends."""

    __slots__ = ("_span", "_token", "traceparent")
    recorded = True

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: Token[Context] | None = None
        self.traceparent = _text(span.get_span_context())

    def note(self, attributes: Attributes) -> None:
        """See `Span`."""
        self._span.set_attributes(dict(attributes))

    def fail(self, kind: str) -> None:
        """See `Span`."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(StatusCode.ERROR)

    def __enter__(self) -> _Recorded:
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        self._span.end()


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
