"""Routes as data: each handler is recorded with what it takes and gives.

The record drives everything: the binding that Azure Functions sees, the checks before the handler,
and the OpenAPI document. So a route cannot exist without its description, nor the other way round.

The worker is strict about what it binds (WIRE.md section 3): a trigger must be
`async def name(req: func.HttpRequest) -> func.HttpResponse`, and nothing more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, TypeVar

import azure.functions as func
import orjson
from pydantic import BaseModel

from orchestrator.domain.authz import Scope
from orchestrator.domain.errors import UnauthenticatedError, WeftError
from orchestrator.engine import telemetry
from orchestrator.engine.core import Engine
from orchestrator.engine.origin import of_request
from orchestrator.engine.views import Page
from orchestrator.functions import access, cursors, guards, http_errors, http_params, requests
from orchestrator.functions.access import Caller
from orchestrator.functions.durable_binding import client_bound
from orchestrator.functions.provider import EngineProvider
from orchestrator.functions.requests import Param, Trace
from orchestrator.ports import PayloadNotFound, Throttled, TransportError, Unavailable
from orchestrator.ports_telemetry import NoTracer

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a handler gives back. `body`: a model (sent as JSON), bytes of `media`, or nothing."""

    body: BaseModel | bytes | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    media: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request body, for the description. `schema`: a model, or the name of a component."""

    media: tuple[str, ...]
    schema: type[BaseModel] | str
    required: bool = True
    example: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A documented answer. `model` None: no body, unless `media` is not JSON."""

    description: str
    model: Any = None
    media: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])  # name -> description
    example: Any = None


@dataclass(slots=True, kw_only=True)
class Call:
    """One checked request, as a handler sees it."""

    req: func.HttpRequest
    route: Route
    provider: EngineProvider
    caller: Caller | None
    trace: Trace
    path: dict[str, Any]
    query: dict[str, Any]

    @property
    def principal(self) -> Caller:
        """Who asks. Raises `UnauthenticatedError` on an open route: nobody was asked."""
        if self.caller is None:
            raise UnauthenticatedError("nobody is known here")
        return self.caller

    @property
    def tenant(self) -> str:
        """The caller's tenant."""
        return self.principal.tenant

    async def engine(self) -> Engine:
        """The engine. Raises `UnavailableError`."""
        return await self.provider.get()

    def after(self, *shape: type) -> tuple[Any, ...] | None:
        """Where the list goes on; `shape`, if it is not an order and an id. Raises
        `MalformedError` (INVALID_CURSOR)."""
        text = self.query["cursor"]
        return (
            None if text is None else cursors.decode(self._scope(), text, shape or cursors.KEYSET)
        )

    def page(
        self, items: list[ItemT], after: tuple[Any, ...] | None, kind: type[Page[ItemT]]
    ) -> Answer:
        """One page of a list, with the cursor of the next."""
        return Answer(body=kind(items=items, next_cursor=cursors.encode(self._scope(), after)))

    def _scope(self) -> tuple[str, ...]:
        # Not the limit: the page size may change on the way.
        filters = {key: text for key, text in self.req.params.items() if key not in _PAGING}
        return (
            self.tenant,
            self.route.name,
            *(f"{key}={value}" for key, value in sorted(self.path.items())),
            *(f"{key}={text}" for key, text in sorted(filters.items())),
        )


class Open(Enum):
    """Instead of a scope: for everybody."""

    OPEN = "open"


OPEN: Final = Open.OPEN
NO_TRACER: Final = NoTracer()
_PAGING: Final = frozenset(param.name for param in http_params.PAGING)
Handler = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation. `name` is the function's name and the operation id; `path` has no leading
    slash; `errors` are the statuses of the shared error answer that this route may give."""

    method: str
    path: str
    name: str
    tag: str
    summary: str
    handler: Handler
    replies: Mapping[int, Reply]
    description: str = ""
    query: tuple[Param, ...] = ()
    headers: tuple[Param, ...] = ()
    body: Body | None = None
    errors: tuple[int, ...] = ()
    scope: Scope | Open | None = None
    """What the caller must have been granted. None, an oversight: the most there is."""
    checks: bool = False
    """The handler itself checks what the request is about: rows of a list, names in the body."""
    platform: Literal["", "too", "only"] = ""
    """Administrators of the platform may call it for every tenant: `too`, beside those who have the
    scope in that tenant, or `only` they."""
    hidden: bool = False  # not an operation: catches what no route matches

    @property
    def path_params(self) -> tuple[Param, ...]:
        """The parameters in the path, in order."""
        return tuple(http_params.PATH[name] for name in re.findall(r"{(\w+)}", self.path))


class Routes:
    """The routes of one concern, in the order in which they are documented."""

    def __init__(self, tag: str, *, hub: bool = False) -> None:
        """`hub`: their handlers ask Durable Functions of instances."""
        self.tag = tag
        self.hub = hub
        self.all: list[Route] = []

    def add(self, method: str, path: str, **described: Any) -> Callable[[Handler], Handler]:
        """Decorator: record a handler. The fields are those of `Route`; its name is the
        function's, its description the docstring."""

        def record(handler: Handler) -> Handler:
            route = Route(
                method=method,
                path=path,
                name=handler.__name__,  # type: ignore[attr-defined]
                tag=self.tag,
                handler=handler,
                description=" ".join((handler.__doc__ or "").split()),
                **described,
            )
            self.all.append(route)
            return handler

        return record

    def blueprint(self, provider: EngineProvider) -> func.Blueprint:
        """The routes as Azure Functions triggers."""
        made = func.Blueprint()
        for route in self.all:
            methods = ALL_METHODS if route.hidden else (route.method,)
            bind = made.route(
                route=route.path, methods=methods, auth_level=func.AuthLevel.ANONYMOUS
            )
            trigger = _trigger(route, provider)
            if self.hub:
                trigger = client_bound(made, provider)(trigger)
            made.function_name(route.name)(bind(trigger))
        return made


ALL_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


def _trigger(
    route: Route, provider: EngineProvider
) -> Callable[[func.HttpRequest], Awaitable[func.HttpResponse]]:
    async def trigger(req: func.HttpRequest) -> func.HttpResponse:
        return await serve(route, provider, req)

    trigger.__name__ = trigger.__qualname__ = route.name
    trigger.__doc__ = route.summary
    return trigger


async def serve(route: Route, provider: EngineProvider, req: func.HttpRequest) -> func.HttpResponse:
    """Check the request, run the handler, translate what comes back; counted. Never raises."""
    begun = time.perf_counter()
    answer = await _serve(route, provider, req)
    if provider.ready:
        metrics = (await provider.get()).metrics
        metrics.count("weft_http_requests_total", str(answer.status_code))
        took = time.perf_counter() - begun
        metrics.observe("weft_http_request_duration_seconds", route.name, took)
    return answer


async def _serve(
    route: Route, provider: EngineProvider, req: func.HttpRequest
) -> func.HttpResponse:
    trace = requests.trace(req)
    try:
        given = _path_of(route, req)
        engine, caller = await _admit(route, provider, req, given)
        call = Call(
            req=req,
            route=route,
            provider=provider,
            caller=caller,
            trace=trace,
            path=requests.read_params(route.path_params, given, what="part"),
            query={} if route.hidden else requests.read_params(route.query, req.params),
        )
        if engine is not None and not (route.checks or route.platform):
            await guards.check(engine, call.principal, _needed(route), route.path, call.path)
        tracer = NO_TRACER if engine is None else engine.tracer
        about = {} if caller is None else {"tenant": caller.tenant, "operation": route.name}
        with telemetry.span(
            tracer,
            f"{route.method} /{route.path}",
            parent=trace.parent,
            root=True,
            kind="server",
            about=about,
        ) as span:
            call.trace = trace = requests.under(trace, span.traceparent)
            answer = await _answer(call)
            span.note({"http.response.status_code": answer.status_code})
            if answer.status_code >= 500:  # a refusal is an answer
                span.fail(str(answer.status_code))
            return answer
    except Exception as error:
        return _refusal(error, trace.id, route)


async def _answer(call: Call) -> func.HttpResponse:
    trace_id = call.trace.id
    try:
        with of_request(requests.origin(call.req, trace_id)):
            return _response(await call.route.handler(call), trace_id)
    except Exception as error:
        return _refusal(error, trace_id, call.route)


def _refusal(error: Exception, trace_id: str, route: Route) -> func.HttpResponse:
    """Of an error that is being handled."""
    if isinstance(error, WeftError):
        return http_errors.respond(error, trace_id)
    if isinstance(error, (Throttled, Unavailable, TransportError)):
        return http_errors.respond(http_errors.of_port(error), trace_id)
    if isinstance(error, PayloadNotFound):
        return http_errors.respond_without_payload(error, trace_id, route.name)
    return http_errors.respond_unexpected(error, trace_id, route.name)


async def _admit(
    route: Route, provider: EngineProvider, req: func.HttpRequest, given: Mapping[str, str]
) -> tuple[Engine, Caller] | tuple[None, None]:
    """Who asks, before anything else of the request is looked at; nobody on an open route."""
    if isinstance(route.scope, Open):
        return None, None
    engine = await provider.get()
    named = given.get(http_params.TENANT.name)
    if route.platform:
        return engine, await access.admit_platform(
            req, engine, _needed(route), tenant=named, only=route.platform == "only"
        )
    return engine, await access.admit(req, engine, _needed(route), tenant=named)


def _needed(route: Route) -> Scope:
    return route.scope if isinstance(route.scope, Scope) else Scope.ADMIN


def _path_of(route: Route, req: func.HttpRequest) -> dict[str, str]:
    return {param.name: req.route_params.get(param.name, "") for param in route.path_params}


def _response(answer: Answer, trace_id: str) -> func.HttpResponse:
    body = answer.body
    if isinstance(body, BaseModel):
        body = orjson.dumps(body.model_dump(by_alias=True))
    return func.HttpResponse(
        body,
        status_code=answer.status,
        headers={**http_errors.common_headers(trace_id), **answer.headers},
        mimetype=answer.media,
    )
