"""Child workflows: what a parent gives and gets, its links, versions, retries and limits."""

from __future__ import annotations

from typing import Any

import pytest
from family import child, child_of, child_task, doc, everyone, parent, task_of

from orchestrator.domain.errors import InvalidError
from orchestrator.domain.topology import MAX_CHILD_DEPTH
from orchestrator.engine import catalog, inspect, replay
from orchestrator.engine.inspect import ExecutionFilter
from tests.support.definitions import flow, retry
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


async def _run(world: World, value: Any = None, workflow: str = "parent") -> Any:
    started = await world.start(workflow, value)
    await world.run_until_quiet()
    for id in await everyone(world):
        await world.verified(id)
    return await world.view(started.id)


async def test_input_and_output_are_mapped_and_both_know_each_other(make: MakeWorld) -> None:
    """Own execution, linked both ways."""
    world = await make(work=lambda call: {"got": call.input})
    await world.publish(child())
    await world.publish(parent(input={"n": "${input.n + 1}"}))
    view = await _run(world, {"n": 1})
    assert (view.status, view.output) == ("COMPLETED", {"got": {"n": 2}})
    id = await child_of(world, view.id)
    own = await world.view(id)
    assert (own.parent, own.parent_task, own.parent_item, own.depth) == (view.id, "c", None, 1)
    assert (own.started_by, own.workflow, own.status) == (
        f"execution:{view.id}",
        "child",
        "COMPLETED",
    )
    shown = await task_of(world, view.id, "c")
    assert [one.child for one in shown.attempts] == [id]
    assert (shown.attempt, shown.status) == (1, "COMPLETED")
    assert shown.ended_at is not None
    assert "sweepAt" not in await doc(world, view.id, "task:c")


async def test_while_the_child_runs_the_task_is_waiting_and_holds_no_worker(
    make: MakeWorld,
) -> None:
    """No lease, no message, a time at which the sweeper looks."""
    world = await make(work=lambda call: 1)
    await world.publish(flow("child", w={"type": "wait", "duration": "30d"}))
    await world.publish(parent())
    started = await world.start("parent")
    await world.settle()
    shown = await task_of(world, started.id, "c")
    assert (shown.status, shown.lease, shown.attempt) == ("WAITING", None, 1)
    assert world.transport.messages == []
    stored = await doc(world, started.id, "task:c")
    assert stored["sweepAt"] == world.clock.now() + world.tunables.silence_ms


async def test_looks_of_the_sweeper_become_rare_and_leave_no_trace_in_the_history(
    make: MakeWorld,
) -> None:
    """From a minute to a quarter of an hour; a check does not take the task for lost."""
    world = await make()
    await world.publish(flow("child", w={"type": "wait", "duration": "30d"}))
    await world.publish(parent())
    started = await world.start("parent")
    await world.settle()
    gaps: list[int] = []
    for _ in range(8):
        stored = await doc(world, started.id, "task:c")
        gaps.append((stored["sweepAt"] - world.clock.now()) // 1000)
        await world.clock.advance(stored["sweepAt"] - world.clock.now())
        await world.sweep()
    assert gaps == [60, 120, 240, 480, 900, 900, 900, 900]
    events, _ = await inspect.history(world.engine, TENANT, started.id, limit=100, after=None)
    assert [event.type for event in events] == [
        "executionAccepted",
        "executionStarted",
        "tasksQueued",
    ]


async def test_lost_word_of_the_child_is_made_up_for_by_the_sweeper(make: MakeWorld) -> None:
    """The message to the parent may get lost like any other."""
    world = await make(work=lambda call: 5)
    await world.publish(child())
    await world.publish(parent())
    started = await world.start("parent")
    calls = 0
    while due := world.transport.take(world.clock.now()):
        words = [m for m in due if b"runTask" in m.body and started.id.encode() in m.body]
        calls += len(words)
        if calls > 1:  # the first one started the child
            due = [message for message in due if message not in words]
        await world.deliver(due)
    assert calls == 2
    assert (await task_of(world, started.id, "c")).status == "WAITING"
    await world.clock.advance(world.tunables.silence_ms)
    await world.sweep()
    assert (await world.view(started.id)).output == 5


async def test_a_large_output_belongs_to_the_parent_afterwards(make: MakeWorld) -> None:
    """By reference, and not to the child's payload, which may be removed with it."""
    world = await make(work=lambda call: "x" * 100_000)
    await world.publish(child())
    await world.publish(parent())
    view = await _run(world)
    assert len(view.output) == 100_000
    stored = await doc(world, view.id, "task:c")
    assert view.id in stored["output"]["ref"]


async def test_a_failing_child_fails_the_task_with_its_cause_and_is_not_tried_again(
    make: MakeWorld,
) -> None:
    """One attempt, whatever `defaults` say: the child has retried already."""

    def work(call: Any) -> None:
        raise ValueError("no stock")

    world = await make(work=work)
    await world.publish(child(defaults={"retry": retry(2)}))
    await world.publish(parent(defaults={"retry": retry(5)}))
    view = await _run(world)
    assert (view.status, view.error.type, view.error.task) == ("FAILED", "CHILD_FAILED", "c")
    assert [(one.type, one.message) for one in view.error.causes] == [("ValueError", "no stock")]
    assert len(await everyone(world)) == 2
    assert len(world.activities.calls) == 2


async def test_with_a_retry_of_its_own_each_attempt_starts_a_new_child(make: MakeWorld) -> None:
    """And the attempts tell which."""
    failing = [True, True, False]

    def work(call: Any) -> str:
        if failing.pop(0):
            raise ValueError("not yet")
        return "done"

    world = await make(work=work)
    await world.publish(child(defaults={"retry": retry(1)}))
    await world.publish(parent(retry=retry(3, "10s")))
    view = await _run(world)
    assert (view.status, view.output) == ("COMPLETED", "done")
    shown = await task_of(world, view.id, "c")
    ids = [one.child for one in shown.attempts]
    assert len(set(ids)) == 3
    assert [(await world.view(str(id))).status for id in ids] == ["FAILED", "FAILED", "COMPLETED"]


async def test_the_child_keeps_the_version_of_the_parents_start(make: MakeWorld) -> None:
    """Published anew, and archived, while the parent waits."""
    world = await make()
    version = {"type": "transform", "output": 1}
    await world.publish(flow("child", t=version, output="v1"))
    wait = {"type": "wait", "duration": "2d"}
    await world.publish(
        flow(
            "parent",
            w=wait,
            c=child_task("child", "w"),
            two=child_task("child", "w", version=2),
            output="${[tasks.c.output, tasks.two.output]}",
        )
    )
    started = await world.start("parent")
    await world.settle()
    await world.publish(flow("child", t=version, output="v2"))
    await world.publish(flow("child", t=version, output="v3"))
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == ["v1", "v2"]


async def test_archiving_does_not_stop_the_children_of_what_runs(make: MakeWorld) -> None:
    """But a parent started afterwards gets none."""
    world = await make()
    await world.publish(flow("child", t={"type": "transform", "output": 1}, output="v1"))
    wait = {"type": "wait", "duration": "1m"}
    await world.publish(
        flow("parent", w=wait, c=child_task("child", "w"), output="${tasks.c.output}")
    )
    started = await world.start("parent")
    await world.settle()
    await catalog.archive(world.engine, TENANT, "child")
    late = await world.start("parent")
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == "v1"
    view = await world.view(late.id)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "WORKFLOW_ARCHIVED")


async def test_a_child_that_does_not_exist_is_a_clear_failure(make: MakeWorld) -> None:
    """Not tried again, even where retries are wanted; no execution is left behind."""
    world = await make()
    await world.publish(parent(retry=retry(5)))
    view = await _run(world)
    assert (view.status, view.error.type) == ("FAILED", "WORKFLOW_NOT_FOUND")
    assert "publish it first" in view.error.message
    shown = await task_of(world, view.id, "c")
    assert [one.error and one.error.type for one in shown.attempts] == [
        "PUT_OFF",  # a replica may lag behind its publication
        "PUT_OFF",
        "WORKFLOW_NOT_FOUND",
    ]
    assert len(await everyone(world)) == 1
    assert "sweepAt" not in await doc(world, view.id, "task:c")


@pytest.mark.parametrize("version", [1, 2])
async def test_a_version_that_does_not_exist_is_a_clear_failure(
    make: MakeWorld, version: int
) -> None:
    """A version may be named that is published later."""
    world = await make(work=lambda call: 1)
    await world.publish(child())
    await world.publish(parent(version=version))
    view = await _run(world)
    assert view.status == ("COMPLETED" if version == 1 else "FAILED")
    if version == 2:
        assert view.error.type == "VERSION_NOT_FOUND"


async def test_the_childs_schema_judges_what_the_parent_gives(make: MakeWorld) -> None:
    """The same admission as for everybody, with all findings."""
    world = await make(work=lambda call: 1)
    schema = {"type": "object", "required": ["a", "b"]}
    await world.publish(child(input_schema=schema))
    await world.publish(parent(input={"c": 1}, retry=retry(3)))
    view = await _run(world)
    assert (view.status, view.error.type) == ("FAILED", "INPUT_INVALID")
    assert "a" in view.error.message
    assert "b" in view.error.message
    assert len(await everyone(world)) == 1


async def test_a_failing_input_expression_names_its_place(make: MakeWorld) -> None:
    """Like an activity's."""
    world = await make(work=lambda call: 1)
    await world.publish(child())
    await world.publish(parent(input={"n": "${input.missing.n}"}))
    view = await _run(world, {})
    assert (view.error.type, view.error.field) == ("EXPRESSION_FAILED", "$.tasks.c.input.n")


@pytest.mark.parametrize("inside", [False, True])
async def test_a_workflow_that_is_its_own_child_is_refused_also_by_the_version_it_becomes(
    make: MakeWorld, inside: bool
) -> None:
    world = await make()

    def naming(version: int | None) -> dict[str, Any]:
        own = child_task("parent") if version is None else child_task("parent", version=version)
        return flow("parent", c={"type": "map", "items": [1], "do": own} if inside else own)

    place = "$.tasks.c.do" if inside else "$.tasks.c"
    for version, field in ((None, f"{place}.workflow"), (1, f"{place}.version")):
        with pytest.raises(InvalidError) as refused:
            await world.publish(naming(version))
        [detail] = refused.value.details
        assert (detail.field, detail.code) == (field, "OWN_CHILD")
    assert await world.publish(naming(2)) == 1
    assert await world.publish(naming(1)) == 2  # another version of itself is another workflow


async def test_executions_that_start_each_other_end_at_the_depth_limit(make: MakeWorld) -> None:
    """A workflow cannot name itself, but two can name each other."""
    world = await make()
    await world.publish(flow("ping", c=child_task("pong")))
    await world.publish(flow("pong", c=child_task("ping")))
    view = await _run(world, workflow="ping")
    assert view.status == "FAILED"
    assert view.error.causes[-1].type in ("CHILD_FAILED", "CHILD_TOO_DEEP")
    everybody = await everyone(world)
    assert sorted(one.get("depth", 0) for one in everybody.values()) == list(
        range(MAX_CHILD_DEPTH + 1)
    )
    (deepest,) = [one for one in everybody.values() if one.get("depth") == MAX_CHILD_DEPTH]
    assert deepest["state"]["failure"]["type"] == "CHILD_TOO_DEEP"


async def test_text_that_looks_like_an_expression_is_data_in_a_child_too(make: MakeWorld) -> None:
    """Data is never compiled: not in the child, not in a map of children, not in a replay."""
    world = await make(work=lambda call: f"Hello {call.input['name']}")
    await world.publish(child())
    do = child_task("child", input={"name": "${item}"})
    await world.publish(
        flow("parent", m={"type": "map", "items": "${input}", "do": do}, output="${tasks.m.output}")
    )
    texts = ["${secrets.API_KEY}", '"}], "x": "y', "line\nbreak {{x}}"]
    view = await _run(world, texts)
    assert view.output == [f"Hello {text}" for text in texts]
    again = await replay.replay(world.engine, TENANT, view.id)
    await world.run_until_quiet()
    assert (await world.view(again.id)).output == view.output


async def test_a_replay_copies_a_childs_result_and_keeps_the_pins(make: MakeWorld) -> None:
    """The child of a task that is kept is not run again; one that is run again is the same
    version."""
    world = await make(work=lambda call: call.input)
    await world.publish(child())
    await world.publish(
        flow(
            "parent",
            c=child_task("child", input=1),
            d=child_task("child", "c", input="${tasks.c.output + 1}"),
            output="${tasks.d.output}",
        )
    )
    view = await _run(world)
    await world.publish(flow("child", t={"type": "transform", "output": 1}, output="new"))
    again = await replay.replay(world.engine, TENANT, view.id, start_at="d")
    await world.run_until_quiet()
    found = await world.view(again.id)
    assert (found.status, found.output) == ("COMPLETED", 2)
    born = [one for one in (await everyone(world)).values() if one.get("parent") == again.id]
    assert [(one["workflow"], one["version"]) for one in born] == [("child", 1)]
    fresh = await replay.replay(world.engine, TENANT, view.id, start_at="d", latest=True)
    await world.run_until_quiet()
    assert (await world.view(fresh.id)).output == "new"


async def test_children_are_listed_by_their_parent(make: MakeWorld) -> None:
    """From the read model."""
    from orchestrator.engine import project

    world = await make(work=lambda call: call.input)
    await world.publish(child())
    await world.publish(parent(input=7))
    view = await _run(world)
    await project.project_documents(world.engine, list((await everyone(world)).values()))
    found, _ = await inspect.executions(
        world.engine, TENANT, ExecutionFilter(parent=view.id), limit=10, after=None
    )
    assert [one.id for one in found] == [await child_of(world, view.id)]


async def test_the_trace_goes_on_in_the_child(make: MakeWorld) -> None:
    """One trace from the request to the grandchild's activity."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    world = await make(work=lambda call: call.traceparent)
    await world.publish(child())
    await world.publish(parent(name="middle"))
    await world.publish(parent("middle"))
    started = await world.start("parent", traceparent=trace)
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == trace


async def test_the_timeout_of_the_task_ends_a_child_that_takes_too_long(make: MakeWorld) -> None:
    """The child is cancelled first, then the attempt fails; a retry starts a new child."""
    world = await make()
    await world.publish(flow("child", w={"type": "wait", "duration": "30d"}))
    await world.publish(parent(timeout="1h", retry=retry(2)))
    view = await _run(world)
    assert (view.status, view.error.type) == ("FAILED", "TIMEOUT")
    shown = await task_of(world, view.id, "c")
    for one in shown.attempts:
        assert one.child is not None
        assert (await world.view(one.child)).status == "CANCELLED"
    took = [int(one.ended_at or 0) - int(one.started_at) for one in shown.attempts]
    assert took == [3_600_000, 3_600_000]


@pytest.mark.parametrize("lost", [False, True])
async def test_no_default_timeout_ends_a_child(make: MakeWorld, lost: bool) -> None:
    """`defaults.timeout` is of attempts; weeks later the child's result counts, also if the
    sweeper must find it."""
    world = await make()
    await world.publish(flow("child", w={"type": "wait", "duration": "20d"}, output="late"))
    await world.publish(parent(defaults={"timeout": "1s"}))
    started = await world.start("parent")
    await world.settle()
    for _ in range(21):
        await world.clock.advance(24 * 3600 * 1000)
        if lost:
            world.transport.messages.clear()
        await world.sweep()
    assert (await world.view(started.id)).output == "late"
