"""Calls HTTP triggers by method and path, with real `azure.functions` objects and no server.

Routes are chosen as the Functions host does it: in the alphabetical order of the functions' names
(Azure/azure-functions-host#9876), by method and segments; `%2F` in a segment stays encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import azure.functions as func
import orjson


@dataclass(frozen=True)
class Got:
    """An answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    media: str

    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)

    @property
    def error(self) -> Any:
        """The envelope's inside."""
        return self.json()["error"]


@dataclass(frozen=True)
class Bound:
    """One HTTP function, as the host sees it."""

    name: str
    route: str
    methods: tuple[str, ...]
    handler: Any

    @property
    def catches_all(self) -> bool:
        """Whether its route ends in a catch-all segment."""
        return "{*" in self.route


class Client:
    """Indexes the blueprints once (the SDK allows no second time) and calls what they hold."""

    def __init__(self, *blueprints: func.Blueprint) -> None:
        app = func.FunctionApp()
        for blueprint in blueprints:
            app.register_functions(blueprint)
        found: list[Bound] = []
        for function in app.get_functions():
            trigger = function.get_trigger()
            if trigger is None or trigger.type != "httpTrigger":
                continue
            shown = trigger.get_dict_repr()
            methods = tuple(getattr(m, "value", m) for m in shown["methods"])
            found.append(
                Bound(
                    function.get_function_name(),
                    shown["route"],
                    methods,
                    function.get_user_function(),
                )
            )
        self.bound = sorted(found, key=lambda one: one.name.lower())

    def find(self, method: str, path: str) -> tuple[Bound, dict[str, str]] | None:
        """The function that the host would call, and its route parameters."""
        for one in self.bound:
            if method in one.methods:
                match = _pattern(one.route).fullmatch(path.strip("/"))
                if match:
                    groups = match.groupdict(default="")
                    return one, {name: _decode(text) for name, text in groups.items()}
        return None

    async def __call__(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Got:
        """Call what is bound to `method` and `url` (path and query). `json` sets the body and the
        content type. An unbound route gives the host's own bare 404."""
        sent = dict(headers or {})
        if json is not None:
            body = orjson.dumps(json)
            sent.setdefault("Content-Type", "application/json")
        parts = urlsplit(url)
        found = self.find(method, parts.path)
        if found is None:
            return Got(404, {}, b"", "")
        bound, route_params = found
        request = func.HttpRequest(
            method=method,
            url=f"http://weft.test{url}",
            headers=sent,
            params=dict(parse_qsl(parts.query, keep_blank_values=True)),
            route_params=route_params,
            body=body,
        )
        answer = await bound.handler(request)
        assert isinstance(answer, func.HttpResponse)
        received = {name.lower(): value for name, value in answer.headers.items()}
        return Got(answer.status_code, received, answer.get_body(), answer.mimetype)


def _pattern(route: str) -> re.Pattern[str]:
    pattern = ""
    for part in re.split(r"(/{\*\w+}|{\w+})", route):
        if part.startswith("/{*"):
            pattern += f"(?:/(?P<{part[3:-1]}>.*))?"
        elif part.startswith("{"):
            pattern += f"(?P<{part[1:-1]}>[^/]+)"
        else:
            pattern += re.escape(part)
    return re.compile(pattern, re.DOTALL)


def _decode(segment: str) -> str:
    return "%2F".join(unquote(part) for part in re.split("%2[Ff]", segment))
