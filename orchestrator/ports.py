"""The seams between the engine and the world. Small on purpose, and Cosmos-shaped.

The engine is written once over these; `adapters/local` and `adapters/azure` implement them and must
pass the same contract suite (`tests/contract`). No SDK exception crosses these borders: adapters
translate into the few port errors below, with the cause chained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from orchestrator.domain.egress import ANYWHERE, Egress
from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.redaction import NOTHING, Redactor
from orchestrator.ports_secrets import SecretNotFound as SecretNotFound
from orchestrator.ports_secrets import Secrets as Secrets

# --- documents ------------------------------------------------------------------------------------

Partition: TypeAlias = tuple[str, ...]
"""Values of the container's partition key, outermost first; a shorter tuple is a prefix."""


@dataclass(frozen=True, slots=True)
class Document:
    """A stored document. `body` has `id` and the partition key's properties; treat it as frozen."""

    id: str
    body: dict[str, Any]
    etag: str


@dataclass(frozen=True, slots=True)
class Create:
    """Batch operation: fails with `Conflict` if the id exists in the partition."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Replace:
    """Batch operation: `NotFound` if missing, `PreconditionFailed` if the etag differs."""

    body: dict[str, Any]
    if_match: str | None = None


@dataclass(frozen=True, slots=True)
class Upsert:
    """Batch operation: create or overwrite, whatever is there."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Batch operation: `NotFound` if missing, `PreconditionFailed` if the etag differs."""

    id: str
    if_match: str | None = None


Operation: TypeAlias = Create | Replace | Upsert | Delete

Comparison: TypeAlias = Literal["=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Where:
    """`field op value`; `field` is a top-level property. Documents without it never match."""

    field: str
    op: Comparison
    value: str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A typed filter: all of `where`, ordered by (`order_by`, `id`), at most `limit` documents.

    `partition`: full key, a prefix of it, or None for all. `after`: the (order value, id) of the
    last document seen: keyset paging, because Cosmos continuation tokens lose rows across
    partitions, and it stays right while data changes. Documents without `order_by` are left out.
    """

    where: tuple[Where, ...] = ()
    partition: Partition | None = None
    order_by: str = "id"
    descending: bool = False
    after: tuple[str | int, str] | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Latest versions of changed documents, no deletes; ordered within a logical partition only."""

    documents: list[Document]
    cursor: str  # never ahead of a document that was not returned


class DocumentStore(Protocol):
    """Documents in containers, partitioned; `topology.CONTAINERS` says how.

    A body may have `ttl` (seconds): the document vanishes that long after its last write.
    Limits are those of Cosmos (`topology.py`): 2 MB an item, 100 operations and 2 MB a batch, ids
    without `/ \\ ? #`; over them `TooLarge` or `BadDocument`, before anything is written.
    """

    async def read(self, container: str, partition: Partition, id: str) -> Document:
        """One document. Raises `NotFound`."""
        ...

    async def read_many(
        self, container: str, partition: Partition, ids: Sequence[str]
    ) -> dict[str, Document]:
        """Those of `ids` that exist, by id."""
        ...

    async def create(self, container: str, partition: Partition, body: dict[str, Any]) -> str:
        """Store a new document, durably; its etag. Raises `Conflict`."""
        ...

    async def replace(
        self,
        container: str,
        partition: Partition,
        body: dict[str, Any],
        *,
        if_match: str | None = None,
    ) -> str:
        """Overwrite `body["id"]`, durably; the new etag. Raises `NotFound`,
        `PreconditionFailed`."""
        ...

    async def upsert(self, container: str, partition: Partition, body: dict[str, Any]) -> str:
        """Create or overwrite, durably; the new etag."""
        ...

    async def delete(
        self, container: str, partition: Partition, id: str, *, if_match: str | None = None
    ) -> None:
        """Remove. Raises `NotFound`, `PreconditionFailed`."""
        ...

    async def batch(
        self, container: str, partition: Partition, operations: Sequence[Operation]
    ) -> list[str]:
        """All or nothing, in one partition, durable when it returns. Etags in the order of the
        operations ("" for deletes). On failure raises the error of the operation that failed, with
        `operation` set to its position."""
        ...

    async def query(self, container: str, query: Query) -> list[Document]:
        """Documents that match; see `Query`. Rows of other partitions are never returned."""
        ...

    async def count(self, container: str, query: Query) -> int:
        """How many `query` would give, `limit` included. Its partition is whole."""
        ...

    async def changes(self, container: str, cursor: str | None, limit: int) -> ChangePage:
        """Documents changed since `cursor` (None: from the beginning). An empty page returns the
        same place again. Raises `BadCursor`."""
        ...

    async def close(self) -> None:
        """Release everything; running operations end first."""
        ...


class StoreError(Exception):
    """Base of what a store may raise. `operation`: position in the batch, if it was one."""

    def __init__(self, message: str, *, operation: int | None = None) -> None:
        super().__init__(message)
        self.operation = operation


class NotFound(StoreError):
    """404."""


class Conflict(StoreError):
    """409: the id exists."""


class PreconditionFailed(StoreError):
    """412: the etag is stale. Reload and decide again."""


class TooLarge(StoreError):
    """413: over an item's or a batch's limit; nothing was written."""


class BadDocument(StoreError):
    """400: an id, partition or body that the store cannot keep."""


class Throttled(StoreError):
    """429: nothing was written. `retry_after_ms` is the store's wish."""

    def __init__(
        self, message: str, *, retry_after_ms: int = 100, operation: int | None = None
    ) -> None:
        super().__init__(message, operation=operation)
        self.retry_after_ms = retry_after_ms


class Unavailable(StoreError):
    """503, time-out, connection lost: for a write, whether it was applied is unknown."""


class BadCursor(StoreError):
    """The cursor is not one of this store's."""


# --- messages -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OutMessage:
    """A message to send. `message_id` is what duplicate detection looks at."""

    queue: str
    body: bytes
    message_id: str
    due_at: int | None = None  # epoch ms; None or past: at once
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"


class Transport(Protocol):
    """The sending half of the broker; receiving is the host's (Functions triggers)."""

    async def send(self, messages: Sequence[OutMessage]) -> None:
        """Hand over to the broker, any number, to any queues. When it raises, some may have been
        sent: sending again with the same ids is safe. Raises `TransportError`."""
        ...

    async def close(self) -> None:
        """Release everything."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A delivery of a message. Times are epoch ms.

    `lock_token` is this delivery's, not the message's; empty if it was only peeked at. Dead letters
    carry the properties `DeadLetterReason` and `DeadLetterErrorDescription`.
    """

    queue: str
    message_id: str
    body: bytes
    properties: Mapping[str, str]
    lock_token: str
    locked_until: int
    delivery_count: int  # deliveries begun so far, this one included: 1 on the first
    sequence_number: int  # given at arrival, only grows
    enqueued_at: int  # when it became receivable for the first time


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """Messages of one queue, by what they wait for."""

    active: int  # receivable now
    locked: int  # delivered, not settled
    scheduled: int  # due later
    dead: int  # in its dead-letter queue


class Receiver(Protocol):
    """The receiving half of a broker, peek-lock. Used by hosts and the contract suite.

    A delivery must be settled (`complete`, `abandon`, `dead_letter`) with its own lock before the
    lock ends; else the message becomes receivable again. More than the queue's maximum of
    deliveries: it goes to the dead-letter queue, `queue + topology.DEAD_LETTER_SUFFIX`. All raise
    `QueueNotFound` for an unknown queue; settlement and renewal raise `MessageLockLost`.
    """

    async def receive(self, queue: str, max_messages: int, wait_ms: int) -> list[Received]:
        """Up to `max_messages`, locked, oldest first; waits up to `wait_ms` for the first one."""
        ...

    async def complete(self, message: Received) -> None:
        """Done: remove it."""
        ...

    async def complete_many(self, messages: Sequence[Received]) -> None:
        """Complete all whose lock is still held, then raise `MessageLockLost` for the rest."""
        ...

    async def abandon(self, message: Received) -> None:
        """Give it back, receivable at once; the delivery counts."""
        ...

    async def dead_letter(self, message: Received, reason: str, description: str) -> None:
        """Move it to the dead-letter queue."""
        ...

    async def renew(self, message: Received) -> int:
        """Lock it for another full period from now; until when."""
        ...

    async def peek(self, queue: str, limit: int) -> list[Received]:
        """The first messages by sequence number, whatever their state, without locking."""
        ...

    async def counts(self, queue: str) -> QueueCounts:
        """How many messages wait for what."""
        ...


class TransportError(Exception):
    """Not (all) sent; try again later."""


class MessageTooLarge(TransportError):
    """A message is over the broker's limit; nothing was sent."""


class QueueNotFound(TransportError):
    """No such queue."""


class MessageLockLost(TransportError):
    """The lock ended or was another delivery's. Whether an earlier settlement was applied is
    unknown. `lost`: the message ids concerned."""

    def __init__(self, message: str, *, lost: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lost = tuple(lost)


# --- payloads, secrets, time ----------------------------------------------------------------------


class PayloadStore(Protocol):
    """Large JSON texts, by reference (claim check). References carry scheme and version.
    All methods may raise `Throttled` and `Unavailable`."""

    async def put(self, tenant: str, execution: str, name: str, data: bytes) -> str:
        """Store durably; the same data gives the same reference, so a retry is harmless."""
        ...

    async def get(self, ref: str) -> bytes:
        """Raises `PayloadNotFound`, also for a reference that is not ours."""
        ...

    async def delete(self, tenant: str, execution: str) -> None:
        """Remove all payloads of an execution, durably; that there are none is a success."""
        ...


class PayloadNotFound(Exception):
    """No such payload."""


class Clock(Protocol):
    """Time. The simulation has its own."""

    def now(self) -> int:
        """Wall clock, epoch milliseconds. May jump; never used to measure a span by itself."""
        ...

    async def sleep(self, ms: int) -> None:
        """Wait."""
        ...


class Ids(Protocol):
    """Fresh ids, so that the simulation can be reproduced."""

    def new(self) -> str:
        """A new id: unique, at most 40 characters of `[a-z0-9-]`, sortable by creation time."""
        ...


# --- activities -----------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class ActivityCall:
    """One attempt to run an activity, as the engine hands it to the runner.

    The engine sets `cancelled` when the lease is lost, the attempt timed out or the execution is
    being stopped; the runner calls `beat` whenever the activity reports progress.
    """

    activity: str  # registered name
    input: Json
    tenant: str
    execution: str
    task: str
    item: int | None
    attempt: int  # from 1
    idempotency_key: str  # the same for every attempt of the same task
    timeout_ms: int
    traceparent: str = ""
    cancelled: bool = False
    last_heartbeat_at: int = 0  # epoch ms, written by the runner through `beat`
    heartbeat_details: Json = None  # how far it got, in the activity's own words; small
    egress: Egress = ANYWHERE  # where its tenant's requests may go
    redactor: Redactor = NOTHING  # takes the secrets that it was given out of what it leaves

    def beat(self, now: int, details: Json = None) -> None:
        """Note progress. Without `details` the last ones stay."""
        self.last_heartbeat_at = now
        if details is not None:
            self.heartbeat_details = self.redactor.value(details)


class ActivityFailed(Exception):
    """An attempt failed in a way that is to be recorded."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.type}: {failure.message}")
        self.failure = failure


class ActivityRunner(Protocol):
    """Runs registered activities. Plain functions run off the event loop."""

    def names(self) -> frozenset[str]:
        """Registered names, for validation at publish."""
        ...

    def dependency(self, activity: str) -> str | None:
        """What the activity says that it calls; one circuit breaker stands before all of it."""
        ...

    async def run(self, call: ActivityCall) -> Json:
        """Run one attempt; its output. Raises `ActivityFailed` for everything that goes wrong in
        the activity, also `SystemExit`. Cancelling this coroutine abandons the attempt: an async
        activity is cancelled, a plain one left alone in its thread with `call.cancelled` set."""
        ...

    def stuck(self) -> int:
        """Number of abandoned attempts whose thread still runs (health)."""
        ...

    async def close(self) -> None:
        """Release what activities share (HTTP connections). Attempts that still run are left."""
        ...
