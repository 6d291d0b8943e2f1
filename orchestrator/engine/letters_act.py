"""What operators do about dead letters: retry, skip, fail, discard.

One batch changes everything that an action changes: the execution (under its ETag), the task
documents, the history, and the letters themselves (under theirs). So a letter that says RETRIED has
exactly one new attempt, however often the button was pressed and wherever a process died; the same
wish again gets the same answer, another one a `ConflictError`.

A retried task keeps its attempts and goes on counting; `granted` in its document says how many of
them no longer count against `maxAttempts`. An edited input is kept beside (`inputOverride`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.domain.effects import Outgoing
from orchestrator.domain.errors import ConflictError, InvalidError
from orchestrator.domain.inputs import Input
from orchestrator.domain.messages import BadMessage, Message, MessageType, decode
from orchestrator.domain.status import Code, ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import OnFailure, TaskType
from orchestrator.engine import (
    audit,
    compensation,
    competing,
    documents,
    erase,
    event_letters,
    event_retry,
    facts,
    inspect,
    letters_edit,
    letters_list,
    letters_notify,
    letters_wish,
    outbox,
    relay,
)
from orchestrator.engine.advance import advance, decide_with_facts
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.commit import MAX_BESIDE, Outdated, commit
from orchestrator.engine.control import MAX_REASON_CHARS
from orchestrator.engine.core import Engine
from orchestrator.engine.letters import LetterStatus, spec_of
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.sensitive import revealed
from orchestrator.engine.views_letters import DeadLetterView
from orchestrator.ports import (
    Conflict,
    Create,
    Delete,
    Document,
    NotFound,
    Operation,
    PreconditionFailed,
)

AT_ONCE = MAX_BESIDE // 3
"""Letters of one execution in one commit: each is up to three operations of its batch (itself, its
task's document, and that of the item's map)."""


async def act(engine: Engine, tenant: str, id: str, wish: Wish) -> DeadLetterView:
    """Do it, durably, and show the letter after it.

    Raises `NotFoundError`, `ConflictError` (resolved otherwise, or it makes no sense in this
    state), `InvalidError` (reason or edited input), `UnavailableError`."""
    check_reason(wish.reason)
    letter = await letters_list.read(engine, tenant, id)

    async def once(fresh: bool) -> None:
        found = await letters_list.read(engine, tenant, id) if fresh else letter
        if found.body["status"] != LetterStatus.OPEN.value:
            return await _known(engine, found.body, wish)
        try:
            await resolve(engine, [found], wish)
        except ConflictError:
            # Between the letter and its task was read, the same wish may have come true.
            found = await letters_list.read(engine, tenant, id)
            if found.body["status"] == LetterStatus.OPEN.value:
                raise
            await _known(engine, found.body, wish)

    await competing.operate(engine, (tenant, letter.body["executionId"]), once)
    return await letters_list.show(engine, tenant, id, reveal=revealed)


async def _known(engine: Engine, letter: dict[str, Any], wish: Wish) -> None:
    """The letter is resolved: a success if it was by this wish. Raises `ConflictError`."""
    if letter.get("wish") != wish.digest:
        raise _resolved(letter)
    await audit_letter(engine, letter)  # whoever did it may have died before that


def check_reason(reason: str) -> None:
    """Raises `InvalidError` for one that is too long."""
    if len(reason) > MAX_REASON_CHARS:
        raise InvalidError(f"the reason may have {MAX_REASON_CHARS} characters", code="REASON")


async def resolve(engine: Engine, found: Sequence[Document], wish: Wish) -> list[Document]:
    """Do it to OPEN letters of one execution (at most `AT_ONCE`), in one batch; those that it was
    done to. Raises `ConflictError` if it makes no sense for any of them, `Outdated`."""
    first = found[0].body
    partition = (first["tenantId"], first["executionId"])
    now = engine.clock.now()
    messages = [letter for letter in found if letter.body["kind"] == "message"]
    if first["kind"] == event_letters.KIND:
        done = await event_retry.resolve(engine, partition[0], found, wish, now)
    elif messages:
        await _messages(engine, partition, messages, wish, now)
        done = messages
    elif notifications := [one for one in found if one.body["kind"] == letters_notify.KIND]:
        await letters_notify.act(engine, partition, notifications, wish, now)
        done = notifications
    else:
        aggregate = await inspect.aggregate(engine, *partition)
        if unheard := _unheard_items(aggregate, found):
            # Only once it has heard of them is it known whether it waits for a decision.
            await advance(engine, partition, unheard)
            aggregate = await inspect.aggregate(engine, *partition)
        if _changes_nothing(aggregate, found, wish):
            await _write(
                engine, partition, [letters_wish.marked(letter, wish, now) for letter in found]
            )
            done = list(found)
        else:
            erase.refuse_if_erased(aggregate.header)
            done = await _change(engine, aggregate, found, wish, now)
    engine.metrics.count("weft_operator_actions_total", f"deadletter.{wish.action.value}")
    for letter in done:
        await audit_letter(engine, letters_wish.marked(letter, wish, now).body)
    return done


async def audit_letter(engine: Engine, letter: dict[str, Any]) -> None:
    """The one record of how a letter was resolved, if there is none yet."""
    done, id = letter["resolved"], letters_list.public_id(letter)
    await audit.record(
        engine,
        letter["tenantId"],
        action=f"deadletter.{done['action']}",
        execution=letter["executionId"],
        task=id,
        resource=f"deadletter:{id}",
        by=done["by"],
        reason=done["reason"],
        id=f"deadletter:{id}",
    )


def _changes_nothing(aggregate: Aggregate, found: Sequence[Document], wish: Wish) -> bool:
    """Whether the action concerns the letters alone. Raises `ConflictError` where the execution
    waits for a decision that this is not."""
    if wish.action not in (Action.FAIL, Action.DISCARD):
        return False
    state, workflow = aggregate.state, aggregate.workflow
    # A replica that lags may show it before its start.
    alive = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.PAUSED)
    if workflow.on_failure is not OnFailure.HOLD or state.status not in alive:
        return True
    held = any(_holds(aggregate, workflow.index[letter.body["task"]]) for letter in found)
    if held and wish.action is Action.DISCARD:
        raise ConflictError(
            "the execution holds for this task; retry it, skip it with an output, or fail it",
            code="EXECUTION_HOLDS",
        )
    return not held


def _holds(aggregate: Aggregate, task: int) -> bool:
    """Whether the execution waits for a decision about this task, or will: a map that tolerates
    its failed items needs none."""
    progress = aggregate.state.maps.get(task)
    if progress is not None and aggregate.state.tasks[task] != Code.DEAD_LETTERED:
        return aggregate.workflow.tasks[task].tolerate.exceeded(progress)
    return aggregate.state.tasks[task] != Code.DEAD_ACCEPTED


async def _change(
    engine: Engine, aggregate: Aggregate, found: Sequence[Document], wish: Wish, now: int
) -> list[Document]:
    """The actions that change the execution."""
    compensation.check_letters(aggregate, [letter.body["task"] for letter in found])
    ids = {letter.id: letters_wish.task_id(letter.body) for letter in found}
    maps = {documents.task_id(one.body["task"]) for one in found if "item" in one.body}
    docs = await patiently(
        engine, engine.store.read_many, EXECUTIONS, aggregate.partition, [*{*ids.values(), *maps}]
    )
    fitting = [
        letter for letter in found if letters_wish.is_latest(letter.body, docs.get(ids[letter.id]))
    ]
    if not fitting:
        raise _no_sense(aggregate, wish)
    if wish.edited:
        await letters_edit.check(engine, aggregate, fitting[0].body, wish.value)
    inputs: list[Input] = await facts.inputs_of(engine, aggregate, _unheard(aggregate, fitting))
    inputs += letters_wish.inputs(aggregate, [letter.body for letter in fitting], wish)
    outputs = {
        one.body["task"]: wish.value
        for one in fitting
        if wish.action is Action.SKIP and "item" not in one.body
    }
    decision = await decide_with_facts(engine, aggregate, inputs, now, outputs)
    done = [letter for letter in fitting if letters_wish.was_done(aggregate, decision, letter.body)]
    if not done:
        raise _no_sense(aggregate, wish)
    if len(done) < len(fitting):
        return await _change(engine, aggregate, done, wish, now)
    beside: list[Operation] = [letters_wish.marked(letter, wish, now) for letter in done]
    if wish.action is not Action.FAIL:
        value = await letters_wish.kept(engine, aggregate, done[0].id, wish)
        # While paused its message is dropped: resuming must find it overdue.
        paused = aggregate.state.status is ExecutionStatus.PAUSED
        grace = 0 if paused else engine.tunables.retry_grace_ms
        beside += [
            letters_wish.again(
                docs[ids[one.id]],
                one.body,
                wish,
                value,
                now,
                grace,
                http=spec_of(aggregate, one.body).type is TaskType.HTTP,
            )
            for one in done
        ]
        # A map's own document says nothing but that its items failed; unless they do so again now.
        tasks = aggregate.workflow.tasks
        maps -= {documents.task_id(tasks[at].id) for at in decision.failures}
        beside += [Delete(id, docs[id].etag) for id in sorted(maps & docs.keys())]
    _, sends = await commit(engine, aggregate, decision, now=now, beside=beside)
    await relay.send_now(engine, sends)
    return done


def _unheard_items(aggregate: Aggregate, found: Sequence[Document]) -> list[Message]:
    """Items of maps that have failed for good, where an execution would hold for their map."""
    if aggregate.workflow.on_failure is not OnFailure.HOLD:
        return []
    state, index = aggregate.state, aggregate.workflow.index
    unheard: list[Message] = []
    for one in found:
        task, item = one.body["task"], one.body.get("item")
        progress = state.maps.get(index[task])
        if progress is None or item is None or state.tasks[index[task]] != Code.WAITING:
            continue
        if progress.items[item] == Code.QUEUED:
            unheard.append(Message(MessageType.TASK_FINISHED, *aggregate.partition, task, item))
    return unheard


def _unheard(aggregate: Aggregate, found: Sequence[Document]) -> list[Message]:
    """What may have ended without the orchestrator knowing yet: these tasks; and while the
    execution fails, whatever was given back."""
    tasks = [(one.body["task"], one.body.get("item")) for one in found]
    kind, partition = MessageType.TASK_FINISHED, aggregate.partition
    looks = [Message(kind, *partition, task, item) for task, item in tasks]
    if aggregate.state.failure is not None:
        looks.append(Message(MessageType.CHECK, *partition))
    return looks


async def _messages(
    engine: Engine, partition: tuple[str, str], found: Sequence[Document], wish: Wish, now: int
) -> None:
    """Letters of messages that the broker gave up: sent again, under new ids, or put away."""
    outgoing: list[Outgoing] = []
    if wish.action is Action.RETRY and not wish.edited:
        for letter in found:
            try:
                outgoing.append(Outgoing(decode(letter.body["body"].encode())))
            except BadMessage as error:
                raise ConflictError(
                    f"the message cannot be read ({error.reason}); discard it",
                    code="CANNOT_RETRY",
                ) from None
    elif wish.action is not Action.DISCARD:
        raise ConflictError(
            "a message can be retried as it is, or discarded", code=f"CANNOT_{wish.action.upper()}"
        )
    classes = [one.message.priority.value for one in outgoing]  # one execution: all alike
    header = {"priority": classes[0]} if classes else {}
    sends = outbox.build(engine, partition, outgoing, now=now, header=header)
    marks = [letters_wish.marked(letter, wish, now) for letter in found]
    await _write(engine, partition, [*marks, *(Create(doc) for doc in sends)])
    await relay.send_now(engine, sends)


async def _write(engine: Engine, partition: tuple[str, str], operations: list[Operation]) -> None:
    """A batch that leaves the execution alone. Raises `Outdated`, also where the answer was lost:
    the letters then say whether it was applied."""
    try:
        await patiently(engine, engine.store.batch, EXECUTIONS, partition, operations)
    except (PreconditionFailed, Conflict, NotFound, Unclear) as error:
        raise Outdated from error


def _resolved(letter: dict[str, Any]) -> ConflictError:
    done = letter["resolved"]
    return ConflictError(
        f"this dead letter is {letter['status']} already, by {done['by'] or 'somebody'}",
        code="DEAD_LETTER_RESOLVED",
    )


def _no_sense(aggregate: Aggregate, wish: Wish) -> ConflictError:
    return ConflictError(
        f"there is nothing to {wish.action.value}: the task no longer stands as this dead letter "
        f"says (the execution is {aggregate.state.status.value}); look at it, or discard the "
        "letter",
        code=f"CANNOT_{wish.action.value.upper()}",
    )
