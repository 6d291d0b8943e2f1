"""The names and limits that code, host.json, infrastructure and tests must agree on.

One place, because a queue name spelt twice is a queue that silently nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCHEMA_VERSION: Final = 1
"""Version of every stored document and every message. Readers refuse a higher one."""


# --- queues -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """How a queue must be created; the embedded broker and Bicep both follow it."""

    name: str
    lock_seconds: int  # peek-lock duration of one delivery
    max_delivery_count: int  # deliveries before the broker dead-letters the message
    duplicate_window_seconds: int  # how long a message id is remembered
    dead_letter_on_expiration: bool = True


ORCHESTRATION_QUEUE: Final = "orchestration"
TASKS_HIGH_QUEUE: Final = "tasks-high"
TASKS_STANDARD_QUEUE: Final = "tasks-standard"
TASKS_LOW_QUEUE: Final = "tasks-low"
TASK_QUEUES: Final = (TASKS_HIGH_QUEUE, TASKS_STANDARD_QUEUE, TASKS_LOW_QUEUE)
"""One for each class of executions (`domain/priority.py`)."""
EVENTS_QUEUE: Final = "events"
"""Where other systems put events (CloudEvents or Event Grid's schema) for triggers."""

QUEUES: Final[dict[str, QueueSpec]] = {
    spec.name: spec
    for spec in (
        # Batch triggers never renew locks, so the lock is long and the handler keeps a time budget.
        QueueSpec(
            name=ORCHESTRATION_QUEUE,
            lock_seconds=300,
            max_delivery_count=10,
            duplicate_window_seconds=600,
        ),
        *(
            QueueSpec(
                name=name,
                lock_seconds=60,
                max_delivery_count=10,
                duplicate_window_seconds=600,
            )
            for name in (*TASK_QUEUES, EVENTS_QUEUE)
        ),
    )
}

DEAD_LETTER_SUFFIX: Final = "/$DeadLetterQueue"

MAX_MESSAGE_BYTES: Final = 256 * 1024  # Service Bus Standard, properties included
MAX_MESSAGE_ID_CHARS: Final = 128
MAX_SCHEDULE_AHEAD_MS: Final = 6 * 24 * 3600 * 1000  # longer delays are kept in state (sweepAt)


# --- containers ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A Cosmos container: its hierarchical partition key, as property names, outermost first."""

    name: str
    partition: tuple[str, ...]
    filters: tuple[str, ...] = ()
    """Properties by which lists are filtered, most selective first; stores index each together with
    (createdAt, id), or the cost of a page grows with everything that does not match."""
    orders: tuple[str, ...] = ()
    """Properties that are asked for in order across all partitions; stores index each with id."""


EXECUTIONS: Final = "executions"
CATALOG: Final = "catalog"
CONTROL: Final = "control"
VISIBILITY: Final = "visibility"
LEASES: Final = "leases"
AUDIT: Final = "audit"

CONTAINERS: Final[dict[str, ContainerSpec]] = {
    spec.name: spec
    for spec in (
        ContainerSpec(name=EXECUTIONS, partition=("tenantId", "executionId")),
        ContainerSpec(name=CATALOG, partition=("tenantId",), orders=("dueAt",)),
        ContainerSpec(name=CONTROL, partition=("id",)),
        ContainerSpec(
            name=VISIBILITY,
            partition=("tenantId",),
            filters=("key", "parent", "startedBy", "workflow", "status"),
        ),
        ContainerSpec(name=AUDIT, partition=("tenantId",), orders=("n",)),
        ContainerSpec(name=LEASES, partition=("id",)),
    )
}

MAX_BATCH_OPERATIONS: Final = 100  # Cosmos transactional batch
MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
MAX_ITEM_BYTES: Final = 2 * 1024 * 1024
MAX_ID_BYTES: Final = 1023
FORBIDDEN_ID_CHARACTERS: Final = "/\\?#"
MAX_NESTING: Final = 128


# --- what Weft itself allows ----------------------------------------------------------------------

INLINE_PAYLOAD_BYTES: Final = 64 * 1024  # larger payloads go to the payload store (claim check)
MAX_PAYLOAD_BYTES: Final = 50 * 1024 * 1024
MAX_BODY_BYTES: Final = 1024 * 1024  # an HTTP request body
MAX_TASKS: Final = 10_000
MAX_MAP_ITEMS: Final = 10_000
MAP_CHUNK_ITEMS: Final = 500
MAX_MAPS: Final = 60  # map tasks in one definition
MAX_CHILD_DEPTH: Final = 10  # executions above a child; one that nothing started has 0
MAX_EVENT_HOPS: Final = 10
"""Executions in a row that events of each other may start; the next event starts nothing."""
MAX_ERROR_BYTES: Final = 16 * 1024


# --- how long things may run ----------------------------------------------------------------------
# Three limits that only work in this order; `host.json` repeats the last two, and a test compares.

MAX_ACTIVITY_TIMEOUT_MS: Final = 30 * 60 * 1000
"""The longest `timeout` of one attempt that a definition may name for work in a worker."""
MAX_LOCK_RENEWAL_SECONDS: Final = 35 * 60
"""How long the host renews the lock of a single message: beyond the longest attempt, or the broker
would deliver a running task again."""
FUNCTION_TIMEOUT_SECONDS: Final = 40 * 60
"""When the host ends a function: beyond the renewal, so that a hung function loses its lock first
and the message is somebody else's before the host steps in."""
MAX_ORCHESTRATION_BATCH: Final = 32
"""Messages in one orchestration batch: small, because batches get no lock renewal."""
MAX_CONCURRENT_TASKS: Final = 64
"""Single messages of one queue that one worker process runs at once. Each class of tasks has as
many of its own, so that none waits for another's tasks to end."""
