"""Answers and refusals, in the shapes of the protocol."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import orjson


class Refused(Exception):
    """An answer with a status of 400 or more."""

    def __init__(
        self, status: int, message: str, *, sub_status: int = 0, charge: float = 1.0, **headers: str
    ) -> None:
        super().__init__(message)
        self.status, self.sub_status, self.charge = status, sub_status, charge
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(slots=True)
class Answer:
    """What goes back, before the headers that every answer has."""

    status: int = 200
    body: bytes = b""
    charge: float = 0.0
    headers: dict[str, str] = field(default_factory=dict[str, str])


def answer(content: Any, *, status: int = 200, charge: float = 0.0, **headers: str) -> Answer:
    """A JSON answer."""
    return Answer(status, orjson.dumps(content), charge, headers)


def refusal(error: Refused) -> Answer:
    """The answer for a refusal."""
    code = {
        404: "NotFound",
        409: "Conflict",
        412: "PreconditionFailed",
        413: "RequestEntityTooLarge",
    }
    content = {"code": code.get(error.status, "BadRequest"), "message": str(error)}
    headers = {"x-ms-substatus": str(error.sub_status), **error.headers}
    return Answer(error.status, orjson.dumps(content), error.charge, headers)


def system_time() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000
