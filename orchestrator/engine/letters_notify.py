"""Dead letters of notifications: send again, or put away. They leave the execution alone."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.effects import Outgoing
from orchestrator.domain.errors import ConflictError
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import documents, letters_wish, outbox, relay
from orchestrator.engine.commit import Outdated
from orchestrator.engine.core import Engine
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import (
    Conflict,
    Create,
    Document,
    NotFound,
    Operation,
    PreconditionFailed,
    Replace,
)

KIND = "notification"
_DROPPED = ("endedAt", "recorded", "sweepAt", "dueAt", "lease")


async def act(
    engine: Engine, partition: tuple[str, str], found: Sequence[Document], wish: Wish, now: int
) -> None:
    """In one batch: the letters, and for a retry the notifications and their messages. Raises
    `ConflictError` for what makes no sense, `Outdated`."""
    if wish.action not in (Action.RETRY, Action.DISCARD) or wish.edited:
        raise ConflictError(
            "a notification can be sent again as it is (retry), or put away (discard)",
            code=f"CANNOT_{wish.action.value.upper()}",
        )
    operations: list[Operation] = [letters_wish.marked(letter, wish, now) for letter in found]
    outgoing: list[Outgoing] = []
    if wish.action is Action.RETRY:
        keys = [letter.body["notification"] for letter in found]
        ids = [documents.notification_id(key) for key in keys]
        docs = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, ids)
        for key, id in zip(keys, ids, strict=True):
            doc = docs.get(id)
            if doc is None or doc.body["status"] != TaskStatus.DEAD_LETTERED.value:
                raise Outdated
            body = {name: value for name, value in doc.body.items() if name not in _DROPPED}
            body |= {
                "status": TaskStatus.RETRYING.value,
                "granted": doc.body["attempt"],
                "dueAt": now,
                "sweepAt": now + engine.tunables.retry_grace_ms,
            }
            operations.append(Replace(body, doc.etag))
            outgoing.append(Outgoing(Message(MessageType.NOTIFY, *partition, key)))
    sends = outbox.build(engine, partition, outgoing, now=now, header={})
    operations += [Create(entry) for entry in sends]
    try:
        await patiently(engine, engine.store.batch, EXECUTIONS, partition, operations)
    except (PreconditionFailed, Conflict, NotFound, Unclear) as error:
        raise Outdated from error
    await relay.send_now(engine, sends)
