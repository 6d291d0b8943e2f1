"""Runs a code workflow's generator for one turn: input in, steps one after the other, end told.

What ends an instance is told to Weft by its last step, an activity; only then does it return or
fail. Everything here is replayed with the workflow, so it keeps the same rules as that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from activities.code.context import CodeContext, child_frame
from activities.code.frame import Frame
from activities.code.registry import CodeRegistry, CodeWorkflow
from activities.code.retry import policy_from
from activities.code.tasks import ContinueAsNew, SignalTask, Task, TaskFailed, failure_in
from activities.code.values import check_size, to_json
from activities.failures import failure_of
from activities.outputs import NotAsDeclared, as_declared
from activities.values import findings
from orchestrator.domain import jsonvalues
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.orchestration import BadEnvelope, Envelope
from orchestrator.domain.orchestration_result import child_id, encode_output, failure_text
from orchestrator.domain.payload import Payload
from orchestrator.domain.retry import is_retryable, next_delay
from orchestrator.domain.topology import INLINE_PAYLOAD_BYTES
from orchestrator.ports import ActivityFailed
from orchestrator.ports_durable import (
    ACTIVITY_FUNCTION,
    CALL_FUNCTION,
    ENDED_FUNCTION,
    SUPPORT_FUNCTION,
    OrchestratorFunction,
    Pending,
    Replay,
)

Steps = Generator[Pending, Any, Any]


class OrchestrationFailed(Exception):
    """Ends an orchestrator function; its text holds the failure (`failure_text`)."""


def functions(registry: CodeRegistry) -> tuple[OrchestratorFunction, ...]:
    """The orchestrator functions of all code workflows; none if there are none."""
    made = [
        OrchestratorFunction(name=one.function, drive=_driver(registry, one)) for one in registry
    ]
    if made:
        made.append(OrchestratorFunction(name=CALL_FUNCTION, drive=_caller(registry)))
    return tuple(made)


def _driver(registry: CodeRegistry, workflow: CodeWorkflow) -> Any:
    def drive(replay: Replay) -> Steps:
        return (yield from run(replay, registry, workflow))

    return drive


def run(replay: Replay, registry: CodeRegistry, workflow: CodeWorkflow) -> Steps:
    """One turn of `workflow`; returns what the function returns. Raises `OrchestrationFailed`."""
    try:
        frame = Frame.decode(replay.input)
    except BadEnvelope as error:
        message = f"{workflow.function} is started by Weft, or by ctx.call_workflow: {error}"
        raise OrchestrationFailed(failure_text(_final("ENVELOPE_INVALID", message))) from None
    replay.restore(frame.signals, frame.seen)
    context = CodeContext(replay, frame, function=registry.function)
    failure: Failure | None = None
    result = ""
    try:
        given = yield from _input(replay, frame.envelope, workflow)
        value = yield from _steps(replay, workflow, context, given)
        if context.next_input is not None:
            replay.continue_as_new(_next(replay, frame, context.next_input))
            return ""
        result = yield from _output(replay, frame, workflow, value)
    except TaskFailed as error:
        failure = error.failure
    except (Exception, SystemExit) as error:
        failure = failure_of(error)
    if not frame.child:
        yield from _tell(replay, frame.envelope)
    if failure is not None:
        raise OrchestrationFailed(failure_text(failure))
    return result


def _input(replay: Replay, envelope: Envelope, workflow: CodeWorkflow) -> Steps:
    text = envelope.input
    if envelope.input_ref is not None:
        text = yield from _load(replay, envelope.input_ref)
    if workflow.input is None:
        return jsonvalues.loads(text or "null")
    try:
        return workflow.input.validate_json(text or "null")
    except ValidationError as error:
        message = f"the input of {workflow.name} is not valid: {findings(error)}"
        raise ActivityFailed(_final(FailureType.INPUT_INVALID, message)) from None


def _steps(replay: Replay, workflow: CodeWorkflow, context: CodeContext, given: Any) -> Steps:
    """The generator to its end; what it returned."""
    arguments = (context, given) if workflow.takes_input else (context,)
    generator = workflow.fn(*arguments)
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            asked = generator.send(answer) if error is None else generator.throw(error)
        except StopIteration as end:
            return end.value
        answer, error = None, None
        if context.next_input is not None:
            error = ContinueAsNew("return right after ctx.continue_as_new(…)")
        elif not isinstance(asked, Task):
            error = TypeError(
                f"{workflow.name} yielded {type(asked).__name__}; yield what the context's calls "
                "give (ctx.call_activity, ctx.all, …)"
            )
        else:
            try:
                yield from _wait(replay, asked)
                answer = asked.result
            except TaskFailed as failed:
                error = failed


def _wait(replay: Replay, task: Task[Any]) -> Steps:
    """Until `task` has ended, with all that its result needs."""
    with contextlib.suppress(Exception):  # `task.result` tells it in our words
        yield task.raw
    for part in [part for part in task.parts() if part.done]:
        part.settle(replay)
        if isinstance(part, SignalTask) and part.stored is not None:
            try:
                part.loaded = yield from _load(replay, part.stored)
            except ActivityFailed as error:
                part.lost = error.failure


def _next(replay: Replay, frame: Frame, text: str) -> str:
    signals, seen = replay.unread()
    following = frame.next(text)
    return Frame(
        envelope=following.envelope,
        generation=following.generation,
        child=frame.child,
        signals=tuple(signals),
        seen=tuple(seen),
    ).encode()


def _output(replay: Replay, frame: Frame, workflow: CodeWorkflow, value: Any) -> Steps:
    """The result as the function returns it: a large one is stored, and named."""
    adapter = workflow.output
    if adapter is not None:
        try:
            value = as_declared(adapter, value)
        except NotAsDeclared as error:
            message = f"the output of {workflow.name} is not valid: {error}"
            raise ActivityFailed(_final(FailureType.OUTPUT_INVALID, message)) from None
    what = f"the output of {workflow.name}"
    data = jsonvalues.dumps(to_json(value, what=what))
    check_size(len(data), what=what)
    text = data.decode()
    if frame.child or len(data) <= INLINE_PAYLOAD_BYTES:
        return encode_output(text)
    envelope = frame.envelope
    request = {"op": "store", "tenant": envelope.tenant, "execution": envelope.execution}
    request["text"] = text
    answer = yield from _support(replay, request)
    return encode_output(None, Payload.from_doc(jsonvalues.loads(answer)))  # type: ignore[arg-type]


def _tell(replay: Replay, envelope: Envelope) -> Steps:
    """Weft has the task looked at. It would look by itself, later: no reason to fail."""
    word = {
        "tenant": envelope.tenant,
        "execution": envelope.execution,
        "task": envelope.task,
        "item": envelope.item,
        "instance": replay.instance,
    }
    with contextlib.suppress(Exception):  # losing it costs time only: the sweeper looks as well
        yield replay.activity(ENDED_FUNCTION, _text(word))


def _load(replay: Replay, payload: Payload) -> Steps:
    return (yield from _support(replay, {"op": "load", "payload": payload.to_doc()}))


def _support(replay: Replay, request: dict[str, Any]) -> Steps:
    """Text from an activity of Weft's own. Raises `ActivityFailed`."""
    try:
        answer = yield replay.activity(SUPPORT_FUNCTION, _text(request))
    except Exception as error:
        raise ActivityFailed(failure_in(error)) from None
    return answer if isinstance(answer, str) else _text(answer)


# --- an activity with a policy, a child without a version ----------------------------------------


def _caller(registry: CodeRegistry) -> Any:
    """Both are instances of their own, so that whoever waits for one waits for one task of Durable:
    what Durable's host waits for is fixed when it is asked for, and a step added later to a group
    that is being waited for would begin when the group ends."""

    def drive(replay: Replay) -> Steps:
        request: Any = jsonvalues.loads(replay.input)
        if request["kind"] == "activity":
            return (yield from _attempts(replay, request))
        name = request["workflow"]
        answer = yield from _support(replay, {"op": "latest", "workflow": name})
        version = int(answer)
        try:
            function = registry.function(name, version)
        except KeyError as error:
            raise OrchestrationFailed(
                failure_text(_final("UNKNOWN_WORKFLOW", str(error.args[0])))
            ) from None
        id = child_id(replay.instance, 0, 1)
        task = replay.orchestrator(function, child_frame(request, version).encode(), id)
        return (yield from _passed_on(task))

    return drive


def _attempts(replay: Replay, request: dict[str, Any]) -> Steps:
    call: dict[str, Any] = request["call"]
    policy = policy_from(request["policy"])
    attempt = 1
    while True:
        task = replay.activity(ACTIVITY_FUNCTION, _text({**call, "attempt": attempt}))
        try:
            return (yield task)
        except Exception as error:
            failure = failure_in(error)
        delay = None
        if is_retryable(policy, failure):
            delay = next_delay(
                policy, attempt=attempt, key=call["key"], retry_after_ms=failure.retry_after_ms
            )
        if delay is None:
            raise OrchestrationFailed(failure_text(failure))
        if delay > 0:
            yield replay.timer(replay.now + timedelta(milliseconds=delay))
        attempt += 1


def _passed_on(task: Pending) -> Steps:
    try:
        return (yield task)
    except Exception as error:
        raise OrchestrationFailed(failure_text(failure_in(error))) from None


def _final(type: str, message: str) -> Failure:
    return Failure(type=type, message=message, retryable=False)


def _text(value: Any) -> str:
    return jsonvalues.dumps(value).decode()
