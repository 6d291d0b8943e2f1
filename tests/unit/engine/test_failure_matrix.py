"""`runWhen` x `onFailure` x `continueOnError` x outcome of the needs, each cell on the real engine,
compared with the rules as the definition's documentation words them (`domain/workflow.py`)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from orchestrator.engine import inspect
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

RUN_WHEN = ("allSucceeded", "allDone", "anyFailed", "anySucceeded", "noneFailed")
ON_FAILURE = ("failFast", "continue")
HANDLERS = ("allDone", "anyFailed")
OUTCOMES = ("succeeds", "fails", "isSkipped", "failsButMay")
"""Of one need; the last one is a failure with `continueOnError`."""


def _need(outcome: str) -> dict[str, Any]:
    match outcome:
        case "succeeds":
            return task("noop")
        case "fails":
            return task("fail", retry=retry(1))
        case "isSkipped":
            return task("noop", when="${false}")
        case _:
            return task("fail", retry=retry(1), continueOnError=True)


def _met(run_when: str, outcomes: tuple[str, ...]) -> bool:
    failed = [outcome.startswith("fails") for outcome in outcomes]
    succeeded = [outcome == "succeeds" for outcome in outcomes]
    return {
        "allSucceeded": all(succeeded),
        "allDone": True,
        "anyFailed": any(failed),
        "anySucceeded": any(succeeded),
        "noneFailed": not any(failed),
    }[run_when]


def _expected(run_when: str, on_failure: str, outcomes: tuple[str, ...]) -> tuple[str, str]:
    """Status of the task behind the needs, and of the execution."""
    counts = "fails" in outcomes
    execution = "FAILED" if counts else "COMPLETED"
    if counts and on_failure == "failFast" and run_when not in HANDLERS:
        return "CANCELLED", execution
    return "COMPLETED" if _met(run_when, outcomes) else "SKIPPED", execution


async def _run(world: World, definition: dict[str, Any]) -> tuple[str, dict[str, str]]:
    await world.publish(definition)
    started = await world.start(definition["name"])
    await world.run_until_quiet()
    await world.verified(started.id)
    return (await world.view(started.id)).status.value, await world.statuses(started.id)


def _fail(call: ActivityCall) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("on_failure", ON_FAILURE)
@pytest.mark.parametrize("run_when", RUN_WHEN)
async def test_every_cell_of_run_when_on_failure_and_continue_on_error(
    make: MakeWorld, run_when: str, on_failure: str
) -> None:
    """Two needs of every outcome; `after` hangs behind and is always `allSucceeded`."""
    world = await make(noop=lambda call: None, fail=_fail)
    for number, outcomes in enumerate(itertools.product(OUTCOMES, repeat=2)):
        definition = flow(
            f"flow-{number}",
            a=_need(outcomes[0]),
            b=_need(outcomes[1]),
            join=task("noop", "a", "b", runWhen=run_when),
            after=task("noop", "join"),
            on_failure=on_failure,
        )
        status, statuses = await _run(world, definition)
        join, execution = _expected(run_when, on_failure, outcomes)
        assert (status, statuses["join"]) == (execution, join), outcomes
        if execution == "FAILED" and on_failure == "failFast":
            assert statuses["after"] == "CANCELLED", outcomes
        else:
            assert statuses["after"] == ("COMPLETED" if join == "COMPLETED" else "SKIPPED")


@pytest.mark.parametrize("on_failure", ON_FAILURE)
async def test_a_join_behind_a_skipped_branch_follows_its_run_when(
    make: MakeWorld, on_failure: str
) -> None:
    """Netflix/conductor#327, #881: a -> (b when false -> b2), c; the join waits for [b2, c]."""
    world = await make(noop=lambda call: None)
    wanted = {
        "anySucceeded": "COMPLETED",
        "noneFailed": "COMPLETED",
        "allDone": "COMPLETED",
        "allSucceeded": "SKIPPED",
        "anyFailed": "SKIPPED",
    }
    definition = flow(
        a=task("noop"),
        b=task("noop", "a", when="${1 > 2}"),
        b2=task("noop", "b"),
        c=task("noop", "a"),
        on_failure=on_failure,
        **{name.lower(): task("noop", "b2", "c", runWhen=name) for name in wanted},
    )
    status, statuses = await _run(world, definition)
    assert status == "COMPLETED"
    assert {name: statuses[name.lower()] for name in wanted} == wanted
    [id] = {call.execution for call in world.activities.calls}
    b2 = await inspect.task(world.engine, TENANT, id, "b2")
    b = await inspect.task(world.engine, TENANT, id, "b")
    assert (b.reason, b2.reason) == ("condition", "upstream")


@pytest.mark.parametrize("handler", HANDLERS)
async def test_a_failing_handler_keeps_the_first_failure(make: MakeWorld, handler: str) -> None:
    """What went wrong first is what the execution reports; a second handler still runs."""
    world = await make(fail=_fail, noop=lambda call: None)
    definition = flow(
        bad=task("fail", retry=retry(1)),
        tidy=task("fail", "bad", runWhen=handler, retry=retry(1)),
        last=task("noop", "tidy", runWhen=handler),
    )
    status, statuses = await _run(world, definition)
    assert status == "FAILED"
    assert statuses == {"bad": "DEAD_LETTERED", "tidy": "DEAD_LETTERED", "last": "COMPLETED"}
    [id] = {call.execution for call in world.activities.calls}
    error = (await world.view(id)).error
    assert error is not None
    assert error.task == "bad"


@pytest.mark.parametrize("on_failure", ON_FAILURE)
async def test_an_output_that_cannot_be_evaluated_fails_the_execution(
    make: MakeWorld, on_failure: str
) -> None:
    """`continueOnError` let it pass; the output then misses the value."""
    world = await make(fail=_fail)
    definition = flow(
        may=task("fail", retry=retry(1), continueOnError=True),
        output="${tasks.may.output.x}",
        on_failure=on_failure,
    )
    status, statuses = await _run(world, definition)
    assert (status, statuses) == ("FAILED", {"may": "DEAD_LETTERED"})
    [id] = {call.execution for call in world.activities.calls}
    error = (await world.view(id)).error
    assert error is not None
    assert (error.type, error.field) == ("EXPRESSION_FAILED", "$.output")
