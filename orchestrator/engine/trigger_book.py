"""The tenant's triggers, compiled and remembered, because every event needs them.

They are remembered with the version that the tenant's triggers had when they were read. One point
read per call tells whether they are still current, so an event that comes after the creation of a
trigger was answered meets that trigger, on whatever instance.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from orchestrator.domain.errors import InvalidError
from orchestrator.domain.topology import CATALOG
from orchestrator.domain.triggers import Trigger
from orchestrator.engine import trigger_store
from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru
from orchestrator.engine.resilience import patiently
from orchestrator.ports import Document

log = logging.getLogger(__name__)

CACHED_TENANTS = 200
PAGE = 500


@dataclass(frozen=True, slots=True)
class _Page:
    version: int
    by_etag: dict[tuple[str, str], Trigger | None]
    """(id, ETag) -> the trigger; None: it cannot be read by this code."""


class TriggerBook:
    """One engine's memory of triggers; see `Engine.part`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pages: Lru[_Page] = Lru(CACHED_TENANTS)

    async def of(self, tenant: str) -> list[Trigger]:
        """All triggers of `tenant`, paused ones included, by name."""
        engine = self._engine
        found = await patiently(
            engine, engine.store.read_many, CATALOG, (tenant,), [trigger_store.HEAD]
        )
        head = found.get(trigger_store.HEAD)
        if head is None:
            return []
        known = self._pages.get(tenant)
        if known is None or known.version != head.body["version"]:
            known = await self._read(tenant, head, known)
        return [trigger for trigger in known.by_etag.values() if trigger is not None]

    async def _read(self, tenant: str, head: Document, old: _Page | None) -> _Page:
        docs: list[Document] = []
        after: trigger_store.After = None
        while True:
            some = await trigger_store.query(self._engine, tenant, limit=PAGE, after=after)
            docs += some
            if len(some) < PAGE:
                break
            after = (some[-1].id, some[-1].id)
        remembered = old.by_etag if old else {}
        page = _Page(
            head.body["version"],
            {
                key: remembered[key] if key in remembered else self._compiled(doc)
                for doc in docs
                for key in [(doc.id, doc.etag)]
            },
        )
        # A list may lag behind the point read: such a page serves once and is not remembered.
        newest = max((doc.body["revision"] for doc in docs), default=0)
        if len(docs) == head.body["count"] and newest >= head.body.get("written", 0):
            self._pages.put(tenant, page)
        return page

    def _compiled(self, doc: Document) -> Trigger | None:
        try:
            return trigger_store.compiled(doc.body)
        except InvalidError as error:
            self._engine.metrics.count("weft_triggers_unreadable_total")
            log.error(
                "a stored trigger cannot be read by this version, it is passed over",
                extra={
                    "action": "trigger.unreadable",
                    "trigger": doc.id,
                    "findings": len(error.details),
                },
            )
            return None
