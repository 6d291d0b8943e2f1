"""Cases from the field about dead letters and manual retries, proven on the real engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError, InvalidError
from orchestrator.domain.topology import AUDIT
from orchestrator.engine import control, inspect, letters_act, letters_list
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_act import Action, Wish
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.ports import ActivityCall, Query, Where
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


class Flaky:
    """Fails for tasks named in `broken`, as long as they are."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.ran: list[str] = []

    def __call__(self, call: ActivityCall) -> Any:
        name = call.task if call.item is None else f"{call.task}{call.item}"
        self.ran.append(name)
        if name in self.broken:
            raise ValueError(f"{name} is broken")
        return {"by": name, "input": call.input}


async def letters(world: World, **wanted: Any) -> list[Any]:
    found, _ = await letters_list.page(
        world.engine, TENANT, LetterFilter(**wanted), limit=200, after=None
    )
    return found


async def open_letter(world: World, **wanted: Any) -> str:
    (letter,) = await letters(world, status=LetterStatus.OPEN, **wanted)
    return letter.id


async def act(world: World, id: str, action: Action, **more: Any) -> Any:
    wish = Wish(action=action, by="eve", **more)
    return await letters_act.act(world.engine, TENANT, id, wish)


async def test_manual_retry_repeats_no_succeeded_task_and_keeps_the_failure(
    make: MakeWorld,
) -> None:
    """argoproj/argo-workflows#13839 and #14796."""
    flaky = Flaky("b")
    world = await make(work=flaky)
    await world.publish(
        flow(a=task("work"), b=task("work", "a", retry=retry(2)), c=task("work", "b"))
    )
    started = await world.start("flow")
    await world.run_until_quiet()
    assert await world.statuses(started.id) == {
        "a": "COMPLETED",
        "b": "DEAD_LETTERED",
        "c": "CANCELLED",
    }
    before = await inspect.task(world.engine, TENANT, started.id, "a")
    id = await open_letter(world)
    flaky.broken.clear()
    flaky.ran.clear()
    view = await act(world, id, Action.RETRY, reason="fixed")
    assert (view.status, view.resolved.by, view.resolved.reason) == ("RETRIED", "eve", "fixed")
    assert (await act(world, id, Action.RETRY)).status == "RETRIED"  # pressed twice
    with pytest.raises(ConflictError) as caught:
        await act(world, id, Action.DISCARD)
    assert caught.value.code == "DEAD_LETTER_RESOLVED"
    await world.run_until_quiet()
    assert flaky.ran == ["b", "c"]
    assert (await world.view(started.id)).status == "COMPLETED"
    assert await inspect.task(world.engine, TENANT, started.id, "a") == before
    again = await inspect.task(world.engine, TENANT, started.id, "b")
    assert [entry.attempt for entry in again.attempts] == [1, 2, 3]
    assert again.error is None
    history, _ = await inspect.history(world.engine, TENANT, started.id, limit=100, after=None)
    kinds = [event.type for event in history]
    assert kinds.index("executionFailed") < kinds.index("executionReopened")
    assert kinds.count("tasksReopened") == 1
    await world.verified(started.id)
    audited = await world.sqlite.query(
        AUDIT, Query(partition=(TENANT,), where=(Where("type", "=", "audit"),), order_by="n")
    )
    assert [doc.body["action"] for doc in audited] == ["deadletter.retry"]


async def test_resubmitting_a_dead_letter_breeds_no_copies(make: MakeWorld) -> None:
    """onebeyond/rascal#222: two resubmits both run."""
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(flow(a=task("work", retry=retry(1))))
    started = await world.start("flow")
    await world.run_until_quiet()
    id = await open_letter(world)
    flaky.ran.clear()
    engines = [world.another(f"api-{n}") for n in range(4)]
    wish = Wish(action=Action.RETRY, by="eve")
    await asyncio.gather(*(letters_act.act(one, TENANT, id, wish) for one in engines))
    await world.run_until_quiet()
    assert flaky.ran == ["a"]  # one attempt, failed again: a letter of its own
    found = await letters(world)
    assert sorted((letter.attempt, letter.status.value) for letter in found) == [
        (1, "RETRIED"),
        (2, "OPEN"),
    ]
    assert (await act(world, id, Action.RETRY)).status == "RETRIED"
    assert await world.statuses(started.id) == {"a": "DEAD_LETTERED"}
    ids = [message.message_id for message in world.transport.sent]
    assert len(set(ids)) == len(ids)
    await world.verified(started.id)


async def test_attempts_count_anew_after_a_retry_and_their_numbers_go_on(make: MakeWorld) -> None:
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(flow(a=task("work", retry=retry(3))))
    await world.start("flow")
    await world.run_until_quiet()
    await act(world, await open_letter(world), Action.RETRY)
    await world.run_until_quiet()
    assert len(flaky.ran) == 6
    assert (await letters(world, status=LetterStatus.OPEN))[0].attempt == 6


async def test_case_input_schema_edited_input_is_used_and_is_validated_too(make: MakeWorld) -> None:
    flaky = Flaky("a")
    world = await make(work=flaky)
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    await world.publish(flow(input_schema=schema, a=task("work", input="${input}")))
    started = await world.start("flow", {"n": 1})
    await world.run_until_quiet()
    id = await open_letter(world)
    for wrong in ({"n": "x"}, {}, None, [1]):
        with pytest.raises(InvalidError) as caught:
            await act(world, id, Action.RETRY, edited=True, value=wrong)
        assert caught.value.code == "INPUT_INVALID"
    flaky.broken.clear()
    await act(world, id, Action.RETRY, edited=True, value={"n": 2})
    with pytest.raises(ConflictError):
        await act(world, id, Action.RETRY, edited=True, value={"n": 3})
    await world.run_until_quiet()
    call = world.activities.calls[-1]
    assert call.input == {"n": 2}
    assert call.idempotency_key != world.activities.calls[0].idempotency_key
    found = await inspect.task(world.engine, TENANT, started.id, "a")
    assert found.output["input"] == {"n": 2}
    await world.verified(started.id)


async def test_an_edited_input_cannot_smuggle_in_a_masked_secret_or_a_bad_request(
    make: MakeWorld,
) -> None:
    def refuse(call: ActivityCall) -> None:
        raise ValueError("no")

    world = await make(work=refuse, **{"weft.http": refuse})
    world.secrets.values[TENANT, "K"] = "s3cr3t"
    request = {"method": "GET", "url": "https://a.example/"}
    await world.publish(
        flow(
            on_failure="continue",
            a=task("work", input={"key": "${secrets.K}"}, retry=retry(1)),
            h={"type": "http", "request": request, "retry": retry(1)},
        )
    )
    await world.start("flow")
    await world.run_until_quiet()
    a, h = await open_letter(world, task="a"), await open_letter(world, task="h")
    for id, value in ((a, {"key": "x***"}), (a, {"other": "***"}), (h, {"method": "GET"}), (h, 7)):
        with pytest.raises(InvalidError):
            await act(world, id, Action.RETRY, edited=True, value=value)
    await act(world, h, Action.RETRY, edited=True, value={**request, "url": "https://b.example/"})


async def test_failed_items_are_retried_alone(make: MakeWorld) -> None:
    flaky = Flaky("m0", "m2", "m4")
    world = await make(work=flaky)
    do = {"type": "activity", "activity": "work", "input": "${item}", "retry": retry(1)}
    await world.publish(
        flow(
            m={"type": "map", "items": list(range(6)), "do": do, "maxConcurrency": 6},
            z=task("work", "m"),
        )
    )
    started = await world.start("flow")
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "FAILED"
    found = {letter.item: letter.id for letter in await letters(world)}
    assert sorted(found) == [0, 2, 4]
    flaky.ran.clear()
    flaky.broken.clear()
    await act(world, found[0], Action.SKIP, value={"by": "m0"})
    assert (await world.view(started.id)).status == "FAILED"  # the others are still dead
    await act(world, found[2], Action.RETRY)
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "FAILED"
    await act(world, found[4], Action.SKIP, value={"given": True})
    await world.run_until_quiet()
    assert flaky.ran == ["m2", "z"]
    assert (await world.view(started.id)).status == "COMPLETED"
    output = (await inspect.task(world.engine, TENANT, started.id, "m")).output
    assert [entry.get("by", "given") for entry in output] == [
        "m0",
        "m1",
        "m2",
        "m3",
        "given",
        "m5",
    ]
    await world.verified(started.id)


async def test_skip_completes_with_the_output_that_others_read(make: MakeWorld) -> None:
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(
        flow(
            a=task("work"),
            b=task("work", "a", input="${tasks.a.output.n}"),
            output="${tasks.b.output.by}",
        )
    )
    started = await world.start("flow")
    await world.run_until_quiet()
    await act(world, await open_letter(world), Action.SKIP, value={"n": 5})
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert world.activities.calls[-1].input == 5
    await world.verified(started.id)


async def test_what_makes_no_sense_is_a_clear_conflict(make: MakeWorld) -> None:
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(flow("soft", a=task("work", continueOnError=True)))
    await world.publish(flow("two", on_failure="continue", a=task("work"), b=task("work")))
    done = await world.start("soft")
    await world.run_until_quiet()
    assert (await world.view(done.id)).status == "COMPLETED"
    id = await open_letter(world, execution=done.id)
    for action in (Action.RETRY, Action.SKIP):
        with pytest.raises(ConflictError) as caught:
            await act(world, id, action)
        assert caught.value.code == "EXECUTION_ENDED"
    assert (await act(world, id, Action.DISCARD)).status == "DISCARDED"
    other = await world.start("two")
    await world.deliver(world.transport.take(world.clock.now()))
    await world.run_until_quiet()
    id = await open_letter(world, execution=other.id)
    assert (await act(world, id, Action.FAIL)).status == "FAILED"
    assert (await world.view(other.id)).status == "FAILED"


@pytest.mark.parametrize("given_back_first", [True, False])
async def test_work_given_back_while_failing_runs_after_the_retry(
    make: MakeWorld, given_back_first: bool
) -> None:
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(flow(a=task("work", retry=retry(1)), b=task("work")))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    mine = [m for m in world.transport.take(world.clock.now()) if b'"a"' in m.body]
    await world.deliver(mine)  # b's message is lost
    await world.deliver(world.transport.take(world.clock.now(), "orchestration"))
    if given_back_first:
        await world.settle()
    flaky.broken.clear()
    await act(world, await open_letter(world), Action.RETRY)
    await world.settle()
    await world.clock.advance(world.tunables.silence_ms + 1)
    await world.sweep()
    assert await world.statuses(started.id) == {"a": "COMPLETED", "b": "COMPLETED"}
    await world.verified(started.id)


async def test_a_failed_expression_is_judged_again(make: MakeWorld) -> None:
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(
        flow(
            on_failure="continue",
            a=task("work", continueOnError=True),
            b=task("work", "a", when="${tasks.a.output.by == 'a'}", runWhen="allDone"),
        )
    )
    started = await world.start("flow")
    await world.run_until_quiet()
    assert set((await world.statuses(started.id)).values()) == {"DEAD_LETTERED"}
    flaky.broken.clear()
    await act(world, await open_letter(world, task="a"), Action.RETRY)
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "FAILED"
    await act(world, await open_letter(world, task="b"), Action.RETRY)
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    await world.verified(started.id)


async def test_a_retry_of_a_paused_execution_runs_when_it_is_resumed(make: MakeWorld) -> None:
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(
        flow(
            on_failure="continue",
            a=task("work", retry=retry(1)),
            w={"type": "wait", "duration": "1h"},
        )
    )
    started = await world.start("flow")
    await world.settle()
    await control.act(world.engine, TENANT, started.id, control.PAUSE, by="eve")
    flaky.broken.clear()
    await act(world, await open_letter(world), Action.RETRY)
    await world.settle()
    assert flaky.ran == ["a"]
    await control.act(world.engine, TENANT, started.id, control.RESUME, by="eve")
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    await world.verified(started.id)


async def test_a_late_word_about_work_given_back_does_not_stop_it_again(make: MakeWorld) -> None:
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(flow(a=task("work", retry=retry(1)), b=task("work")))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    await world.deliver(
        [m for m in world.transport.take(world.clock.now()) if b'"a"' in m.body]
    )  # b's message is lost
    await world.deliver(world.transport.take(world.clock.now(), "orchestration"))
    await world.deliver(world.transport.take(world.clock.now(), "tasks-standard"))
    late = world.transport.take(world.clock.now(), "orchestration")
    assert len(late) == 1  # b was given back
    flaky.broken.clear()
    await act(world, await open_letter(world), Action.RETRY)
    await world.deliver(late)
    await world.settle()
    assert await world.statuses(started.id) == {"a": "COMPLETED", "b": "COMPLETED"}
    await world.verified(started.id)


async def test_of_two_decisions_at_once_one_counts(make: MakeWorld) -> None:
    world = await make(work=Flaky("a"))
    await world.publish(flow(a=task("work", retry=retry(1))))
    await world.start("flow")
    await world.run_until_quiet()
    id = await open_letter(world)
    both = (act(world, id, Action.FAIL), act(world, id, Action.DISCARD))
    results = await asyncio.gather(*both, return_exceptions=True)
    refused = [one for one in results if isinstance(one, ConflictError)]
    assert len(refused) == 1
    (done,) = [one for one in results if not isinstance(one, BaseException)]
    (letter,) = await letters(world)
    assert letter.status == done.status


async def test_the_output_of_a_skip_is_what_the_same_decision_reads(make: MakeWorld) -> None:
    """It ends the execution at once, whose output is an expression over it."""
    world = await make(bad=lambda call: 1 / 0)
    await world.publish(flow(a=task("bad", retry=retry(1)), output="${tasks.a.output}"))
    id = (await world.start("flow")).id
    await world.settle()
    await act(world, (await letters(world))[0].id, Action.SKIP, value={"n": 1})
    assert (await world.view(id)).output == {"n": 1}
