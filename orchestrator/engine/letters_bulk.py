"""Many dead letters at once: those of one execution, or all that a filter finds.

Nothing is remembered between the letters: each batch is complete in itself, and what is done is no
longer OPEN. So a bulk action that dies halfway has lost nothing and doubled nothing, and the same
call again does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from orchestrator.domain.errors import ConflictError, LimitError, NotFoundError, WeftError
from orchestrator.domain.inputs import Retry
from orchestrator.domain.reopening import REOPENABLE
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import (
    audit,
    compensation,
    competing,
    erase,
    inspect,
    letters_act,
    letters_list,
    letters_notify,
    relay,
)
from orchestrator.engine.advance import decide_with_facts
from orchestrator.engine.commit import Outdated, commit
from orchestrator.engine.core import Engine
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_list import After, LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.engine.resilience import patiently
from orchestrator.engine.sensitive import revealed
from orchestrator.engine.views import ExecutionView
from orchestrator.engine.views_letters import BulkRefusal, BulkResult
from orchestrator.ports import Document

MAX_BULK = 1_000
BUDGET_MS = 120_000
"""A bulk action answers after this even if there is more: an HTTP answer has 230 s."""
PAGE = 200


async def bulk(
    engine: Engine,
    tenant: str,
    filter: LetterFilter,
    wish: Wish,
    *,
    limit: int = MAX_BULK,
    but: str = "",
) -> BulkResult:
    """`part` from the newest letter on, without where it ended."""
    return (await part(engine, tenant, filter, wish, limit=limit, but=but))[0]


async def part(
    engine: Engine,
    tenant: str,
    filter: LetterFilter,
    wish: Wish,
    *,
    limit: int = MAX_BULK,
    but: str = "",
    after: After = None,
) -> tuple[BulkResult, After]:
    """Do it to at most `limit` OPEN letters that `filter` finds, newest first, but those of the
    kind `but`. What is refused stays as it is and is listed with the reason; so the next part
    begins behind it, at the second value (None: there is no more). Raises `InvalidError` (reason).
    """
    letters_act.check_reason(wish.reason)
    until = engine.clock.now() + BUDGET_MS
    wanted = replace(filter, status=LetterStatus.OPEN)
    done, seen = 0, 0
    refused: list[BulkRefusal] = []
    more = True
    while more and seen < limit and engine.clock.now() < until:
        found, after = await letters_list.find(
            engine, tenant, wanted, limit=min(PAGE, limit - seen), after=after
        )
        more = after is not None
        seen += len(found)
        found = [letter for letter in found if letter.body["kind"] != but]
        count, faults = await _each(engine, tenant, found, wish)
        done += count
        refused += faults
    return BulkResult(action=wish.action.value, done=done, refused=refused, more=more), after


async def these(
    engine: Engine, tenant: str, ids: Sequence[str], wish: Wish
) -> tuple[int, list[BulkRefusal]]:
    """Do it to the letters of these ids (`letters_list.public_id`); how many have been done, now
    or by the same call before, and which were refused. What others have resolved is neither."""
    letters: list[Document] = []
    for execution, some in groupby(sorted(map(letters_list.stored_id, ids)), lambda one: one[0]):
        names = [name for _, name in some]
        read = engine.store.read_many
        found = await patiently(engine, read, EXECUTIONS, (tenant, execution), names)
        letters += found.values()
    wanted, done = await _sorted_out(engine, letters, wish)
    count, refused = await _each(engine, tenant, wanted, wish)
    return done + count, refused


async def _each(
    engine: Engine, tenant: str, letters: list[Document], wish: Wish
) -> tuple[int, list[BulkRefusal]]:
    """Of one execution in one commit; the order between executions does not matter."""
    done = 0
    refused: list[BulkRefusal] = []

    def whose(letter: Document) -> tuple[str, str]:
        return letter.body["executionId"], letter.body["kind"]

    for _, some in groupby(sorted(letters, key=whose), whose):
        ours = list(some)
        for at in range(0, len(ours), letters_act.AT_ONCE):
            count, faults = await _some(engine, tenant, ours[at : at + letters_act.AT_ONCE], wish)
            done += count
            refused += faults
    return done, refused


async def _some(
    engine: Engine, tenant: str, letters: list[Document], wish: Wish
) -> tuple[int, list[BulkRefusal]]:
    """A few of one execution: how many were done, and which were refused."""
    left, done = letters, 0
    refused: list[BulkRefusal] = []

    async def once(fresh: bool) -> None:
        nonlocal left, done
        if fresh:
            left, mine = await _still_open(engine, tenant, left, wish)
            done += mine
        while left:
            finished = {one.id for one in await letters_act.resolve(engine, left, wish)}
            done += len(finished)
            rest = [one for one in left if one.id not in finished]
            left, _ = await _still_open(engine, tenant, rest, wish)

    try:
        await competing.compete(engine, (tenant, letters[0].body["executionId"]), once)
    except Outdated:
        refused += [_refusal(one, competing.too_fast()) for one in left]
    except (ConflictError, NotFoundError, LimitError) as error:
        if len(left) == 1:
            return done, [_refusal(left[0], error)]
        # One of them may be to blame for all: each by itself.
        for one in left:
            count, faults = await _some(engine, tenant, [one], wish)
            done += count
            refused += faults
    return done, refused


async def _still_open(
    engine: Engine, tenant: str, letters: list[Document], wish: Wish
) -> tuple[list[Document], int]:
    """Those that nobody has resolved meanwhile, as they are stored now; and how many `wish` itself
    has: a batch whose answer was lost."""
    fresh = [
        await letters_list.read(engine, tenant, letters_list.public_id(one.body)) for one in letters
    ]
    return await _sorted_out(engine, fresh, wish)


async def _sorted_out(
    engine: Engine, fresh: list[Document], wish: Wish
) -> tuple[list[Document], int]:
    """`_still_open` of letters that have just been read."""
    resolved = [one for one in fresh if one.body["status"] != LetterStatus.OPEN.value]
    mine = [
        one
        for one in resolved
        if one.body.get("wish") == wish.digest and one.body["resolved"]["by"] == wish.by
    ]
    for one in mine:
        await letters_act.audit_letter(engine, one.body)
    return [one for one in fresh if one not in resolved], len(mine)


def _refusal(letter: Document, error: WeftError) -> BulkRefusal:
    id = letters_list.public_id(letter.body)
    return BulkRefusal(id=id, code=error.code, message=error.message)


async def retry_execution(
    engine: Engine, tenant: str, execution: str, *, by: str, reason: str = ""
) -> ExecutionView:
    """`retry`, and show the execution after it."""
    await retry(engine, tenant, execution, by=by, reason=reason)
    return await inspect.execution(engine, tenant, execution, reveal=revealed)


async def retry(engine: Engine, tenant: str, execution: str, *, by: str, reason: str = "") -> None:
    """Retry all that is dead in an execution, and whatever a failure or its time limit had stopped.
    One that runs and has nothing dead is a success: it was retried before.

    Raises `NotFoundError`, `ConflictError`, `InvalidError`, `UnavailableError`."""
    letters_act.check_reason(reason)
    found = await inspect.aggregate(engine, tenant, execution)
    status = found.state.status
    if found.state.ending is not None:
        raise compensation.already(found)
    erase.refuse_if_erased(found.header)
    if status not in REOPENABLE:
        raise ConflictError(
            f"the execution is {status.value}; only a failed one can be retried, see replay",
            code="CANNOT_RETRY",
        )
    wish = Wish(action=Action.RETRY, by=by, reason=reason)
    mine = LetterFilter(execution=execution)
    # Who could not be told of the end is another matter than how it ended.
    result = await bulk(engine, tenant, mine, wish, limit=100_000, but=letters_notify.KIND)
    if not result.done and status is ExecutionStatus.FAILED:
        await _reopen(engine, tenant, execution, by, reason)


async def _reopen(engine: Engine, tenant: str, execution: str, by: str, reason: str) -> None:
    """Nothing is dead: take up what was cancelled when its time was over."""

    async def once(fresh: bool) -> None:
        aggregate = await inspect.aggregate(engine, tenant, execution)
        if aggregate.state.status is not ExecutionStatus.FAILED:
            return
        if aggregate.state.ending is not None:
            raise compensation.already(aggregate)
        erase.refuse_if_erased(aggregate.header)
        now = engine.clock.now()
        again = Retry(by=by, reason=reason, cancelled=True)
        decision = await decide_with_facts(engine, aggregate, [again], now)
        if not decision.events:
            raise ConflictError(
                "nothing in this execution can be retried: no task of it is dead or was stopped; "
                "replay it instead",
                code="NOTHING_TO_RETRY",
            )
        _, sends = await commit(engine, aggregate, decision, now=now)
        await relay.send_now(engine, sends)
        engine.metrics.count("weft_operator_actions_total", "retry")
        await audit.record(
            engine,
            tenant,
            action="retry",
            execution=execution,
            by=by,
            reason=reason,
            details={"before": aggregate.state.status.value, "seq": aggregate.state.seq + 1},
        )

    await competing.operate(engine, (tenant, execution), once)
