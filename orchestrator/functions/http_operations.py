"""Operations over HTTP: health, the API's own description, and an answer for unknown routes."""

from __future__ import annotations

import re
from functools import cache
from typing import Final
from urllib.parse import urlsplit

import orjson

from orchestrator.domain.authz import Scope
from orchestrator.domain.errors import NotFoundError, WeftError
from orchestrator.engine import health, levels, metrics_catalog
from orchestrator.engine.views import Check, HealthView
from orchestrator.functions import docs_page, http_api, openapi
from orchestrator.functions.http_errors import MethodNotAllowedError
from orchestrator.functions.http_routes import OPEN, Answer, Call, Reply, Route, Routes
from orchestrator.functions.requests import nearest, shorten

ROUTES: Final = Routes("Operations")

_DOWN: Final = Reply(description="Not now; `checks` says what is missing", model=HealthView)


async def _checked(call: Call) -> HealthView:
    """Health of the dependencies; building the engine is the first of them."""
    try:
        engine = await call.engine()
    except WeftError as error:
        checks = {"engine": Check(ok=False, detail=error.message)}
        return HealthView(status="down", checks=checks)
    return await health.recent(engine)


def _health(view: HealthView) -> Answer:
    return Answer(body=view, status=503 if view.status == "down" else 200)


@ROUTES.add(
    "GET",
    "health",
    scope=OPEN,
    summary="Health with every check",
    replies={200: Reply(description="ok or degraded", model=HealthView), 503: _DOWN},
)
async def health_report(call: Call) -> Answer:
    """For people and dashboards: each dependency with its latency, and how long work waits. Asked
    anew at most once a second."""
    return _health(await _checked(call))


@ROUTES.add(
    "GET",
    "live",
    scope=OPEN,
    summary="Is the process alive",
    replies={200: Reply(description="Always", model=HealthView)},
)
async def live(call: Call) -> Answer:
    """Touches nothing, so that a dependency's outage does not restart healthy processes."""
    return Answer(body=HealthView(status="ok"))


@ROUTES.add(
    "GET",
    "ready",
    scope=OPEN,
    summary="Can the process serve",
    replies={200: Reply(description="The store answers", model=HealthView), 503: _DOWN},
)
async def ready(call: Call) -> Answer:
    """The engine is built (asking builds it) and the store answers."""
    return _health(await _checked(call))


@ROUTES.add(
    "GET",
    "startup",
    scope=OPEN,
    summary="Has the process started",
    replies={200: Reply(description="The engine is built", model=HealthView), 503: _DOWN},
)
async def startup(call: Call) -> Answer:
    """The engine is built (asking builds it). Says nothing of the dependencies' health since."""
    try:
        await call.engine()
    except WeftError as error:
        checks = {"engine": Check(ok=False, detail=error.message)}
        return _health(HealthView(status="down", checks=checks))
    return _health(HealthView(status="ok", checks={"engine": Check(ok=True)}))


@ROUTES.add(
    "GET",
    "metrics",
    scope=Scope.OPERATE,
    summary="Metrics of the process that answers",
    replies={200: Reply(description="Prometheus text format", media="text/plain"), 503: _DOWN},
)
async def metrics(call: Call) -> Answer:
    """Counters since the process started, and levels. Each process has its own. They are of all
    tenants together, and tell how much those do. Circuit breakers, which are named, are the
    caller's tenant's; all are shown to operators of the platform's own tenant."""
    engine = await call.engine()
    await levels.refresh_if_possible(engine)
    of_all = await call.principal.of_platform(Scope.OPERATE)
    text = metrics_catalog.exposition(engine.metrics, tenant=None if of_all else call.tenant)
    return Answer(body=text.encode(), media=metrics_catalog.MEDIA_TYPE)


@ROUTES.add(
    "GET",
    "openapi.json",
    scope=OPEN,
    summary="This API as an OpenAPI 3.1 document",
    replies={200: Reply(description="The document", model=dict)},
)
async def openapi_document(call: Call) -> Answer:
    """Generated from the same table that binds the routes."""
    return Answer(body=_document())


@ROUTES.add(
    "GET",
    "docs",
    scope=OPEN,
    summary="This API for reading and trying",
    replies={200: Reply(description="A page", media="text/html")},
)
async def docs(call: Call) -> Answer:
    """One self-contained page; it loads nothing from elsewhere."""
    page, policy = _page()
    return Answer(body=page, media="text/html", headers={"content-security-policy": policy})


# The host tries routes in the alphabetical order of the functions' names, not by how specific they
# are (Azure/azure-functions-host#9876), so the one that catches everything must sort last.
@ROUTES.add(
    "*", "v1/{*rest}", scope=OPEN, summary="Anything else under v1", replies={}, hidden=True
)
async def zz_unmatched(call: Call) -> Answer:
    """Says what is wrong: the method (405) or the path (404), instead of the host's empty 404."""
    path = urlsplit(call.req.url).path.strip("/")
    shown = shorten(path)
    method = call.req.method
    allow = sorted({route.method for route in operations() if _pattern(route).fullmatch(path)})
    if allow:
        raise MethodNotAllowedError(
            f"{method} is not possible here; use {' or '.join(allow)}", allow=tuple(allow)
        )
    hint = nearest(f"/{shown}", [f"/{route.path}" for route in operations()])
    hint = hint if hint.startswith("did you mean") else "see /docs"
    raise NotFoundError(f"there is no route {method} /{shown}; {hint}", code="ROUTE_NOT_FOUND")


def _pattern(route: Route) -> re.Pattern[str]:
    parts = re.split(r"{\w+}", route.path)
    return re.compile("[^/]+".join(re.escape(part) for part in parts))


@cache
def _document() -> bytes:
    return orjson.dumps(openapi.document(operations()))


@cache
def _page() -> tuple[bytes, str]:
    return docs_page.render(operations())


def operations() -> list[Route]:
    """Every documented route of the app, in the order of the documentation."""
    return [route for route in (*http_api.routes(), *ROUTES.all) if not route.hidden]
