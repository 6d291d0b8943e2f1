"""What can be made to go wrong, on command.

    server.faults.add("batch", status=429, retry_after_ms=1, times=3)
    server.faults.add("create", drop=True, applied=True)     # written, and the answer lost
    server.faults.add("read", hang=True)                      # no answer at all
    server.faults.add("batch", status=429, operation=2)       # inside the 207
    server.faults.foreign_rows.append(body)                   # every query returns it as well

Kinds are those of `counters`: create upsert replace read delete batch query feed pkranges container
account. No kind: any of the document's. Several client processes reach the same list over
`POST /_test/faults` with the same fields as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DOCUMENT_KINDS = frozenset(
    {"create", "upsert", "replace", "read", "delete", "batch", "query", "feed"}
)


@dataclass(slots=True, kw_only=True)
class Fault:
    """One rule; it applies to the next `times` requests of its kinds."""

    kinds: frozenset[str]
    status: int = 503
    sub_status: int = 0
    retry_after_ms: int | None = None
    times: int = 1
    skip: int = 0  # let so many requests pass first
    applied: bool = False  # do the work, then answer like this
    drop: bool = False  # close the connection instead of answering
    hang: bool = False  # do not answer until the client gives up
    operation: int | None = None  # fail this operation of a batch, not the request
    stale: bool = False  # a read answers with the version before the newest


@dataclass(slots=True)
class Faults:
    """The rules of a server, first match first."""

    rules: list[Fault] = field(default_factory=list[Fault])
    foreign_rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    fired: int = 0

    def add(self, *kinds: str, **options: Any) -> Fault:
        """Add a rule; see `Fault`."""
        unknown = set(kinds) - DOCUMENT_KINDS - {"pkranges", "container", "account"}
        if unknown:
            raise ValueError(f"no such kinds: {sorted(unknown)}")
        fault = Fault(kinds=frozenset(kinds) or DOCUMENT_KINDS, **options)
        self.rules.append(fault)
        return fault

    def clear(self) -> None:
        """Fine weather again."""
        self.rules.clear()
        self.foreign_rows.clear()

    def take(self, kind: str) -> Fault | None:
        """The rule for this request, if any."""
        for rule in self.rules:
            if kind in rule.kinds and rule.times > 0:
                if rule.skip > 0:
                    rule.skip -= 1
                    continue
                rule.times -= 1
                self.fired += 1
                return rule
        return None
