"""Where a request came from, for the audit.

A context variable and not an argument: a dozen use cases would have to pass it on, none of which
looks at it. Whoever takes requests sets it around the use case; work without a request (the
scheduler, a queue) has none.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """`address`: of the client, as the platform before us tells it; `agent`: its program, as it
    says itself; `trace`: the id of the request in answers and logs. `reason`: why, where the
    request's body has no room for it. Empty: not known."""

    address: str = ""
    agent: str = ""
    trace: str = ""
    reason: str = ""

    def to_doc(self) -> dict[str, str]:
        """What is known of where."""
        known = {"address": self.address, "agent": self.agent, "trace": self.trace}
        return {name: text for name, text in known.items() if text}


_ORIGIN: ContextVar[Origin | None] = ContextVar("weft_origin", default=None)


def current() -> Origin | None:
    """The origin of the request that is being served; None outside of one."""
    return _ORIGIN.get()


@contextmanager
def of_request(origin: Origin) -> Generator[None, None, None]:
    """Within it (and in tasks that are made within it) `current` is `origin`."""
    token = _ORIGIN.set(origin)
    try:
        yield
    finally:
        _ORIGIN.reset(token)
