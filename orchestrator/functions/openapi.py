"""The OpenAPI 3.1 document, generated from the route table and the pydantic models.

Generated, because a description written by hand is wrong a week later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from orchestrator.domain.authz import Scope
from orchestrator.domain.schema import definition_schema
from orchestrator.functions.access import TENANT
from orchestrator.functions.http_errors import ErrorEnvelope
from orchestrator.functions.http_routes import OPEN, Body, Reply, Route
from orchestrator.functions.requests import REASON_HEADER, Param

DEFINITION: Final = "WorkflowDefinition"
BEARER: Final = "bearer"
_REF: Final = "#/components/schemas/"
_ALWAYS: Final = (400, 500, 503)  # a bad parameter, our fault, a dependency that does not answer

_ERRORS: Final[dict[int, str]] = {
    400: "The request cannot be read, or a parameter is wrong",
    401: "No token, or one that proves nothing; `code` says why",
    403: "Not granted to the caller; `message` names the scope",
    404: "No such thing, or none that the caller may know of",
    409: "It contradicts what is stored",
    412: "It has changed since; read it again",
    413: "The body is over 1 MiB",
    415: "The content type is not read here",
    422: "Readable but wrong; `details` lists every finding",
    429: "Refused for now; `Retry-After` says for how long",
    500: "Our fault",
    503: "A dependency does not answer; try again",
}

REASON: Final = Param(
    name=REASON_HEADER,
    description="Why, for the audit, unless the body says it; other than ASCII as %XX of UTF-8",
    schema={"type": "string"},
)


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI document of `routes`, JSON-able."""
    schemas, names = _components(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, names)
        paths.setdefault(f"/{route.path}", {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Weft",
            "version": _version(),
            "description": "Durable DAG workflows. Lists page by opaque cursors; every answer has "
            "the header `x-trace-id`; every failure has the same envelope.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                BEARER: {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "A token of a configured issuer, or of `weft token`. Each "
                    "operation names the scope that must be granted",
                }
            },
            "responses": {str(status): _error(status) for status in _ERRORS},
            "headers": {
                "TraceId": {
                    "description": "Names this request in the log",
                    "schema": {"type": "string"},
                }
            },
        },
    }


def _components(routes: Sequence[Route]) -> tuple[dict[str, Any], dict[Any, str]]:
    """Component schemas by name, and the component name of each model."""
    models = [ErrorEnvelope, *_models(routes)]
    inputs = {
        route.body.schema
        for route in routes
        if route.body is not None and not isinstance(route.body.schema, str)
    }
    modes = [(kind, "validation" if kind in inputs else "serialization") for kind in models]
    mapping, generated = models_json_schema(modes, ref_template=_REF + "{model}")  # type: ignore[arg-type]
    names = {kind: mapping[(kind, mode)]["$ref"].rsplit("/", 1)[-1] for kind, mode in modes}  # type: ignore[index]
    schemas: dict[str, Any] = generated.get("$defs", {})
    renamed = {name: _tidy(name) for name in schemas}
    schemas = _rewrite({renamed[name]: schema for name, schema in schemas.items()}, renamed)
    schemas.update(_definition())
    return dict(sorted(schemas.items())), {kind: renamed[name] for kind, name in names.items()}


def _models(routes: Iterable[Route]) -> list[type[BaseModel]]:
    found: dict[type[BaseModel], None] = {}
    for route in routes:
        kinds = [reply.model for reply in route.replies.values()]
        if route.body is not None:
            kinds.append(route.body.schema)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found[kind] = None
    return list(found)


def _tidy(name: str) -> str:
    """`Page_TaskSummary_` is a TaskSummaryPage to everybody but pydantic."""
    match = re.fullmatch(r"Page_(\w+)_", name)
    return f"{match[1]}Page" if match else name.removesuffix("Body")


def _definition() -> dict[str, Any]:
    """The definition's schema with its `$defs` lifted to components, since a reference into `$defs`
    would be looked for at the root of the whole document."""
    schema = dict(definition_schema())
    for key in ("$schema", "$id"):
        schema.pop(key, None)
    parts: dict[str, Any] = schema.pop("$defs", {})
    renamed = {name: f"{DEFINITION}.{name}" for name in parts}
    whole = {DEFINITION: schema, **{renamed[name]: part for name, part in parts.items()}}
    return _rewrite(whole, renamed)


def _rewrite(node: Any, renamed: dict[str, str]) -> Any:
    """A copy with every reference to a renamed component (or `$defs` entry) following it, and
    without `default: null`, which says no more than that a field may be left out."""
    if isinstance(node, list):
        return [_rewrite(part, renamed) for part in node]
    if not isinstance(node, dict):
        return node
    copy = {
        key: _rewrite(part, renamed)
        for key, part in node.items()
        if not (key == "default" and part is None)
    }
    if isinstance(copy.get("$ref"), str):
        copy["$ref"] = _moved(copy["$ref"], renamed)
    mapping = copy["mapping"] if "propertyName" in copy and "mapping" in copy else None
    if isinstance(mapping, dict):  # a discriminator names its schemas by plain strings
        copy["mapping"] = {key: _moved(ref, renamed) for key, ref in mapping.items()}
    return copy


def _moved(ref: str, renamed: dict[str, str]) -> str:
    """Where a reference within the document points to now."""
    if ref == "#":
        return _REF + DEFINITION
    if not ref.startswith((_REF, "#/$defs/")):
        return ref
    name = ref.rsplit("/", 1)[-1]
    return _REF + renamed.get(name, name)


def _operation(route: Route, names: dict[Any, str]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.description,
        "parameters": [
            *(_parameter(param, "path") for param in route.path_params),
            *(_parameter(param, "query") for param in route.query),
            *(_parameter(param, "header") for param in route.headers),
            *([] if route.scope is OPEN else [_parameter(TENANT, "header")]),
            *(
                []
                if route.scope is OPEN or route.method == "GET"
                else [_parameter(REASON, "header")]
            ),
        ],
        "security": [] if route.scope is OPEN else [{BEARER: [route.scope or Scope.ADMIN]}],
    }
    if route.body is not None:
        operation["requestBody"] = _body(route.body, names)
    replies = {str(status): _reply(reply, names) for status, reply in route.replies.items()}
    guarded = () if route.scope is OPEN else (401, 403)
    for status in (*_ALWAYS, *guarded, *route.errors):
        replies.setdefault(str(status), {"$ref": f"#/components/responses/{status}"})
    operation["responses"] = dict(sorted(replies.items()))
    return operation


def _parameter(param: Param, place: str) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": param.name,
        "in": place,
        "required": place == "path",
        "description": param.description,
        "schema": dict(param.schema),
    }
    if param.example is not None:
        shown["example"] = param.example
    return shown


def _body(body: Body, names: dict[Any, str]) -> dict[str, Any]:
    name = body.schema if isinstance(body.schema, str) else names[body.schema]
    content: dict[str, Any] = {media: {"schema": {"$ref": _REF + name}} for media in body.media}
    if body.example is not None:
        content[body.media[0]]["example"] = body.example
    return {"required": body.required, "content": content}


def _reply(reply: Reply, names: dict[Any, str]) -> dict[str, Any]:
    headers: dict[str, Any] = {
        name: {"description": text, "schema": {"type": "string"}}
        for name, text in reply.headers.items()
    }
    headers["x-trace-id"] = {"$ref": "#/components/headers/TraceId"}
    shown: dict[str, Any] = {"description": reply.description, "headers": headers}
    if reply.model is not None:
        schema = {"$ref": _REF + names[reply.model]} if reply.model in names else {"type": "object"}
        shown["content"] = {reply.media: {"schema": schema}}
        if reply.example is not None:
            shown["content"][reply.media]["example"] = reply.example
    elif reply.media != "application/json":
        shown["content"] = {reply.media: {"schema": {"type": "string"}}}
    return shown


def _error(status: int) -> dict[str, Any]:
    headers: dict[str, Any] = {"x-trace-id": {"$ref": "#/components/headers/TraceId"}}
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        headers["Retry-After"] = {"description": "Seconds", "schema": {"type": "integer"}}
    return {
        "description": _ERRORS[status],
        "headers": headers,
        "content": {"application/json": {"schema": {"$ref": f"{_REF}{ErrorEnvelope.__name__}"}}},
    }


def _version() -> str:
    try:
        return version("weft")
    except PackageNotFoundError:  # the Functions package is deployed as files, not installed
        return "0"
