"""What a code workflow is handed: the steps it may take, and what it may know.

All of it is the same in every replay. What differs from one run to the next (the clock, random
numbers, files, the network) is not here, and belongs into activities.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from activities.code.frame import Frame
from activities.code.retry import Retry, policy_doc
from activities.code.tasks import ContinueAsNew, SignalTask, Task, Together
from activities.code.values import Secret, duration_ms, take_secrets, to_json, to_text
from activities.registry import RESERVED
from orchestrator.domain import jsonvalues
from orchestrator.domain.built_in import PREFIX
from orchestrator.domain.defaults import DEFAULT_TIMEOUT_MS, MAX_ATTEMPT_TIMEOUT_MS
from orchestrator.domain.durations import format_duration
from orchestrator.domain.orchestration import Envelope
from orchestrator.domain.orchestration_result import child_id, decode_output
from orchestrator.ports_durable import ACTIVITY_FUNCTION, CALL_FUNCTION, Pending, Replay


class ReplayLogger(logging.LoggerAdapter[logging.Logger]):
    """Says everything once: nothing is logged by a step that was taken before."""

    def __init__(self, logger: logging.Logger, replay: Replay, extra: dict[str, Any]) -> None:
        super().__init__(logger, extra)
        self._replay = replay

    def isEnabledFor(self, level: int) -> bool:
        """False while replaying."""
        return not self._replay.replaying and super().isEnabledFor(level)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the ids; they win."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


class CodeContext:
    """The first argument of a code workflow. Methods that return a `Task` begin nothing until it is
    yielded, alone or within `all` and `any`."""

    def __init__(
        self, replay: Replay, frame: Frame, *, function: Callable[[str, int], str]
    ) -> None:
        """`function`: the Azure function of a code workflow's version; raises `KeyError`."""
        self._replay = replay
        self._frame = frame
        self._function = function
        self._steps = 0
        self.next_input: str | None = None
        """JSON text of the input of the next generation, once it was asked for."""
        envelope = frame.envelope
        self.log = ReplayLogger(
            logging.getLogger(f"weft.code.{envelope.workflow}"),
            replay,
            {
                "tenant": envelope.tenant,
                "execution_id": envelope.execution,
                "workflow": envelope.workflow,
                "version": envelope.version,
                "instance_id": replay.instance,
            },
        )

    # --- what it is -------------------------------------------------------------------------------

    @property
    def execution(self) -> str:
        """Id of the execution; a child has its parent's."""
        return self._frame.envelope.execution

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self._frame.envelope.tenant

    @property
    def workflow(self) -> str:
        """Name of this workflow."""
        return self._frame.envelope.workflow

    @property
    def version(self) -> int:
        """Version of this workflow; an execution keeps its own."""
        return self._frame.envelope.version

    @property
    def generation(self) -> int:
        """How often it has gone on as new."""
        return self._frame.generation

    @property
    def is_replaying(self) -> bool:
        """Whether this step was taken before. For logs and metrics only: what depends on it is not
        deterministic."""
        return self._replay.replaying

    @property
    def now(self) -> datetime:
        """The time of this step (UTC, aware), the same in every replay."""
        return self._replay.now

    def new_id(self) -> str:
        """A UUID as text, the same in every replay."""
        return self._replay.new_id()

    # --- steps ------------------------------------------------------------------------------------

    def call_activity(
        self,
        name: str,
        input: Any = None,
        *,
        retry: Retry | None = None,
        timeout: str | None = None,
    ) -> Task[Any]:
        """Run the `@activity` of that name; gives its output (JSON).

        `retry`: None runs it once. With a policy the attempts are an instance of their own, so that
        it can be combined with `all` and `any` like any other step. `timeout`: of one attempt,
        5 min unless given, 30 min at most. All attempts have the same idempotency key. Raises
        `ActivityFailed` if `input` is no JSON or too large, `ValueError` for a built-in activity:
        what tenants may reach by them is decided per task of a definition.
        """
        if name.partition(".")[0] == RESERVED:
            raise ValueError(f"{name} is built in; write an activity of your own that does it")
        given, secrets = take_secrets(input)
        what = f"the input of {name}"
        envelope = self._frame.envelope
        number = self._number()
        call = {
            "v": 1,
            "activity": name,
            # As text: on the way to the function Durable's library makes objects of some dicts.
            "input": to_text(given, what=what),
            "key": f"{self._replay.instance}:{self.generation}:{number}",
            "timeoutMs": _timeout(timeout),
            "tenant": envelope.tenant,
            "execution": envelope.execution,
            "task": f"{envelope.task}.{number}",
            "item": envelope.item,
            "traceparent": envelope.traceparent,
        }
        if secrets:
            call["secrets"] = secrets
        if retry is None:
            return self._task(self._replay.activity(ACTIVITY_FUNCTION, _text(call)))
        request = {"kind": "activity", "call": call, "policy": policy_doc(retry.policy())}
        return self._child(CALL_FUNCTION, _text(request), number)

    def call_workflow(
        self, name: str, input: Any = None, *, version: int | None = None
    ) -> Task[Any]:
        """Run another code workflow as a child; gives its output (JSON).

        `version`: None takes the latest that is deployed when it starts, and stays on it. Raises
        `KeyError` if that version is not deployed, `ValueError` for one of Weft's own.
        """
        if name.startswith(PREFIX):
            raise ValueError(f"{name} is Weft's own; it is started by its route of the API only")
        envelope = self._frame.envelope
        text = to_text(input, what=f"the input of {name}")
        request = {
            "kind": "workflow",
            "workflow": name,
            "input": text,
            "tenant": envelope.tenant,
            "execution": envelope.execution,
            "task": envelope.task,
            "item": envelope.item,
            "traceparent": envelope.traceparent,
        }
        number = self._number()
        if version is None:
            return self._child(CALL_FUNCTION, _text(request), number)
        frame = child_frame(request, version)
        return self._child(self._function(name, version), frame.encode(), number)

    def sleep(self, duration: str | timedelta | None = None, *, until: Any = None) -> Task[None]:
        """Wait for a duration (`30s`, `2d`, a `timedelta`) or until a time (an aware `datetime`, or
        ISO 8601 text with an offset). What lies behind is over at once. Raises `ValueError`."""
        if (duration is None) is (until is None):
            raise ValueError("sleep takes a duration or `until=`, one of them")
        at = self.now + _span(duration) if duration is not None else _moment(until)
        return Task(self._replay.timer(at), lambda _: None)

    def wait_for_signal(self, name: str, *, timeout: str | timedelta | None = None) -> Task[Any]:
        """The payload of the next signal of that name; signals that came before wait for it.

        A signal is handed to one wait, the newest of several. After `timeout` it fails with
        SIGNAL_TIMEOUT, and a later signal is kept for the next wait.
        """
        event = self._replay.signal(name)
        if timeout is None:
            return SignalTask(name, event, None, event)
        timer = self._replay.timer(self.now + _span(timeout))
        return SignalTask(name, event, timer, self._replay.any([event, timer]))

    def all(self, tasks: Sequence[Task[Any]]) -> Task[list[Any]]:
        """All results, in the order of `tasks`. Fails as soon as one fails; the others go on."""
        kept = _checked(tasks)
        raw = self._replay.all([task.raw for task in kept])
        return Together(raw, kept, lambda _: [task.result for task in kept])

    def any(self, tasks: Sequence[Task[Any]]) -> Task[Task[Any]]:
        """The task that ended first, well or not: look at its `result`. The others go on, and may
        be yielded again. Raises `ValueError` for no tasks: nothing could ever end."""
        kept = _checked(tasks)
        if not kept:
            raise ValueError("any() of no tasks would wait for ever")
        raw = self._replay.any([task.raw for task in kept])
        return Together(raw, kept, lambda won: _winner(kept, won))

    def continue_as_new(self, input: Any = None) -> None:
        """End this run and begin anew with `input` and an empty history: for workflows that loop
        for ever. Return right after it. Signals that were not taken are kept."""
        self.next_input = to_text(input, what="the input of the next generation")

    def set_status(self, value: Any) -> None:
        """Show `value` (JSON, at most 16 KB) beside the execution. Raises `ValueError`."""
        shown = to_json(value, what="the status")
        if len(jsonvalues.dumps(shown)) > MAX_STATUS_BYTES:
            raise ValueError(f"the status has more than {MAX_STATUS_BYTES} bytes of JSON")
        self._replay.set_status(shown)

    def secret(self, name: str) -> Secret:
        """The tenant's secret, for a place in an activity's input. The worker puts the value in;
        it is never in the history."""
        return Secret(name)

    def _number(self) -> int:
        if self.next_input is not None:
            raise ContinueAsNew("return right after ctx.continue_as_new(…)")
        self._steps += 1
        return self._steps

    def _child(self, function: str, text: str, number: int) -> Task[Any]:
        id = child_id(self._replay.instance, self.generation, number)
        return self._task(self._replay.orchestrator(function, text, id))

    def _task(self, raw: Pending) -> Task[Any]:
        return Task(raw, read_result)


MAX_STATUS_BYTES: Final = 16 * 1024
"""What Durable takes as custom status."""


def platform_step(context: CodeContext, function: str, request: dict[str, Any]) -> Task[Any]:
    """One of Weft's own activity functions, for Weft's own workflows: they refuse executions of any
    other."""
    context._number()
    envelope = context._frame.envelope
    whose = {"tenant": envelope.tenant, "execution": envelope.execution}
    return context._task(context._replay.activity(function, _text({**request, **whose})))


def child_frame(request: dict[str, Any], version: int) -> Frame:
    """What a child is started with; `request` as `call_workflow` makes it."""
    envelope = Envelope(
        tenant=request["tenant"],
        execution=request["execution"],
        task=request["task"],
        item=request["item"],
        workflow=request["workflow"],
        version=version,
        input=request["input"],
        traceparent=request["traceparent"],
    )
    return Frame(envelope=envelope, child=True)


def read_result(text: Any) -> Any:
    """The value in what an activity or child gave."""
    output, _ = decode_output(text if isinstance(text, str) else _text(text))
    return jsonvalues.loads(output or "null")


def _text(value: Any) -> str:
    return jsonvalues.dumps(value).decode()


def _checked(tasks: Sequence[Task[Any]]) -> tuple[Task[Any], ...]:
    for task in tasks:
        if not isinstance(task, Task):
            raise TypeError(f"{type(task).__name__} is no task; give what the context's calls give")
    return tuple(tasks)


def _winner(tasks: Sequence[Task[Any]], raw: Any) -> Task[Any]:
    return next(task for task in tasks if task.raw is raw)


def _timeout(text: str | None) -> int:
    if text is None:
        return DEFAULT_TIMEOUT_MS
    ms = duration_ms(text)
    if ms > MAX_ATTEMPT_TIMEOUT_MS:
        longest = format_duration(MAX_ATTEMPT_TIMEOUT_MS)
        raise ValueError(f"{text} is longer than one attempt may take, {longest}")
    return ms


def _span(duration: str | timedelta) -> timedelta:
    if isinstance(duration, str):
        return timedelta(milliseconds=duration_ms(duration, allow_zero=True))
    return max(duration, timedelta())


def _moment(until: Any) -> datetime:
    moment = datetime.fromisoformat(until) if isinstance(until, str) else until
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ValueError("`until` must be an aware datetime, or ISO 8601 text with an offset")
    return moment.astimezone(UTC)
