"""Checks of single tasks that a model cannot express: fields that depend on each other, names that
the platform must know, and nested schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from orchestrator.domain.defaults import DEFAULT_TIMEOUT_MS
from orchestrator.domain.definition_types import ACTIVITY_PATTERN
from orchestrator.domain.durable_checks import DurableCheck
from orchestrator.domain.durations import DurationError, format_duration, parse_duration
from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.jsonschemas import check_schema
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.nearest import NOT_LOADED, Nearest

_ACTIVITY: Final = re.compile(ACTIVITY_PATTERN)
_NEEDS_AN_OUTCOME: Final = ("anyFailed", "anySucceeded")


class TaskCheck:
    """Checks tasks as written; values of a wrong type are skipped, they are reported elsewhere."""

    def __init__(
        self,
        raw: Mapping[str, Json],
        activities: frozenset[str] | None,
        nearest: Nearest,
        targets: frozenset[str] | None = None,
        orchestrations: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        defaults = raw.get("defaults")
        self._name = raw.get("name")
        self._default_retry = _retry(defaults)
        self._default_timeout = _timeout(defaults) or DEFAULT_TIMEOUT_MS
        self._activities = activities
        self._targets = targets
        self._durable = DurableCheck(orchestrations, nearest)
        self._nearest = nearest
        self._signals: dict[str, tuple[Json, str]] = {}  # name -> schema, and where it stands

    def check(self, task: Mapping[str, Json], path: str) -> Iterator[ErrorDetail]:
        """Findings of one task, its `do` and its `compensate`."""
        yield from self._work(task, path, self._default_retry)
        if task.get("type") == "signal":
            yield from self._signal(task, path)
        yield from self._durable.check(task, path)
        yield from _heartbeat(task, path, self._default_timeout)
        outer = {**self._default_retry, **_retry(task)}
        if isinstance(do := task.get("do"), dict):
            yield from self._work(do, f"{path}.do", outer)
            if do.get("type") == "signal":
                yield from self._signal(do, f"{path}.do")
            yield from self._durable.check(do, f"{path}.do", item=True)
            yield from _heartbeat(do, f"{path}.do", _timeout(task) or self._default_timeout)
        if isinstance(compensate := task.get("compensate"), dict):
            yield from self._work(compensate, f"{path}.compensate", self._default_retry)
            yield from _heartbeat(compensate, f"{path}.compensate", self._default_timeout)
        run_when = task.get("runWhen")
        if run_when in _NEEDS_AN_OUTCOME and task.get("needs", []) == []:
            message = f"never runs: {run_when} asks for the outcome of needs, and there are none"
            yield ErrorDetail(f"{path}.runWhen", message, "UNREACHABLE", "add needs")

    def notify(self, value: Json) -> Iterator[ErrorDetail]:
        """Findings of the definition's `notify`."""
        for index, one in enumerate(value if isinstance(value, list) else []):
            if not isinstance(one, dict):
                continue
            path = f"$.notify[{index}]"
            given = [field for field in ("webhook", "to") if one.get(field) is not None]
            if len(given) != 1:
                what = "both are" if given else "neither is"
                message = f"needs exactly one of `webhook` and `to`; {what} given"
                yield ErrorDetail(path, message, "BAD_NOTIFY")
            yield from self._target(one.get("to"), f"{path}.to")

    def _work(
        self, task: Mapping[str, Json], path: str, inherited: Mapping[str, Json]
    ) -> Iterator[ErrorDetail]:
        kind = task.get("type")
        if kind == "activity":
            yield from self._activity(task.get("activity"), f"{path}.activity")
        elif kind == "wait":
            yield from _wait(task, path)
        elif kind == "workflow" and task.get("workflow") == self._name is not None:
            yield from _own_child(task, path)
        elif kind == "publish":
            yield from self._target(task.get("to"), f"{path}.to")
        elif kind == "signal" and isinstance(schema := task.get("schema"), dict | bool):
            yield from check_schema(schema, f"{path}.schema")
        if isinstance(schema := task.get("outputSchema"), dict | bool):
            yield from check_schema(schema, f"{path}.outputSchema")
        if isinstance(task.get("retry"), dict):
            yield from check_retry(_retry(task), inherited, f"{path}.retry")

    def _signal(self, task: Mapping[str, Json], path: str) -> Iterator[ErrorDetail]:
        """Tasks that wait for one name take its signals in turn, so they must agree on what a
        signal holds: it is checked when it comes, not when it is taken."""
        name, schema = task.get("signal"), task.get("schema")
        if not isinstance(name, str):
            return
        yield from self._durable.awaited(name, path)
        first, where = self._signals.setdefault(name, (schema, path))
        if first != schema:
            message = f'the signal "{name[:80]}" has another schema in {where}'
            hint = "give both tasks the same schema, or wait for signals of two names"
            yield ErrorDetail(f"{path}.schema", message, "SIGNAL_SCHEMA", hint)

    def _activity(self, name: Json, path: str) -> Iterator[ErrorDetail]:
        if self._activities is None or not isinstance(name, str) or name in self._activities:
            return
        if not _ACTIVITY.fullmatch(name):
            return  # no name at all: the model says so
        hint = self._nearest.hint(name, self._activities) or NOT_LOADED.format("activities")
        message = f'no activity "{name[:80]}" is registered'
        yield ErrorDetail(path, message, "UNKNOWN_ACTIVITY", hint)

    def _target(self, name: Json, path: str) -> Iterator[ErrorDetail]:
        if self._targets is None or not isinstance(name, str) or name in self._targets:
            return
        message = f'no target "{name[:80]}" is configured'
        hint = self._nearest.hint(name, self._targets)
        yield ErrorDetail(path, message, "UNKNOWN_TARGET", hint)


def check_retry(
    own: Mapping[str, Json], inherited: Mapping[str, Json], path: str
) -> Iterator[ErrorDetail]:
    """A written maximum interval below a written initial one, one of them written in `own`."""
    merged = {**inherited, **own}
    initial, most = _ms(merged.get("initialInterval")), _ms(merged.get("maxInterval"))
    if not own.keys() & {"initialInterval", "maxInterval"}:
        return
    if initial is not None and most is not None and most < initial:
        message = (
            f"maxInterval {merged['maxInterval']} is shorter than "
            f"initialInterval {merged['initialInterval']}"
        )
        yield ErrorDetail(f"{path}.maxInterval", message, "BAD_RETRY")


def _heartbeat(task: Mapping[str, Json], path: str, inherited_ms: int) -> Iterator[ErrorDetail]:
    """A heartbeat that is awaited as long as the whole attempt may take. `inherited_ms`: the time
    limit of an attempt, unless the task has its own."""
    silence, limit = _ms(task.get("heartbeatTimeout")), _timeout(task) or inherited_ms
    if task.get("type") == "activity" and silence is not None and silence >= limit:
        message = (
            f"heartbeatTimeout {task['heartbeatTimeout']} is not shorter than the timeout of an "
            f"attempt, {format_duration(limit)}"
        )
        hint = "shorten it, or give the task a longer timeout"
        yield ErrorDetail(f"{path}.heartbeatTimeout", message, "BAD_HEARTBEAT", hint)


def _timeout(holder: Json | Mapping[str, Json]) -> int | None:
    return _ms(holder.get("timeout")) if isinstance(holder, Mapping) else None


def _wait(task: Mapping[str, Json], path: str) -> Iterator[ErrorDetail]:
    given = [field for field in ("duration", "until") if task.get(field) is not None]
    if len(given) != 1:
        what = "both are" if given else "neither is"
        message = f"a wait needs exactly one of `duration` and `until`; {what} given"
        yield ErrorDetail(path, message, "BAD_WAIT")


def _own_child(task: Mapping[str, Json], path: str) -> Iterator[ErrorDetail]:
    """Another version of itself may be meant, and must then be named."""
    if task.get("version") is None:
        message = "a workflow cannot be its own child: it would start itself for ever"
        hint = "use a map to repeat something, or name the version that is meant"
        yield ErrorDetail(f"{path}.workflow", message, "OWN_CHILD", hint)


def _retry(holder: Json | Mapping[str, Json]) -> dict[str, Json]:
    """The retry fields that are written (null counts as left out)."""
    if isinstance(holder, Mapping) and isinstance(retry := holder.get("retry"), dict):
        return {key: value for key, value in retry.items() if value is not None}
    return {}


def _ms(value: Json) -> int | None:
    if not isinstance(value, str):
        return None
    try:
        return parse_duration(value)
    except DurationError:
        return None
