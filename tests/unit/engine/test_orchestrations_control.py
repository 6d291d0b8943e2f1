"""What operators and signals do to orchestrations."""

from __future__ import annotations

from typing import Any

import pytest
from family import doc, task_of
from hub import Hub, around, hub_of
from test_orchestrations import told

from orchestrator.domain.errors import ConflictError, InvalidError
from orchestrator.engine import control, erase, letters_act, letters_list, signals
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports_durable import InstanceStatus
from tests.support.definitions import flow, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


async def running(make: MakeWorld, **options: Any) -> tuple[World, Hub, str]:
    """A code workflow whose instance runs."""
    world, hub = await hub_of(make, **options)
    started = await world.start("ship")
    await world.settle()
    return world, hub, started.id


async def act(world: World, execution: str, action: control.Action) -> None:
    """Somebody does it, and everything that follows from it happens."""
    await control.act(world.engine, TENANT, execution, action, by="ada")
    await world.settle()


async def passed(world: World, rounds: int = 3) -> None:
    """Minutes, with sweeps."""
    for _ in range(rounds):
        await world.clock.advance(61_000)
        await world.sweep()


@pytest.mark.parametrize("action", [control.CANCEL, control.TERMINATE])
async def test_an_end_of_the_execution_terminates_the_instance(
    make: MakeWorld, action: control.Action
) -> None:
    """At once, and nothing is left to look after."""
    world, hub, id = await running(make)
    await act(world, id, action)
    assert hub.instances[id].status is InstanceStatus.TERMINATED
    await passed(world)
    stored = await doc(world, id, "task:main")
    assert (stored["status"], "sweepAt" in stored) == ("CANCELLED", False)
    await world.verified(id)


async def test_a_termination_is_asked_for_until_it_was_seen(make: MakeWorld) -> None:
    """Durable was away when the execution was cancelled."""
    world, hub, id = await running(make)
    world.engine.orchestrations = None
    await act(world, id, control.CANCEL)
    await passed(world)
    assert hub.alive() == [id]
    hub.join(world.engine)
    hub.slow = True
    await passed(world, 1)
    assert "sweepAt" in await doc(world, id, "task:main")
    hub.step()
    asked = hub.calls.count("terminate")
    await passed(world, 2)
    assert (hub.alive(), "sweepAt" in await doc(world, id, "task:main")) == ([], False)
    # Once more, for what it had started before it heard.
    assert hub.calls.count("terminate") == asked + 1


async def test_a_cancel_while_it_is_started_terminates_it(make: MakeWorld) -> None:
    """Whoever came to tell met the lease."""
    world, hub = await hub_of(make)
    started = await world.start("ship")

    async def cancel() -> None:
        await act(world, started.id, control.CANCEL)

    start = hub.start

    async def slowly(name: str, instance: str, payload: str) -> None:
        await start(name, instance, payload)
        await cancel()

    hub.start = slowly  # type: ignore[method-assign]
    await world.settle()
    assert hub.alive() == []
    await passed(world)
    assert (await world.view(started.id)).status == "CANCELLED"
    assert "sweepAt" not in await doc(world, started.id, "task:main")


async def test_a_failing_neighbour_lets_it_end(make: MakeWorld) -> None:
    """As every attempt: work that was paid for is not thrown away."""
    world, hub = await hub_of(make, fails=lambda call: 1 / 0)
    definition = around()
    definition["tasks"]["f"] = task("fails", retry={"maxAttempts": 1})
    await world.publish(definition)
    started = await world.start("around")
    await world.settle()
    assert hub.alive() == [f"{started.id}:d:1"]
    hub.end(f"{started.id}:d:1", 1)
    assert (await told(world, started.id, "d")).status == "FAILED"
    assert (await world.statuses(started.id))["d"] == "COMPLETED"


async def test_a_cancel_with_compensation_terminates_and_undoes(make: MakeWorld) -> None:
    """Compensation waits for the end of what is in flight, so that is brought about."""
    world, hub = await hub_of(make, work=lambda call: 1)
    undo = {"type": "activity", "activity": "work"}
    definition = around(needs=["a"])
    definition["tasks"]["a"] = task("work", compensate=undo)
    await world.publish(definition)
    started = await world.start("around")
    await world.settle()
    await act(world, started.id, control.CANCEL_COMPENSATING)
    assert hub.alive() == []
    await world.run_until_quiet(limit_ms=20_000)
    view = await world.view(started.id)
    assert (view.status, view.compensation and view.compensation.status) == (
        "CANCELLED",
        "complete",
    )


async def test_a_deadline_of_the_task_terminates_it(make: MakeWorld) -> None:
    """The orchestrator takes the document over; the instance is stopped then."""
    world, hub = await hub_of(make)
    await world.publish(around(deadline="1h"))
    started = await world.start("around")
    await world.settle()
    await world.clock.advance(3_600_000)
    await world.settle()
    await passed(world, 1)
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.status, view.error.type, hub.alive()) == ("FAILED", "DEADLINE_EXCEEDED", [])


async def test_pause_suspends_and_resume_resumes(make: MakeWorld) -> None:
    """Both until they were seen."""
    world, hub, id = await running(make)
    await act(world, id, control.PAUSE)
    assert hub.instances[id].status is InstanceStatus.SUSPENDED
    await act(world, id, control.RESUME)
    assert hub.instances[id].status is InstanceStatus.RUNNING
    await world.verified(id)


async def test_a_pause_that_durable_did_not_hear_is_told_again(make: MakeWorld) -> None:
    """Within a minute of its return."""
    world, hub, id = await running(make)
    await passed(world, 8)  # looks are far apart by now
    world.engine.orchestrations = None
    await act(world, id, control.PAUSE)
    await world.run_until_quiet(limit_ms=30_000)
    hub.join(world.engine)
    assert hub.instances[id].status is InstanceStatus.RUNNING
    await passed(world, 2)
    assert hub.instances[id].status is InstanceStatus.SUSPENDED


async def test_a_paused_execution_starts_no_instance_and_takes_an_end_in(make: MakeWorld) -> None:
    """What runs counts; what has not begun waits for the resume."""
    world, hub = await hub_of(make)
    started = await world.start("ship")
    await act(world, started.id, control.PAUSE)
    assert hub.starts == []
    await act(world, started.id, control.RESUME)
    await act(world, started.id, control.PAUSE)
    hub.end(started.id, 1)
    await told(world, started.id)
    assert (await world.statuses(started.id))["main"] == "COMPLETED"


# --- dead letters ---------------------------------------------------------------------------------


async def letter_of(world: World) -> str:
    """Id of the one open letter."""
    filter = letters_list.LetterFilter(status=letters_list.LetterStatus.OPEN)
    items, _ = await letters_list.page(world.engine, TENANT, filter, limit=10, after=None)
    return items[0].id


async def retried(world: World, **wish: Any) -> None:
    """Somebody retries the one open letter."""
    id = await letter_of(world)
    await letters_act.act(world.engine, TENANT, id, Wish(action=Action.RETRY, by="ada", **wish))
    await world.settle()


async def test_a_retry_of_the_dead_letter_rewinds(make: MakeWorld) -> None:
    """What was done is not done again; the old end is no news."""
    world, hub, id = await running(make)
    hub.slow = True
    hub.fail(id)
    assert (await told(world, id)).status == "FAILED"
    await retried(world)
    await told(world, id)
    assert (hub.starts, (await world.view(id)).status) == ([id], "RUNNING")
    hub.step()
    hub.end(id, 2)
    view = await told(world, id)
    assert (view.status, view.output, hub.starts) == ("COMPLETED", 2, [id])


async def test_one_that_fails_again_after_a_rewind_is_dead_again(make: MakeWorld) -> None:
    """And may be rewound again."""
    world, hub, id = await running(make)
    for _ in range(2):
        hub.fail(id)
        assert (await told(world, id)).status == "FAILED"
        await retried(world)
        assert hub.alive() == [id]
    assert (hub.starts, hub.calls.count("rewind")) == ([id], 2)


async def test_what_cannot_be_rewound_is_started_anew(make: MakeWorld) -> None:
    """The backend cannot, or it was terminated, or the hub was emptied."""
    for case in ("cannot", "terminated"):
        world, hub, id = await running(make)
        hub.rewinds = False
        if case == "cannot":
            hub.fail(id)
        else:
            await hub.terminate(id, "by hand")
        assert (await told(world, id)).status == "FAILED"
        await retried(world)
        await world.run_until_quiet(limit_ms=10_000)
        assert hub.alive() == [f"{id}:main:2"], case
        hub.end(f"{id}:main:2", 1)
        assert (await told(world, id)).status == "COMPLETED"


async def test_an_edited_input_is_another_instance(make: MakeWorld) -> None:
    """The one that failed had another input."""
    world, hub, id = await running(make)
    hub.fail(id)
    await told(world, id)
    await retried(world, edited=True, value={"order": 8})
    assert hub.alive() == [f"{id}:main:2"]
    assert hub.instances[f"{id}:main:2"].envelope.input == '{"order":8}'


# --- signals --------------------------------------------------------------------------------------


async def send(world: World, execution: str, name: str, payload: Any, id: str) -> None:
    """Send a signal, and let it arrive."""
    await signals.send(world.engine, TENANT, execution, name, payload, id=id)
    await world.settle()


async def shown(world: World, execution: str) -> list[tuple[str, str, str | None]]:
    """(id, status, task) of its signals."""
    items, _ = await signals.page(world.engine, TENANT, execution, limit=100, after=None)
    return [(one.id, one.status.value, one.task) for one in items]


async def test_signals_of_a_code_workflow_are_raised_in_order(make: MakeWorld) -> None:
    """Any name; the state forgets them."""
    world, hub, id = await running(make)
    await send(world, id, "approved", {"by": "bob"}, "s1")
    await send(world, id, "changed", 2, "s2")
    assert hub.instances[id].signals == [("approved", {"by": "bob"}), ("changed", 2)]
    await send(world, id, "changed", 2, "s2")
    assert len(hub.instances[id].events) == 2
    assert await shown(world, id) == [("s1", "RAISED", "main"), ("s2", "RAISED", "main")]
    state = (await doc(world, id, id))["state"]
    assert "signals" not in state
    assert "sweepAt" not in await doc(world, id, "signal:s2")
    await world.verified(id)
    with pytest.raises(ConflictError):
        await signals.send(world.engine, TENANT, id, "changed", 3, id="s2")


async def test_a_signal_before_the_start_waits_for_the_instance(make: MakeWorld) -> None:
    """Durable was away when it came."""
    world, hub = await hub_of(make)
    world.engine.orchestrations = None
    started = await world.start("ship")
    await send(world, started.id, "early", 1, "s1")
    hub.join(world.engine)
    await world.clock.advance(6_000)
    await world.settle()
    assert hub.instances[started.id].signals == [("early", 1)]


async def test_only_names_that_the_task_lists_are_handed_to_it(make: MakeWorld) -> None:
    """In a DAG; others go to whoever waits for them, or nowhere."""
    world, hub = await hub_of(make)
    definition = around(signals=["go"])
    definition["tasks"]["s"] = {"type": "signal", "signal": "mine"}
    await world.publish(definition)
    started = await world.start("around")
    await world.settle()
    await send(world, started.id, "go", 1, "s1")
    await send(world, started.id, "mine", 2, "s2")
    assert hub.instances[f"{started.id}:d:1"].signals == [("go", 1)]
    assert await shown(world, started.id) == [("s1", "RAISED", "d"), ("s2", "CONSUMED", "s")]
    with pytest.raises(InvalidError):
        await send(world, started.id, "gone", 1, "s3")


async def test_many_signals_are_all_raised(make: MakeWorld) -> None:
    """More than one look hands over."""
    world, hub, id = await running(make)
    for number in range(60):
        await signals.send(world.engine, TENANT, id, "n", number, id=f"s{number:02}")
        world.clock.jump(1)
    await world.run_until_quiet(limit_ms=30_000)
    assert [value for _, value in hub.instances[id].signals] == list(range(60))
    assert "signals" not in (await doc(world, id, id))["state"]


async def test_a_signal_for_an_instance_that_has_ended_stays_unmatched(make: MakeWorld) -> None:
    """It came too late, and says so."""
    world, hub, id = await running(make)
    hub.end(id, 1)
    await send(world, id, "late", 1, "s1")
    assert (await world.view(id)).status == "COMPLETED"
    assert await shown(world, id) == [("s1", "UNMATCHED", None)]


async def test_a_lost_answer_raises_it_again_under_the_same_id(make: MakeWorld) -> None:
    """The instance drops the double."""
    world, hub, id = await running(make)
    lost = [True]

    def once(name: str, args: tuple[Any, ...]) -> BaseException | None:
        from orchestrator.ports import Unavailable

        return Unavailable("lost") if name == "raise_event" and lost and lost.pop() else None

    hub.after = once
    await send(world, id, "go", 1, "s1")
    await passed(world, 2)
    assert hub.instances[id].signals == [("go", 1), ("go", 1)]
    assert await shown(world, id) == [("s1", "RAISED", "main")]


async def test_the_task_shows_what_durable_says_now(make: MakeWorld) -> None:
    """And why not, where it does not answer."""
    world, hub, id = await running(make)
    hub.instances[id].custom = '{"step": "packing"}'
    seen = (await world.view(id)).orchestration
    assert seen is not None
    assert (seen.status, seen.custom_status) == ("Running", {"step": "packing"})
    world.engine.orchestrations = None
    seen = (await task_of(world, id, "main")).orchestration
    assert seen is not None
    assert (seen.status, seen.note) == (None, "Durable Functions does not answer")


async def test_erasing_purges_the_instance(make: MakeWorld) -> None:
    """Its history holds inputs and outputs, too."""
    world, hub, id = await running(make)
    hub.end(id, "private")
    await told(world, id)
    await erase.erase(world.engine, TENANT, id, by="ada", reason="asked for")
    assert hub.instances == {}


async def test_a_dag_is_not_taken_for_a_code_workflow(make: MakeWorld) -> None:
    """Signals of unknown names are refused there."""
    world, _ = await hub_of(make)
    await world.publish(flow("plain", t={"type": "wait", "duration": "1h"}))
    started = await world.start("plain")
    await world.settle()
    with pytest.raises(InvalidError):
        await signals.send(world.engine, TENANT, started.id, "any", 1)
