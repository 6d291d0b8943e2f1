"""Short ways to write definitions in tests."""

from __future__ import annotations

from typing import Any


def task(activity: str, *needs: str, input: Any = None, **more: Any) -> dict[str, Any]:
    """An activity task."""
    result: dict[str, Any] = {"type": "activity", "activity": activity, **more}
    if needs:
        result["needs"] = list(needs)
    if input is not None:
        result["input"] = input
    return result


def flow(name: str = "flow", **parts: Any) -> dict[str, Any]:
    """A definition: tasks by keyword; `output`, `on_failure`, `defaults`, `timeout` and
    `input_schema` are the definition's own."""
    names = {
        "on_failure": "onFailure",
        "input_schema": "input",
        "output": "output",
        "defaults": "defaults",
        "timeout": "timeout",
    }
    result: dict[str, Any] = {"name": name}
    for key, field in names.items():
        if key in parts:
            result[field] = parts.pop(key)
    result["tasks"] = parts
    return result


def retry(attempts: int, interval: str = "1s", **more: Any) -> dict[str, Any]:
    """A retry policy without jitter, constant unless said otherwise."""
    return {
        "maxAttempts": attempts,
        "initialInterval": interval,
        "backoffCoefficient": 1,
        "maxInterval": "1h",
        "jitter": "none",
        **more,
    }
