"""Sensitive data of executions: what the API shows of it, and to whom.

It is stored as it is, because activities need it. Whoever may operate an execution sees it; for all
others, and in failures and log records, it is masked. The marks are computed once per version of a
workflow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from orchestrator.domain import jsonvalues
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.sensitive import Marks, masked
from orchestrator.domain.sensitive_flow import Flow
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru

MAX_FLOWS: Final = 500

Reveal = Callable[[Aggregate], Awaitable[bool]]
"""Whether who asks may see the sensitive data of this execution."""


async def hidden(found: Aggregate) -> bool:
    """To nobody."""
    return False


async def revealed(found: Aggregate) -> bool:
    """To everybody: who asks was asked before."""
    return True


class Flows:
    """One engine's memory of the marks of workflows; see `Engine.part`."""

    def __init__(self, engine: Engine) -> None:
        self._known: Lru[Flow] = Lru(MAX_FLOWS)

    def of(self, found: Aggregate) -> Flow:
        """The marks of the execution's workflow."""
        key = (found.partition[0], found.workflow.name, found.header["version"])
        flow = self._known.get(key)
        if flow is None:
            flow = Flow(found.workflow)
            self._known.put(key, flow)
        return flow


class Shown:
    """What one caller sees of one execution's data."""

    def __init__(self, flow: Flow, clear: bool) -> None:
        self.flow = flow
        self._clear = clear

    def value(self, marks: Marks, value: Json) -> Json:
        """The value, masked unless it may be seen."""
        return value if self._clear else masked(marks, value)

    def payload(self, marks: Marks, doc: dict[str, Any]) -> dict[str, Any]:
        """A stored payload likewise, as far as its text stands in it."""
        if self._clear or not marks or "json" not in doc:
            return doc
        value = masked(marks, jsonvalues.loads(doc["json"]))
        return {**doc, "json": jsonvalues.dumps(value).decode()}


async def shown(engine: Engine, found: Aggregate, reveal: Reveal) -> Shown:
    """Asks `reveal` only if anything of it is sensitive."""
    flow = engine.part(Flows).of(found)
    return Shown(flow, not flow or await reveal(found))
