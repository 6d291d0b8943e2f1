"""Code workflows and `durable` tasks: started once, waited for, and taken in."""

from __future__ import annotations

import json

import pytest
from family import doc, task_of
from hub import around, durable, hub_of

from orchestrator.domain.errors import TooLargeError
from orchestrator.domain.orchestration import instance_id
from orchestrator.engine import catalog, orchestrations, signals
from orchestrator.engine.views import ExecutionView
from orchestrator.ports_durable import InstanceStatus
from tests.support.definitions import flow, retry
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


async def told(world: World, execution: str, task: str = "main") -> ExecutionView:
    """The instance says that it ends; the execution after that."""
    await orchestrations.ended(world.engine, TENANT, execution, task)
    await world.settle()
    return await world.view(execution)


async def test_a_code_workflow_is_started_and_its_output_is_the_executions(
    make: MakeWorld,
) -> None:
    """By name, as any; the first instance has the execution's id."""
    world, hub = await hub_of(make)
    started = await world.start("ship", {"order": 7})
    await world.settle()
    assert (started.version, hub.alive()) == (2, [started.id])
    one = hub.instances[started.id]
    assert (one.name, one.envelope.input) == ("code_ship_v2", '{"order":7}')
    assert (one.envelope.tenant, one.envelope.task) == (TENANT, "main")
    shown = await task_of(world, started.id, "main")
    assert (shown.status, shown.instance) == ("WAITING", started.id)
    hub.end(started.id, {"sent": True})
    view = await told(world, started.id)
    assert (view.status, view.output) == ("COMPLETED", {"sent": True})
    await world.verified(started.id)
    assert "sweepAt" not in await doc(world, started.id, "task:main")


async def test_a_durable_task_runs_in_a_dag_under_an_id_of_its_own(make: MakeWorld) -> None:
    """With an expression as its input, and a version."""
    world, hub = await hub_of(make)
    await world.publish(around(input={"n": "${input + 1}"}, version=1))
    started = await world.start("around", 1)
    await world.settle()
    [id] = hub.alive()
    assert id == f"{started.id}:d:1"
    assert (hub.instances[id].name, hub.instances[id].envelope.input) == ("code_ship_v1", '{"n":2}')
    hub.end(id, "ok")
    view = await told(world, started.id, "d")
    assert (view.status, view.output) == ("COMPLETED", "ok")
    await world.verified(started.id)


async def test_the_version_is_chosen_when_the_execution_is_submitted(make: MakeWorld) -> None:
    """A deployment in between does not change what its later tasks run."""
    world, hub = await hub_of(make, {"ship": [1]})
    wait = {"type": "wait", "duration": "1h"}
    await world.publish(flow("later", w=wait, d=durable("w")))
    await world.start("later")
    await world.settle()
    hub.code.registered["ship"] = [1, 2]
    await world.clock.advance(3_600_000)
    await world.settle()
    assert [one.name for one in hub.instances.values()] == ["code_ship_v1"]


async def test_items_of_a_map_have_instances_of_their_own(make: MakeWorld) -> None:
    """One per item."""
    world, hub = await hub_of(make)
    do = durable(input="${item}")
    await world.publish(flow("many", m={"type": "map", "items": [1, 2], "do": do}))
    started = await world.start("many")
    await world.settle()
    assert sorted(hub.alive()) == [f"{started.id}:m:{item}:1" for item in (0, 1)]
    for item in (0, 1):
        hub.end(f"{started.id}:m:{item}:1", item * 10)
        await orchestrations.ended(world.engine, TENANT, started.id, "m", item)
    await world.run_until_quiet()
    assert (await task_of(world, started.id, "m")).output == [0, 10]


async def test_a_code_workflow_may_be_a_child(make: MakeWorld) -> None:
    """`type: workflow` names it like any other."""
    world, hub = await hub_of(make)
    child = {"type": "workflow", "workflow": "ship", "input": 3}
    await world.publish(flow("parent", c=child, output="${tasks.c.output}"))
    started = await world.start("parent")
    await world.settle()
    [id] = hub.alive()
    hub.end(id, "done")
    assert (await told(world, id)).status == "COMPLETED"
    assert (await world.view(started.id)).output == "done"


async def test_a_large_input_is_passed_by_reference(make: MakeWorld) -> None:
    """Messages of Durable stay small."""
    world, hub = await hub_of(make)
    started = await world.start("ship", "x" * 70_000)
    await world.settle()
    envelope = hub.instances[started.id].envelope
    assert envelope.input is None
    assert envelope.input_ref is not None
    assert json.loads(await world.payloads.get(str(envelope.input_ref.ref))) == "x" * 70_000


async def test_a_failure_is_a_dead_letter_that_says_why(make: MakeWorld) -> None:
    """Durable has tried again inside: another instance is only for those who ask for it."""
    world, hub = await hub_of(make)
    started = await world.start("ship")
    await world.settle()
    hub.fail(started.id, "no truck")
    view = await told(world, started.id)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "ORCHESTRATION_FAILED")
    assert view.error.causes[0].message == "no truck"
    assert hub.starts == [started.id]


async def test_a_retry_policy_starts_another_instance(make: MakeWorld) -> None:
    """Under the next number."""
    world, hub = await hub_of(make)
    await world.publish(around(retry=retry(2)))
    started = await world.start("around")
    await world.settle()
    hub.fail(f"{started.id}:d:1")
    await told(world, started.id, "d")
    await world.run_until_quiet()
    assert hub.alive() == [f"{started.id}:d:2"]
    hub.end(f"{started.id}:d:2", 1)
    assert (await told(world, started.id, "d")).status == "COMPLETED"


async def test_one_terminated_from_outside_fails_the_task(make: MakeWorld) -> None:
    """It is not tried again: somebody wanted its end."""
    world, hub = await hub_of(make)
    await world.publish(around(retry=retry(3)))
    started = await world.start("around")
    await world.settle()
    await hub.terminate(f"{started.id}:d:1", "by hand")
    view = await told(world, started.id, "d")
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "ORCHESTRATION_TERMINATED")


async def test_an_instance_that_is_gone_fails_the_task(make: MakeWorld) -> None:
    """A task hub that was emptied; only after looks enough that nobody can be still starting it."""
    world, hub = await hub_of(make)
    started = await world.start("ship")
    await world.settle()
    hub.instances.clear()
    for _ in range(4):
        await world.clock.advance(61_000)
        await world.sweep()
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "ORCHESTRATION_NOT_FOUND")


async def test_a_lost_word_of_the_end_is_made_up_for_by_the_sweeper(make: MakeWorld) -> None:
    """Looks that find nothing come ever more seldom."""
    world, hub = await hub_of(make)
    started = await world.start("ship")
    await world.settle()
    for seconds in (61, 121, 241):
        looks = hub.calls.count("status")
        await world.clock.advance(seconds * 1000)
        await world.sweep()
        assert hub.calls.count("status") == looks + 1
    hub.end(started.id, 1)
    await world.clock.advance(481_000)
    await world.sweep()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert world.engine.metrics.counters["weft_repairs_total{orchestration}"] == 1


async def test_word_that_comes_before_the_end_is_looked_at_again(make: MakeWorld) -> None:
    """It is the last step of the instance: Durable writes the end after that."""
    world, hub = await hub_of(make)
    started = await world.start("ship")
    await world.settle()
    await told(world, started.id)
    hub.end(started.id, 1)
    await world.run_until_quiet(limit_ms=20_000)
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_a_time_limit_terminates_and_fails(make: MakeWorld) -> None:
    """Only when it was seen to have ended: a retry must not run beside it."""
    world, hub = await hub_of(make)
    hub.slow = True
    await world.publish(around(timeout="1m"))
    started = await world.start("around")
    await world.settle()
    await world.clock.advance(61_000)
    await world.settle()
    assert (await world.view(started.id)).status == "RUNNING"
    hub.step()
    await world.run_until_quiet(limit_ms=20_000)
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "TIMEOUT")
    assert hub.instances[f"{started.id}:d:1"].status is InstanceStatus.TERMINATED


async def test_while_durable_is_away_starts_are_put_off_without_an_attempt(
    make: MakeWorld,
) -> None:
    """Ever longer, up to a minute; the task is not charged."""
    world, hub = await hub_of(make)
    world.engine.orchestrations = None
    started = await world.start("ship")
    await world.settle()
    for _ in range(6):
        await world.clock.advance(61_000)
        await world.settle()
    shown = await task_of(world, started.id, "main")
    assert shown.status == "RETRYING"
    assert {one.error and one.error.type for one in shown.attempts} == {"PUT_OFF"}
    assert 6 <= len(shown.attempts) <= 8
    hub.join(world.engine)
    await world.clock.advance(61_000)
    await world.settle()
    hub.end(started.id, 1)
    assert (await told(world, started.id)).status == "COMPLETED"


async def test_a_version_that_is_not_deployed_waits_for_a_deployment(make: MakeWorld) -> None:
    """Nothing fails because of a deployment that went wrong."""
    world, hub = await hub_of(make)
    await world.publish(around(version=1))
    started = await world.start("around")
    hub.code.registered["ship"] = [2]
    await world.settle()
    assert (await task_of(world, started.id, "d")).status == "RETRYING"
    hub.code.registered["ship"] = [1, 2]
    await world.clock.advance(6_000)
    await world.settle()
    assert [one.name for one in hub.instances.values()] == ["code_ship_v1"]


def test_an_id_that_durable_would_not_take_is_hashed() -> None:
    """Characters and length."""
    long = instance_id("e", "t" * 60, 5, 1, own=False), instance_id("e" * 99, "t", 5, 1, own=False)
    assert long[0] == f"e:{'t' * 60}:5:1"
    assert (len(long[1]), long[1][0]) == (32, "h")
    assert instance_id("a/b", "main", None, 1, own=True) != "a/b"
    assert instance_id("ab", "main", None, 2, own=True) == "ab:main:2"


async def test_a_definition_of_the_same_name_takes_its_place(make: MakeWorld) -> None:
    """If it was there before; what runs goes on as what it was."""
    world, hub = await hub_of(make, {})
    await world.publish(
        flow("ship", t={"type": "transform", "output": 5}, output="${tasks.t.output}")
    )
    hub.code.registered["ship"] = [1]
    started = await world.start("ship")
    await world.settle()
    assert (await world.view(started.id)).output == 5
    assert (await catalog.head(world.engine, TENANT, "ship")).body.get("kind") is None


async def test_what_no_step_could_take_is_refused_where_it_comes_in(make: MakeWorld) -> None:
    """Start, signal, and the input of a task: not by an instance that fails of it."""
    world, hub = await hub_of(make)
    large = "x" * (512 * 1024)
    with pytest.raises(TooLargeError, match="the input has 524290 bytes"):
        await world.start("ship", large)
    started = await world.start("ship", large[:-2])
    await world.settle()
    with pytest.raises(TooLargeError, match="the payload has"):
        await signals.send(world.engine, TENANT, started.id, "go", large)
    definition = around(input="${input}", signals=["go"])
    definition["tasks"]["s"] = {"type": "signal", "signal": "other"}
    await world.publish(definition)
    second = await world.start("around", large)
    await world.settle()
    error = (await task_of(world, second.id, "d")).error
    assert (error.type, error.field, error.retryable) == (
        "PAYLOAD_TOO_LARGE",
        "$.tasks.d.input",
        False,
    )
    assert hub.starts == [started.id]
    third = await world.start("around", 1)
    with pytest.raises(TooLargeError):
        await signals.send(world.engine, TENANT, third.id, "go", large)
    await signals.send(world.engine, TENANT, third.id, "other", large)
