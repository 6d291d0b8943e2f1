"""A scripted API server. Not a second implementation: it says what a test tells it to say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from typer.testing import Result

Answer = tuple[int, Any]
Weft = Callable[..., Result]  # runs `weft ARGS`; the fixtures in conftest.py


@dataclass
class Seen:
    """A request that arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class FakeApi:
    """Answers by (method, path): each in turn, the last one again and again."""

    url: str = ""
    answers: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)
    requests: list[Seen] = field(default_factory=list)

    def on(self, method: str, path: str, *answers: Any, status: int = 200) -> None:
        self.answers[method, path] = [
            answer if isinstance(answer, tuple) else (status, answer) for answer in answers
        ]

    def last(self, method: str) -> Seen:
        return [seen for seen in self.requests if seen.method == method][-1]

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(
            Seen(
                request.method,
                request.path,
                dict(request.query),
                dict(request.headers),
                await request.read(),
            )
        )
        script = self.answers.get((request.method, request.path))
        if not script:
            return web.json_response(error("NOT_FOUND", "no such thing"), status=404)
        status, body = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(body, str):
            return web.Response(text=body, status=status, content_type="text/html")
        return web.json_response(body, status=status)


def error(code: str, message: str, details: list[Any] | None = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": details or [], "traceId": "t-1"}}
