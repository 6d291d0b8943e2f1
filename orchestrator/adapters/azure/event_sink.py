"""`EventSink` over Azure: Service Bus queues and topics of the own namespace, Event Grid topics.

Each target is `queue:NAME`, `topic:NAME` or `eventgrid:https://HOST/api/events`. Nothing connects
before the first event; everything is called under the app's identity.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.messaging import CloudEvent
from azure.eventgrid.aio import EventGridPublisherClient

from orchestrator.domain.published import STRUCTURED, message_id
from orchestrator.ports import OutMessage, Transport, TransportError
from orchestrator.ports_events import EventRefused

EVENT_GRID: Final = "eventgrid:"
_REFUSED: Final = frozenset({400, 413, 415, 422})
"""Statuses that are the event's own fault. 401, 403 and 404 are the platform's: somebody can mend
them, and a role assignment takes minutes to be known everywhere."""
_SECONDS: Final = 30.0


class AzureEventSink:
    """`targets`: name -> address, as in the settings. `open_transport` makes the transport that may
    send to the queues and topics among them; it and the clients are closed with the sink, the
    credential stays the caller's."""

    def __init__(
        self,
        targets: Mapping[str, str],
        *,
        credential: AsyncTokenCredential,
        open_transport: Callable[[], Transport],
        **client_options: Any,
    ) -> None:
        self._targets = dict(targets)
        self._credential = credential
        self._open_transport = open_transport
        self._options = client_options
        self._transport: Transport | None = None
        self._grids: dict[str, EventGridPublisherClient] = {}

    def targets(self) -> frozenset[str]:
        """See `ports_events.EventSink`."""
        return frozenset(self._targets)

    async def publish(self, target: str, event: bytes, event_id: str) -> None:
        """See `ports_events.EventSink`."""
        address = self._targets[target]
        if address.startswith(EVENT_GRID):
            await self._to_grid(address.removeprefix(EVENT_GRID), event)
            return
        if self._transport is None:
            self._transport = self._open_transport()
        message = OutMessage(
            queue=address.removeprefix("queue:"),
            body=event,
            message_id=message_id(event_id),
            content_type=STRUCTURED,
        )
        await self._transport.send([message])

    async def close(self) -> None:
        """See `ports_events.EventSink`."""
        grids, self._grids = list(self._grids.values()), {}
        transport, self._transport = self._transport, None
        for grid in grids:
            await grid.close()
        if transport is not None:
            await transport.close()

    async def _to_grid(self, endpoint: str, event: bytes) -> None:
        client = self._grids.get(endpoint)
        if client is None:
            # The SDK's own retries would outlast the attempt; the task's policy retries.
            client = EventGridPublisherClient(
                endpoint, self._credential, retry_total=0, **self._options
            )
            self._grids[endpoint] = client
        try:
            async with asyncio.timeout(_SECONDS):
                await client.send(CloudEvent.from_dict(json.loads(event)))
        except HttpResponseError as error:
            if error.status_code in _REFUSED:
                raise EventRefused(f"Event Grid answered {error.status_code}") from error
            what = error.status_code or type(error).__name__  # the SDK hides some statuses
            raise TransportError(f"Event Grid answered {what}") from error
        except (AzureError, TimeoutError, OSError) as error:
            raise TransportError(f"Event Grid: {type(error).__name__}") from error
