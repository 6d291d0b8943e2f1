"""Reads a FunctionApp the way the real host and worker do, and refuses what they would refuse.

Everything is found at once and at start: a function that only fails in the cloud is the failure
that an embedded host exists to prevent.
"""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import azure.functions as func

from orchestrator.domain.topology import CONTAINERS, DEAD_LETTER_SUFFIX, QUEUES
from orchestrator.local.host import routes, schedule, strictness
from orchestrator.local.host.errors import IndexingError
from orchestrator.local.host.routes import Template
from orchestrator.local.host.schedule import Schedule

ANY_METHOD: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_SETTING: Final = re.compile(r"%([^%]+)%")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,126}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBinding:
    """An HTTP trigger."""

    template: Template
    methods: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBinding:
    """A Service Bus queue trigger; `many` for batches."""

    queue: str
    many: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedBinding:
    """A Cosmos change-feed trigger; `lease_id` is the document that keeps its place."""

    container: str
    lease_container: str
    lease_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerBinding:
    """A timer trigger."""

    schedule: Schedule
    run_on_startup: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EventGridBinding:
    """An Event Grid trigger. Checked like the others; nothing fires it here, since there is no
    Event Grid: send events to the API or to the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestrationBinding:
    """A Durable Functions orchestrator, known to its callers as `name`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBinding:
    """A Durable Functions activity, known to orchestrators as `name`."""

    name: str


Binding = (
    HttpBinding
    | QueueBinding
    | FeedBinding
    | TimerBinding
    | EventGridBinding
    | OrchestrationBinding
    | ActivityBinding
)
_CLIENT: Final = "durableClient"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedFunction:
    """A function that passed every check. `parameter` takes the trigger's value."""

    name: str
    call: Callable[..., Any]
    is_async: bool
    parameter: str
    wants_context: bool
    returns: bool  # has an output binding for its result
    binding: Binding
    clients: tuple[str, ...] = ()  # parameters that take a Durable Functions client

    @property
    def durable(self) -> bool:
        """Whether it needs the durable task hub."""
        return bool(self.clients) or isinstance(
            self.binding, OrchestrationBinding | ActivityBinding
        )


_CACHE: weakref.WeakKeyDictionary[func.FunctionApp, list[Any]] = weakref.WeakKeyDictionary()


def functions_of(app: func.FunctionApp) -> list[Any]:
    """`app.get_functions()`, which works only once per app. Raises `IndexingError` for functions
    of one name or without a trigger."""
    found = _CACHE.get(app)
    if found is None:
        try:
            found = app.get_functions()
        except ValueError as error:
            raise IndexingError([str(error)]) from error
        _CACHE[app] = found
    return found


def index(
    app: func.FunctionApp, settings: Mapping[str, str], *, route_prefix: str = ""
) -> list[IndexedFunction]:
    """All functions of `app`, checked. `settings` resolves `%NAME%` in bindings.

    Raises `IndexingError` with every problem, each naming its function."""
    problems: list[str] = []
    indexed: list[IndexedFunction] = []
    seen: dict[str, str] = {}
    durable: dict[tuple[type, str], str] = {}
    for function in functions_of(app):
        name: str = function.get_function_name()
        if not _NAME.fullmatch(name):
            problems.append(f"cannot load the {name!r} function: not a valid function name")
        if (other := seen.setdefault(name.lower(), name)) != name:
            problems.append(
                f"cannot load the {name} function: it differs from {other} only in case"
            )
        found, wrong = _index_one(name, function, settings, route_prefix)
        problems += wrong
        if found is None:
            continue
        indexed.append(found)
        if isinstance(found.binding, OrchestrationBinding | ActivityBinding):
            key = type(found.binding), found.binding.name.casefold()
            if (other := durable.setdefault(key, name)) != name:
                problems.append(
                    f"cannot load the {name} function: {other} has the name "
                    f"{found.binding.name!r} already"
                )
    if not indexed and not problems:
        problems.append("the function app has no functions")
    if problems:
        raise IndexingError(problems)
    return indexed


def _index_one(
    name: str, function: Any, settings: Mapping[str, str], prefix: str
) -> tuple[IndexedFunction | None, list[str]]:
    trigger, bindings = function.get_trigger(), function.get_bindings()
    raw = {key: _plain(value) for key, value in trigger.get_dict_repr().items()}
    user = function.get_user_function()
    many = raw.get("cardinality") == "many"
    problems = strictness.problems(name, user, bindings, many=many)
    if function.get_setting("retry_policy") is not None:
        problems.append(f"cannot load the {name} function: a host retry policy doubles Weft's own")
    clients = tuple(extra.name for extra in bindings if extra.type == _CLIENT)
    for extra in bindings:
        if extra is not trigger and extra.name not in (strictness.RETURN, *clients):
            problems.append(f"cannot load the {name} function: no binding {extra.type} here")
    binder = _BINDERS.get(trigger.type)
    if binder is None:
        why = _ABSENT.get(trigger.type, f"no trigger {trigger.type} here")
        problems.append(f"cannot load the {name} function: {why}")
        return None, problems
    try:
        resolved = {key: _resolve(value, settings) for key, value in raw.items()}
        binding = binder({"function": name, **resolved}, prefix)
    except ValueError as error:
        problems.append(f"cannot load the {name} function: {error}")
        return None, problems
    if problems:
        return None, problems
    return IndexedFunction(
        name=name,
        call=user,
        is_async=inspect.iscoroutinefunction(user),
        parameter=trigger.name,
        wants_context="context"
        in set(inspect.signature(user).parameters) - {b.name for b in bindings},
        returns=any(b.name == strictness.RETURN for b in bindings)
        or strictness.returns_implicitly(trigger.type),
        binding=binding,
        clients=clients,
    ), problems


def _http(raw: Mapping[str, Any], prefix: str) -> HttpBinding:
    route = str(raw.get("route") or "").strip("/")
    methods = raw.get("methods") or ()
    return HttpBinding(
        template=routes.parse("/".join(part for part in (prefix, route) if part)),
        methods=frozenset(str(_plain(method)).upper() for method in methods) or ANY_METHOD,
    )


def _queue(raw: Mapping[str, Any], _prefix: str) -> QueueBinding:
    queue = raw.get("queueName")
    if queue is None:
        raise ValueError("topics are not served here, queues are")
    if queue.removesuffix(DEAD_LETTER_SUFFIX) not in QUEUES:
        raise ValueError(f"unknown queue {queue!r}; the queues are {', '.join(QUEUES)}")
    if raw.get("isSessionsEnabled"):
        raise ValueError("sessions are not served here")
    if raw.get("autoCompleteMessages") is False:
        raise ValueError("a function cannot settle its messages here; leave auto-complete on")
    return QueueBinding(queue=queue, many=raw.get("cardinality") == "many")


def _feed(raw: Mapping[str, Any], _prefix: str) -> FeedBinding:
    container, leases = raw.get("containerName"), raw.get("leaseContainerName", "leases")
    for needed in (container, leases):
        if needed not in CONTAINERS:
            raise ValueError(f"unknown container {needed!r}; there are {', '.join(CONTAINERS)}")
    if raw.get("changeFeedMode") not in (None, "LatestVersion"):
        raise ValueError("only the feed of latest versions is served here")
    prefix = str(raw.get("leaseContainerPrefix", ""))
    return FeedBinding(
        container=str(container),
        lease_container=str(leases),
        lease_id=f"{prefix}.{container}",
    )


def _timer(raw: Mapping[str, Any], _prefix: str) -> TimerBinding:
    return TimerBinding(
        schedule=schedule.parse(str(raw.get("schedule", ""))),
        run_on_startup=raw.get("runOnStartup") is True,
    )


def _orchestration(raw: Mapping[str, Any], _prefix: str) -> OrchestrationBinding:
    return OrchestrationBinding(name=_durable_name(raw, "orchestration"))


def _activity(raw: Mapping[str, Any], _prefix: str) -> ActivityBinding:
    return ActivityBinding(name=_durable_name(raw, "activity"))


def _durable_name(raw: Mapping[str, Any], key: str) -> str:
    name = str(raw.get(key) or raw["function"])
    if not _NAME.fullmatch(name):
        raise ValueError(f"{key}={name!r} is not a valid function name")
    return name


_BINDERS: Final[dict[str, Callable[[Mapping[str, Any], str], Binding]]] = {
    "httpTrigger": _http,
    "serviceBusTrigger": _queue,
    "cosmosDBTrigger": _feed,
    "timerTrigger": _timer,
    "eventGridTrigger": lambda raw, prefix: EventGridBinding(),
    "orchestrationTrigger": _orchestration,
    "activityTrigger": _activity,
}
_ABSENT: Final = {
    "entityTrigger": "entities are not in the embedded mode (docs/durable-embedded.md); keep such "
    "state in an orchestration or in a store of yours"
}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _resolve(value: Any, settings: Mapping[str, str]) -> Any:
    if not isinstance(value, str):
        return value

    def setting(match: re.Match[str]) -> str:
        try:
            return settings[match[1]]
        except KeyError:
            raise ValueError(f"%{match[1]}% does not resolve to a setting") from None

    return _SETTING.sub(setting, value)
