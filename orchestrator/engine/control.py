"""What operators do to a running execution: pause, resume, cancel, terminate.

The process that gets the request acts as an orchestrator: it loads, decides with the operator's
input, commits under the ETag, and sends. So an answer says what is stored, and every race (pause
while completing, resume twice, cancel while a result arrives) has one winner and one history.

Asking for what is already so succeeds without an event. What makes no sense any more is a
`ConflictError` that names the state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.domain.decide import Decision
from orchestrator.domain.errors import ConflictError, InvalidError
from orchestrator.domain.inputs import Cancel, Input, Pause, Resume, Terminate
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus
from orchestrator.engine import audit, competing, facts, inspect, relay, shapes
from orchestrator.engine.advance import decide_with_facts
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.commit import commit
from orchestrator.engine.core import Engine
from orchestrator.engine.sensitive import revealed
from orchestrator.engine.views import ExecutionView

log = logging.getLogger(__name__)

MAX_REASON_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class Action:
    """One thing an operator can do. `done`: states in which it is so already, or `is_done` says
    that it is; `refused`: those in which it cannot be done any more; `check`: also look after work
    in flight."""

    name: str
    make: Callable[[str, str], Input]
    done: frozenset[ExecutionStatus]
    refused: frozenset[ExecutionStatus]
    check: bool = False
    is_done: Callable[[ExecutionState], bool] = lambda state: False


def _cancelling(state: ExecutionState) -> bool:
    return state.ending is ExecutionStatus.CANCELLED


def _compensated(state: ExecutionState) -> bool:
    """Also if there was nothing to compensate."""
    ended = state.status is ExecutionStatus.CANCELLED and not state.undo
    return _cancelling(state) or ended


PAUSE = Action(
    "pause",
    lambda by, reason: Pause(by=by, reason=reason),
    done=frozenset({ExecutionStatus.PAUSED}),
    refused=TERMINAL_EXECUTION | {ExecutionStatus.COMPENSATING},
)
RESUME = Action(
    "resume",
    lambda by, reason: Resume(by=by, reason=reason),
    done=frozenset({ExecutionStatus.PENDING, ExecutionStatus.RUNNING}),
    refused=TERMINAL_EXECUTION | {ExecutionStatus.COMPENSATING},
    check=True,
)
CANCEL = Action(
    "cancel",
    lambda by, reason: Cancel(by=by, reason=reason),
    done=frozenset({ExecutionStatus.CANCELLED}),
    refused=frozenset(
        {ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.COMPENSATING}
    ),
    is_done=_cancelling,
)
CANCEL_COMPENSATING = Action(
    "cancel",
    lambda by, reason: Cancel(by=by, reason=reason, compensate=True),
    done=frozenset(),
    refused=TERMINAL_EXECUTION | {ExecutionStatus.COMPENSATING},
    is_done=_compensated,
)
TERMINATE = Action(
    "terminate",
    lambda by, reason: Terminate(by=by, reason=reason),
    done=frozenset({ExecutionStatus.CANCELLED}),
    refused=frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.FAILED}),
)


async def act(
    engine: Engine, tenant: str, execution: str, action: Action, *, by: str, reason: str = ""
) -> ExecutionView:
    """`do`, and show the execution after it."""
    await do(engine, tenant, execution, action, by=by, reason=reason)
    return await inspect.execution(engine, tenant, execution, reveal=revealed)


async def do(
    engine: Engine, tenant: str, execution: str, action: Action, *, by: str, reason: str = ""
) -> None:
    """Do `action`, durably.

    Raises `NotFoundError`, `ConflictError` (it makes no sense in this state), `InvalidError` (the
    reason is too long), `UnavailableError` (too many commits in between)."""
    if len(reason) > MAX_REASON_CHARS:
        raise InvalidError(f"the reason may have {MAX_REASON_CHARS} characters", code="REASON")

    async def once(fresh: bool) -> None:
        aggregate = await inspect.aggregate(engine, tenant, execution)
        status = aggregate.state.status
        if status in action.done or action.is_done(aggregate.state):
            return
        if status in action.refused:
            raise ConflictError(
                _refusal(action, status),
                code=f"CANNOT_{action.name.upper()}",
            )
        if action is PAUSE and shapes.waiting_for(aggregate):
            # Pausing begins it (its time limit counts), and it has no place to begin in.
            raise ConflictError(
                "the execution has not begun: it waits for a place in its concurrency group; "
                "pause it when it runs, or cancel it",
                code="CANNOT_PAUSE",
            )
        now = engine.clock.now()
        decision = await _decide(engine, aggregate, action, by, reason, now)
        _, sends = await commit(engine, aggregate, decision, now=now)
        await relay.send_now(engine, sends)
        engine.metrics.count("weft_operator_actions_total", action.name)
        await audit.record(
            engine,
            tenant,
            action=action.name,
            execution=execution,
            by=by,
            reason=reason,
            details={"before": status.value, "seq": aggregate.state.seq + 1},
        )

    await competing.operate(engine, (tenant, execution), once)


def _refusal(action: Action, status: ExecutionStatus) -> str:
    if status is ExecutionStatus.COMPENSATING:
        return "the execution is COMPENSATING; wait for its end, or terminate it"
    return f"the execution is {status.value}; there is nothing left to {action.name}"


async def _decide(
    engine: Engine, aggregate: Aggregate, action: Action, by: str, reason: str, now: int
) -> Decision:
    """Resuming looks after what was in flight: workers dropped its messages meanwhile."""
    inputs: list[Input] = [action.make(by, reason)]
    if action.check:
        check = Message(MessageType.CHECK, *aggregate.partition)
        inputs += await facts.inputs_of(engine, aggregate, [check], resuming=True)
    return await decide_with_facts(engine, aggregate, inputs, now)
