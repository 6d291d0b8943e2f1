"""Feeds a change-feed function: latest versions only, the place kept in the lease container.

Like the real trigger the checkpoint moves past a batch whose function raised, so what a relay must
not rely on is missing here too.
"""

from __future__ import annotations

import logging
from typing import Final

import azure.functions as func

from orchestrator.functions.http_errors import stack
from orchestrator.local.host.indexing import FeedBinding
from orchestrator.local.host.invoke import Invoker
from orchestrator.ports import (
    BadCursor,
    ChangePage,
    Clock,
    Document,
    DocumentStore,
    NotFound,
    StoreError,
)

logger = logging.getLogger("orchestrator.local.host")

RETRY_MS: Final = 1_000
"""Wait after the store failed."""
BUSY_DOCUMENTS: Final = 200
BUSY_MS: Final = 1_000
"""Wait after a look that found this many documents or more. A busy feed is looked at less often: an
execution that changed many times meanwhile shows once, and its reader works once."""


class FeedListener:
    """One change-feed function over `store`. Only one process of several may run it."""

    def __init__(
        self,
        invoker: Invoker,
        binding: FeedBinding,
        store: DocumentStore,
        clock: Clock,
        *,
        page: int,
        poll_ms: int,
    ) -> None:
        """`page`: documents a call at most; `poll_ms`: wait after a page that was not full,
        unless the feed is busy."""
        self._page = page
        self._poll_ms = poll_ms
        self.invoker = invoker
        self._binding = binding
        self._store = store
        self._clock = clock
        self._cursor: str | None = None
        self._loaded = False

    async def run(self) -> None:
        """Poll until cancelled; a page that is full is followed by the next one at once."""
        seen = 0
        while True:
            try:
                found = await self.poll_once()
                seen += found
                if found < self._page:
                    busy = seen >= BUSY_DOCUMENTS
                    seen = 0
                    await self._clock.sleep(max(self._poll_ms, BUSY_MS) if busy else self._poll_ms)
            except StoreError as error:
                logger.warning(
                    "change feed not read, trying again",
                    extra={"action": "feed_unavailable", "error": type(error).__name__},
                )
                await self._clock.sleep(RETRY_MS)

    async def poll_once(self) -> int:
        """Hand one page to the function, then save the place. Number of documents. Raises
        `StoreError`."""
        if not self._loaded:
            self._cursor = await self._load()
            self._loaded = True
        page = await self._read()
        if not page.documents:
            return 0
        documents = func.DocumentList([_document(doc) for doc in page.documents])
        name = self.invoker.function.name
        try:
            await self.invoker(documents)
        except Exception as error:
            logger.error(
                "change-feed function failed; its batch does not come again: %s\n%s",
                type(error).__name__,
                stack(error),
                extra={"action": "feed_failed", "function": name, "documents": len(documents)},
            )
        self._cursor = page.cursor
        await self._save(page.cursor)
        return len(page.documents)

    async def _read(self) -> ChangePage:
        binding = self._binding
        try:
            return await self._store.changes(binding.container, self._cursor, self._page)
        except BadCursor:
            # Another store under an old lease: everything is new to it.
            logger.warning("change-feed lease is of another store", extra={"action": "feed_reset"})
            self._cursor = None
            return await self._store.changes(binding.container, None, self._page)

    async def _load(self) -> str | None:
        binding = self._binding
        try:
            lease = await self._store.read(
                binding.lease_container, (binding.lease_id,), binding.lease_id
            )
        except NotFound:
            return None
        found = lease.body.get("cursor")
        return found if isinstance(found, str) else None

    async def _save(self, cursor: str) -> None:
        binding = self._binding
        await self._store.upsert(
            binding.lease_container,
            (binding.lease_id,),
            {"id": binding.lease_id, "type": "changeFeedLease", "cursor": cursor},
        )


def _document(doc: Document) -> func.Document:
    """As the trigger hands it over. Set as a whole: `from_dict` copies key by key, for everything
    that is ever written."""
    result = func.Document()
    result.data = {**doc.body, "_etag": doc.etag}
    return result
