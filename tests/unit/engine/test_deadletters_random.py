"""Random failures, lost messages and operators, for many seeds: whatever is decided when, nothing
is run after it completed, the history folds to the state, and retrying to the end completes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError
from orchestrator.engine import control, letters_bulk
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_wish import Action
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld
from tests.unit.engine.test_cases_deadletters import act, letters

ENDED = {"COMPLETED", "FAILED", "CANCELLED"}


def definition(on_failure: str) -> dict[str, Any]:
    once = retry(1)
    do = {"type": "activity", "activity": "work", "input": "${item}", "retry": once}
    return flow(
        on_failure=on_failure,
        timeout="10d",
        a=task("work", retry=once),
        b=task("work", "a", retry=retry(2, "1s")),
        m={"type": "map", "needs": ["a"], "items": [0, 1, 2, 3, 4], "do": do, "maxConcurrency": 2},
        side=task("work", retry=once),
        w={"type": "wait", "needs": ["side"], "duration": "5s"},
        tidy=task("work", "b", runWhen="allDone", retry=once),
        end=task("work", "m", "b", "w", retry=once, input="${tasks.m.output}"),
    )


async def _decide(world: World, rng: random.Random, execution: str) -> None:
    """One thing that an operator may do now; a refusal is an answer too."""
    open_ones = await letters(world, status=LetterStatus.OPEN)
    try:
        match rng.randrange(6):
            case 0:
                await letters_bulk.retry_execution(world.engine, TENANT, execution, by="eve")
            case 1:
                await control.act(world.engine, TENANT, execution, control.PAUSE, by="eve")
            case 2:
                await control.act(world.engine, TENANT, execution, control.RESUME, by="eve")
            case _ if open_ones:
                action = rng.choice([Action.RETRY, Action.RETRY, Action.RETRY, Action.SKIP])
                await act(world, rng.choice(open_ones).id, action)
    except ConflictError:
        pass


@pytest.mark.parametrize("on_failure", ["failFast", "continue", "hold"])
@pytest.mark.parametrize("seed", range(6))
async def test_any_mixture_of_failures_and_decisions_can_be_brought_to_its_end(
    make: MakeWorld, seed: int, on_failure: str
) -> None:
    rng = random.Random(f"{seed}{on_failure}")
    calm = False
    completed: list[tuple[str, int | None]] = []

    def work(call: ActivityCall) -> Any:
        if not calm and rng.random() < 0.35:
            raise ValueError("broken")
        completed.append((call.task, call.item))
        return call.item

    world = await make(work=work)
    await world.publish(definition(on_failure))
    started = await world.start("flow")
    for _ in range(25):
        due = world.transport.take(world.clock.now())
        rng.shuffle(due)
        await world.deliver([m for m in due if rng.random() < 0.9])  # some are lost
        if rng.random() < 0.4:
            await _decide(world, rng, started.id)
        await world.clock.advance(rng.choice([0, 100, 2000]))
        if rng.random() < 0.2:
            await world.sweep()
        await world.verified(started.id)
    calm = True
    for _ in range(30):
        view = await world.view(started.id)
        if view.status == "COMPLETED":
            break
        try:
            if view.status == "PAUSED":
                await control.act(world.engine, TENANT, started.id, control.RESUME, by="eve")
            await letters_bulk.retry_execution(world.engine, TENANT, started.id, by="eve")
        except ConflictError:
            pass
        await world.settle()
        await world.clock.advance(world.tunables.max_silence_ms * 2)
        await world.sweep()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert await letters(world, status=LetterStatus.OPEN) == []
    await world.verified(started.id)
    # Every success counts once. Only a result whose message was lost with its lease may come twice,
    # and no lease is lost here.
    assert len(completed) == len(set(completed))
