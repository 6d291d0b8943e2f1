"""API answers as `orchestrator.engine.views` shapes them, made by those very models."""

from __future__ import annotations

from typing import Any

from orchestrator.engine import views

AT = 1_796_040_000_000


def dump(view: views.View) -> dict[str, Any]:
    return view.model_dump(mode="json", by_alias=True)


def execution(id: str = "e1", status: str = "RUNNING", **more: Any) -> dict[str, Any]:
    ended = status in ("COMPLETED", "FAILED", "CANCELLED")
    values: dict[str, Any] = {
        "id": id,
        "workflow": "census",
        "version": 3,
        "status": status,
        "created_at": AT,
        "started_at": AT + 5,
        "ended_at": AT + 1505 if ended else None,
        "progress": views.Progress(total=3, completed=1, waiting=1, pending=1),
        "seq": 4,
        "input": {"root": "/src"},
    }
    return dump(views.ExecutionView.model_validate({**values, **more}))


def task(id: str, status: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": id,
        "type": "activity",
        "status": status,
        "run_when": "allSucceeded",
        "attempt": 1,
        "started_at": AT + 10,
        "ended_at": AT + 260,
    }
    return dump(views.TaskSummary.model_validate({**values, **more}))


def page(*items: Any, cursor: str | None = None) -> dict[str, Any]:
    return {"items": list(items), "nextCursor": cursor}


def failure(**more: Any) -> dict[str, Any]:
    values = {"type": "ConnectionError", "message": "refused", "task": "charge"}
    return dump(views.FailureView.model_validate({**values, **more}))


def event(seq: int, type: str, **more: Any) -> dict[str, Any]:
    return {"seq": seq, "type": type, "at": f"2026-11-30T12:00:{seq:02d}.000Z", **more}
