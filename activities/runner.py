"""Runs one attempt of an activity, whatever the activity does.

The engine relies on three promises: everything that goes wrong inside arrives as `ActivityFailed`
(also `sys.exit()`), cancelling `run` returns at once (also if the activity does not), and a plain
function never holds up the event loop, where the leases of all other tasks are renewed.
"""

from __future__ import annotations

import asyncio
import contextvars
import difflib
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from activities.context import Context, wall_ms
from activities.egress import EgressPolicy, identity_endpoints
from activities.errors import FailureTypes, PermanentError
from activities.failures import failure_of, frames_of
from activities.http import HttpActivity
from activities.offload import is_large, off_loop
from activities.outputs import write_output
from activities.registry import Activity, Registry, default_registry, discover
from activities.threads import Saturated, ThreadHost
from activities.transform import transform
from activities.values import read_input
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.ports import ActivityCall, ActivityFailed, ActivityRunner

HTTP: Final = "weft.http"
TRANSFORM: Final = "weft.transform"
CLOSE_SECONDS: Final = 2.0  # how long `close` waits for cancelled activities to clean up

_log = logging.getLogger("weft.activity")


@dataclass(frozen=True, slots=True)
class _Output:
    """What an attempt gave, as opposed to a `Failure`: results may be any JSON."""

    value: Json


class Runner(ActivityRunner):
    """Runs the activities of a registry. One per process."""

    def __init__(
        self,
        registry: Registry,
        *,
        threads: ThreadHost | None = None,
        closers: Sequence[Callable[[], Awaitable[None]]] = (),
        now: Callable[[], int] = wall_ms,
    ) -> None:
        self._registry = registry
        self._threads = threads if threads is not None else ThreadHost()
        self._closers = tuple(closers)
        self._now = now
        self._abandoned: set[asyncio.Task[_Output | Failure]] = set()

    def names(self) -> frozenset[str]:
        """Names that a definition may use; the built-in `weft.…` ones run but are not listed."""
        return self._registry.names()

    def dependency(self, activity: str) -> str | None:
        """What the activity calls, as registered; None if it says nothing or is not known."""
        found = self._registry.get(activity)
        return found.dependency if found else None

    def stuck(self) -> int:
        """Abandoned attempts that still run: hung threads and coroutines that ignore their
        cancellation."""
        return self._threads.abandoned + len(self._abandoned)

    async def run(self, call: ActivityCall) -> Json:
        """One attempt; see `ActivityRunner.run`. Besides what the activity raises, `ActivityFailed`
        carries UNKNOWN_ACTIVITY and WORKER_SATURATED, both retryable: another worker may do."""
        activity = self._registry.get(call.activity)
        if activity is None:
            raise ActivityFailed(self._unknown(call.activity))
        context = Context(call, now=self._now)
        run = self._run_async if activity.is_async else self._run_plain
        outcome = await run(activity, call, context)
        if isinstance(outcome, Failure):
            raise ActivityFailed(outcome)
        return outcome.value

    async def close(self) -> None:
        """Release clients and idle threads. Activities that still run are not waited for, except
        for a moment in which cancelled ones may clean up."""
        self._threads.close()
        for task in self._abandoned:
            task.cancel()
        if self._abandoned:
            await asyncio.wait(self._abandoned, timeout=CLOSE_SECONDS)
        for close in self._closers:
            await close()

    async def _run_plain(
        self, activity: Activity, call: ActivityCall, context: Context
    ) -> _Output | Failure:
        variables = contextvars.copy_context()
        try:
            job = self._threads.start(
                lambda: variables.run(_attempt_plain, activity, call, context)
            )
        except Saturated as exc:
            return Failure(type=FailureTypes.WORKER_SATURATED, message=str(exc))
        try:
            return await job.future
        except asyncio.CancelledError:
            call.cancelled = True
            job.abandon()
            raise

    async def _run_async(
        self, activity: Activity, call: ActivityCall, context: Context
    ) -> _Output | Failure:
        # A task of its own, because a coroutine may swallow its cancellation: `wait` does not.
        task = asyncio.create_task(_attempt_async(activity, call, context), name=activity.name)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            call.cancelled = True
            if not task.done():
                self._abandoned.add(task)
                task.add_done_callback(self._abandoned.discard)
                task.cancel()
            raise
        if task.cancelled():  # it cancelled its own task and returned before that took effect
            return failure_of(asyncio.CancelledError())
        return task.result()

    def _unknown(self, name: str) -> Failure:
        near = difflib.get_close_matches(name, sorted(self.names()), n=1)
        hint = f"; the nearest name is {near[0]}" if near else ""
        return Failure(
            type=FailureType.UNKNOWN_ACTIVITY,
            message=f"this worker has no activity {name}{hint}",
        ).bounded()


def _attempt_plain(activity: Activity, call: ActivityCall, context: Context) -> _Output | Failure:
    """Never raises; runs in a thread, with everything that may take long."""
    try:
        result = activity.fn(*_arguments(activity, call, context))
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise PermanentError(f"{activity.name} returned an awaitable; make it `async def`")
        return _Output(write_output(activity, result))
    except BaseException as exc:
        return _failed(exc, context)


async def _attempt_async(
    activity: Activity, call: ActivityCall, context: Context
) -> _Output | Failure:
    """Never raises: `SystemExit` in a task would end the event loop."""
    try:
        arguments = await off_loop(
            lambda: _arguments(activity, call, context), large=is_large(call.input)
        )
        result = await activity.fn(*arguments)
        return _Output(
            await off_loop(lambda: write_output(activity, result), large=is_large(result))
        )
    except BaseException as exc:
        return _failed(exc, context)


def _arguments(activity: Activity, call: ActivityCall, context: Context) -> list[Any]:
    arguments: list[Any] = []
    if activity.signature.takes_input:
        arguments.append(read_input(activity, call.input))
    if activity.signature.takes_context:
        arguments.append(context)
    return arguments


def _failed(error: BaseException, context: Context) -> Failure:
    failure = failure_of(error)
    if not context.cancelled:
        _log.warning(
            "activity attempt failed",
            extra={
                **context.log_extra(),
                "failure": failure.type,
                "retryable": failure.retryable,
                "frames": frames_of(error),
            },
        )
    return failure


def default_runner(*, egress_allow: Iterable[str], package: str = "activities") -> Runner:
    """The runner of an app: the activities of all modules below `package` and the built-in ones.

    `egress_allow`: networks (CIDR) that http tasks may reach although they are not public, see
    `activities.egress`. Raises `RegistrationError`, `ValueError` for what is no network.
    """
    discover(package)
    registry = default_registry().copy()
    http = HttpActivity(policy=EgressPolicy(egress_allow, never=identity_endpoints(os.environ)))
    registry.register(HTTP, http.run, built_in=True)
    registry.register(TRANSFORM, transform, built_in=True)
    return Runner(registry, closers=(http.close,))
