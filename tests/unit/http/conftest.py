"""The HTTP blueprints over use cases that are played: what they were asked is recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from http_client import Client
from http_support import ENGINE, EXECUTION, UseCases, make_client

from orchestrator.domain.status import ExecutionStatus
from orchestrator.engine import views
from orchestrator.functions import (
    http_executions,
    http_history,
    http_operations,
    http_workflows,
)
from orchestrator.functions.provider import EngineProvider


@pytest.fixture
def use_cases(monkeypatch: pytest.MonkeyPatch) -> UseCases:
    played = UseCases()
    played.answers.update(
        {
            "publish": views.PublishResult(name="hello", version=1, created=True),
            "start": views.StartResult(
                id="e-1",
                workflow="hello",
                version=1,
                status=ExecutionStatus.PENDING,
                created=True,
            ),
            "executions": ([views.ExecutionSummary(**EXECUTION)], None),
            "execution": views.ExecutionView(**EXECUTION, seq=0, input={"a": [1.5, "ü"]}),
            "refresh_if_possible": None,
            "recent": views.HealthView(status="ok", checks={"store": views.Check(ok=True)}),
        }
    )
    places: dict[Any, dict[str, tuple[str, ...]]] = {
        http_workflows: {
            "catalog_reads": ("workflow", "workflows", "versions", "version"),
            "publishing": ("publish", "archive"),
        },
        http_executions: {
            "submit": ("start",),
            "inspect": ("execution", "executions", "tasks", "task"),
            "verify": ("verify",),
        },
        http_history: {"inspect": ("history",)},
        http_operations: {"health": ("recent",), "levels": ("refresh_if_possible",)},
    }
    for module, fakes in places.items():
        for attribute, names in fakes.items():
            fake = SimpleNamespace(**{name: played.play(name) for name in names})
            monkeypatch.setattr(module, attribute, fake)
    return played


async def _build() -> Any:
    return ENGINE


@pytest.fixture
def client(use_cases: UseCases) -> Client:
    return make_client(EngineProvider(_build))
