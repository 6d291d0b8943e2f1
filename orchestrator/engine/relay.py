"""Sends what commits left in the outbox, then deletes it. Three callers, one mechanism.

Fast path: the committer, right after its commit, within a short time limit. Slow path: the change
feed, for whatever is still there. Last resort: the sweeper, for whatever is older than a minute;
it alone must be enough, because a change feed's checkpoint can move past a batch whose function
died. A crash between sending and deleting sends again under the same message ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import outbox, telemetry
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import NewerSchema
from orchestrator.ports import Delete, NotFound, StoreError, TransportError
from orchestrator.ports_telemetry import Span

log = logging.getLogger(__name__)


async def send_now(engine: Engine, docs: Sequence[Mapping[str, Any]]) -> bool:
    """Fast path: send the documents of one commit; delete them in the background. Never raises:
    what it cannot send in time stays for the slow path. True if all was sent."""
    if not docs:
        return True
    try:
        with _span(engine, docs, "commit") as span:
            link = span.traceparent if span.recorded else ""
            sending = outbox.messages(docs, link)
            async with asyncio.timeout(engine.tunables.fast_path_ms / 1000):
                await engine.transport.send(sending)
    except (TransportError, TimeoutError) as error:
        engine.metrics.count("weft_fast_path_failures_total")
        log.warning(
            "fast path could not send, the slow path will",
            extra={"action": "relay.fast_path_failed", "error": type(error).__name__},
        )
        return False
    engine.spawn(_forget(engine, docs), "weft-outbox-delete")
    return True


async def relay_documents(
    engine: Engine, docs: Sequence[Mapping[str, Any]], *, repair: bool = False
) -> int:
    """Slow path: send every outbox document among `docs`, each on its own, so that a bad one
    never blocks its neighbours. Others are passed over. The number of documents sent.

    `repair` says that the sweeper calls: what it sends had been forgotten."""
    sent = 0
    for doc in docs:
        if doc.get("type") != "outbox":
            continue
        try:
            with _span(engine, [doc], "sweeper" if repair else "changeFeed") as span:
                link = span.traceparent if span.recorded else ""
                await engine.transport.send(outbox.messages([doc], link))
        except (TransportError, NewerSchema) as error:
            engine.metrics.count("weft_relay_failures_total")
            log.warning(
                "outbox not sent, the sweeper will try again",
                extra={
                    "action": "relay.failed",
                    "outbox": doc.get("id"),
                    "error": type(error).__name__,
                },
            )
            continue
        except (KeyError, ValueError, TypeError) as error:
            engine.metrics.count("weft_relay_poisoned_total")
            log.error(
                "outbox document cannot be read, passed over",
                extra={
                    "action": "relay.poisoned",
                    "outbox": doc.get("id"),
                    "error": type(error).__name__,
                },
            )
            continue
        sent += 1
        engine.metrics.count("weft_repairs_total" if repair else "weft_relayed_total", "outbox")
        await _forget(engine, [doc])
    return sent


def _span(
    engine: Engine, docs: Sequence[Mapping[str, Any]], path: str
) -> AbstractContextManager[Span]:
    """Under the work that sends, or else under the execution's trace. The outbox is data: what is
    wrong with it is told by whoever reads it."""
    trace = docs[0].get(telemetry.TRACEPARENT)
    parent = telemetry.traceparent(trace if isinstance(trace, str) else "")
    return telemetry.span(
        engine.tracer, "relay send", parent=parent, kind="producer", about={"path": path}
    )


async def _forget(engine: Engine, docs: Sequence[Mapping[str, Any]]) -> None:
    """Delete sent documents of one partition. One that is gone was deleted by another relay; one
    that cannot be deleted is sent again later, under the same message ids."""
    partition = (docs[0]["tenantId"], docs[0]["executionId"])
    try:
        if len(docs) == 1:
            await engine.store.delete(EXECUTIONS, partition, docs[0]["id"])
        else:
            await engine.store.batch(EXECUTIONS, partition, [Delete(doc["id"]) for doc in docs])
    except NotFound:
        for doc in docs if len(docs) > 1 else ():
            await _forget(engine, [doc])
    except StoreError as error:
        log.warning(
            "sent outbox not deleted, it will be sent again",
            extra={"action": "relay.delete_failed", "error": type(error).__name__},
        )
