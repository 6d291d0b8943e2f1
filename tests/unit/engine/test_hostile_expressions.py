"""An expression that would stop the process is cut off, and its execution ends with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.definitions import flow, task

LONG = {"l": list(range(1000)), "text": "ab" * 100_000, "m": {str(n): n for n in range(5000)}}
HOSTILE = {
    "nested loops": "input.l.map(a, input.l.map(b, a + b)).size() > 0",
    "text multiplied": "[input.text]" + ".map(x, x + x + x + x)" * 12 + ".size() > 0",
    "a pattern that is large": "input.text.matches('[ab]*a([ab]{40}){100}[cd]')",
    "patterns in a loop": "input.l.exists(x, input.text.matches('(.*)(.*)(.*)c'))",
    "a map copied again and again": "input.m.map(k, input.m[k]).size() > 0",
    "a long chain of copies": "input.text" + ".reverse().split('').join('')" * 30 + " == ''",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=list(HOSTILE))
async def test_case_a_hostile_expression_is_cut_off_and_refused(make: Any, source: str) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop", when=f"${{{source}}}")))
    started = await world.start("flow", LONG)
    await world.settle()
    view = await world.view(started.id)
    assert view.status.value == "FAILED"
    assert view.error.type == "EXPRESSION_FAILED"
    assert view.error.field == "$.tasks.a.when"
    assert "ab" * 10 not in str(view.error)
    assert "use an activity" in view.error.message or "cannot use the values" in view.error.message
