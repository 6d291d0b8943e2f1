"""An expression that would stop the process is cut off, and its execution ends with a reason."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from orchestrator.domain import cloudevents
from orchestrator.domain.expressions import Expression, Scope
from orchestrator.engine import events, triggers
from tests.support.definitions import flow, task
from tests.support.world import TENANT

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


async def test_expressions_that_may_take_long_are_evaluated_beside_the_event_loop(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of decisions, attempts, concurrency keys and triggers; plain ones are not worth a thread."""
    loop, seen = threading.get_ident(), dict[str, bool]()
    real = Expression.evaluate

    def evaluate(self: Expression, scope: Scope) -> Any:
        seen[self.source] = threading.get_ident() != loop
        return real(self, scope)

    monkeypatch.setattr(Expression, "evaluate", evaluate)
    world = await make(noop=lambda call: call.input)
    definition = flow(
        a=task("noop", when="${input.l.exists(x, x > 1)}", input="${input.l.map(x, x + 1)}"),
        output="${tasks.a.output.filter(x, x > 2)}",
    )
    definition["concurrency"] = {"limit": 1, "key": "${input.l.map(x, x)}"}
    await world.publish(definition)
    await world.publish({**flow(b=task("noop", when="${input.n + 1 > 1}")), "name": "plain"})
    await triggers.create(
        world.engine,
        TENANT,
        {
            "name": "made",
            "workflow": "flow",
            "match": {"type": "made"},
            "filter": "${event.data.all(x, x > 0)}",
            "input": {"l": "${event.data.map(x, x)}"},
        },
        by="ann",
    )
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "made", "data": [1, 2, 3]}
    await events.receive(world.engine, TENANT, [cloudevents.structured(event)])
    await world.start("plain", {"n": 1})
    await world.settle()
    assert world.engine.metrics.value("weft_executions_total", "COMPLETED") == 2
    assert {source for source, beside in seen.items() if not beside} == {"input.n + 1 > 1"}
    assert len(seen) == 7
