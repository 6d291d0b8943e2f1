"""Bulk operations over the real library: nothing is left out, nothing is done twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from activities.code import bulk as workflow
from orchestrator.domain.errors import ConflictError, NotFoundError
from orchestrator.domain.orchestration_result import decode_output
from orchestrator.engine import bulk, control, letters_bulk, letters_list, replay, submit
from orchestrator.engine.bulk import Target
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.views_letters import DeadLetterSummary
from orchestrator.local.durable import clients
from orchestrator.ports import ActivityFailed, Unavailable
from tests.support.bulks import Bulks, output
from tests.support.definitions import flow, task
from tests.support.durable_hub import Run, start
from tests.support.world import TENANT

LETTERS = {"action": "retry", "filter": {"errorType": "ValueError"}, "reason": "mended"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "PART", 2)
    monkeypatch.setattr(workflow, "PARTS", 2)


async def letters(made: Bulks) -> list[DeadLetterSummary]:
    found, _ = await letters_list.page(
        made.world.engine, TENANT, LetterFilter(), limit=200, after=None
    )
    return found


async def close(made: Bulks, run: Run | None = None) -> None:
    if run is not None:
        run.close()
    await made.world.close()


async def test_all_that_the_filter_finds_is_done_over_several_generations(tmp_path: Path) -> None:
    made = Bulks(tmp_path)
    ids = await made.fill(9)
    made.work.mended = True
    id = await made.submit(**LETTERS)
    run = await made.drive(id)
    assert output(run, id) == {
        "action": "retry", "done": 9, "refused": 0, "more": False, "refusals": [],
    }  # fmt: skip
    assert json.loads(run.status(id).custom_status or "") == {
        "action": "retry", "done": 9, "refused": 0, "more": False,
    }  # fmt: skip
    assert len(run.history(id)) < 40  # of the last generation only
    await made.world.settle()
    assert sorted(made.work.ran) == sorted(ids)
    found = await letters(made)
    assert {
        (one.status, one.resolved.by, one.resolved.reason) for one in found if one.resolved
    } == {(LetterStatus.RETRIED, "eve", "mended")}
    await close(made, run)


async def test_a_limit_ends_it_and_says_that_there_is_more(tmp_path: Path) -> None:
    made = Bulks(tmp_path)
    await made.fill(5)
    id = await made.submit(**LETTERS, limit=3)
    run = await made.drive(id)
    assert output(run, id)["done"] == 3
    assert output(run, id)["more"] is True
    assert [one.status for one in await letters(made)].count(LetterStatus.OPEN) == 2
    await close(made, run)


async def test_a_process_may_die_at_every_write_of_durables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between what a step has done and the record of it: the totals are right even so."""
    monkeypatch.setattr(workflow, "PARTS", 1)
    first = Bulks(tmp_path / "first")
    ids = await first.fill(3)
    id = await first.submit(**LETTERS)
    await first.world.close()
    whole = await Bulks.copy(tmp_path / "first", tmp_path / "whole")
    run = await whole.drive(id)
    writes, expected = run.ledger.writes, run.seen(id)
    assert output(run, id)["done"] == 3
    await close(whole, run)
    for last in range(1, writes + 1):
        made = await Bulks.copy(tmp_path / "first", tmp_path / str(last))
        run = await made.drive(id, last=last, before=True)
        assert (run.deaths, run.seen(id)) == (1, expected), last
        await made.world.settle()
        assert sorted(made.work.ran) == sorted(ids)
        await close(made, run)


async def test_a_store_that_fails_within_a_part_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Bulks(tmp_path)
    ids = await made.fill(4)
    made.work.mended = True
    whole, broken = letters_bulk.letters_act.resolve, [1, 3]
    calls = 0

    async def resolve(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in broken:
            raise Unavailable("away")
        return await whole(*args)

    monkeypatch.setattr(letters_bulk.letters_act, "resolve", resolve)
    id = await made.submit(**LETTERS)
    run = await made.drive(id)
    assert output(run, id)["done"] == 4
    await made.world.settle()
    assert sorted(made.work.ran) == sorted(ids)
    await close(made, run)


async def test_a_store_that_stays_away_fails_it_and_it_can_be_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Bulks(tmp_path)
    await made.fill(1)

    async def find(*args: Any, **more: Any) -> Any:
        raise Unavailable("away")

    monkeypatch.setattr(letters_list, "find", find)
    id = await made.submit(**LETTERS)
    run = await made.drive(id)
    assert run.status(id).shown == "Failed"
    failed = [event for event in run.history(id) if "Reason" in event]
    assert len(failed) == workflow.ATTEMPTS
    await close(made, run)


async def test_what_is_refused_is_listed_with_its_reason_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of executions that hold, a dead letter cannot be put away."""
    monkeypatch.setattr(workflow, "SHOWN", 2)
    made = Bulks(tmp_path)
    await made.fill(1)
    holding = flow("holding", on_failure="hold", a=task("work", retry={"maxAttempts": 1}))
    await made.world.publish(holding)
    for _ in range(3):
        await made.world.start("holding")
    await made.world.run_until_quiet()
    id = await made.submit(action="discard", filter={})
    run = await made.drive(id)
    told = output(run, id)
    assert (told["done"], told["refused"], len(told["refusals"])) == (1, 3, 2)
    assert {one["code"] for one in told["refusals"]} == {"EXECUTION_HOLDS"}
    await close(made, run)


async def test_cancelled_it_stops_after_the_part_that_it_does(tmp_path: Path) -> None:
    made = Bulks(tmp_path)
    await made.fill(6)
    id = await made.submit(**LETTERS)
    run = Run(made.app, tmp_path / "durable.db")
    text = json.dumps(await made.envelope(id))
    start(f"code_{workflow.BULK}_v1", text, instance=id).act(run.client, run.clock.ms)
    while '"done":2' not in (run.status(id).custom_status or "").replace(" ", ""):
        assert await run.hub.step()
    clients.terminate(run.client, id, "enough", run.clock.ms)
    await run.go()
    assert run.status(id).shown == "Terminated"
    assert [one.status for one in await letters(made)].count(LetterStatus.OPEN) >= 2
    await close(made, run)


async def test_a_step_of_a_bulk_operation_that_has_ended_does_nothing(tmp_path: Path) -> None:
    made = Bulks(tmp_path)
    await made.fill(1)
    id = await made.submit(**LETTERS)
    await control.do(made.world.engine, TENANT, id, control.CANCEL, by="eve")
    item = [(await letters(made))[0].id, None]
    step = {"op": "act", "tenant": TENANT, "execution": id, "items": [item]}
    with pytest.raises(ActivityFailed) as caught:
        await bulk.run(made.world.engine, step)
    assert caught.value.failure.type == "BULK_ENDED"
    assert (await letters(made))[0].status is LetterStatus.OPEN
    await close(made)


# --- executions -----------------------------------------------------------------------------------


async def find(made: Bulks, id: str) -> list[str]:
    step = {"op": "find", "tenant": TENANT, "execution": id, "after": None, "limit": 100}
    text, _ = decode_output(await bulk.run(made.world.engine, step))
    return [one for one, _ in json.loads(text or "")["items"]]


async def test_executions_are_cancelled_but_not_weft_s_own(tmp_path: Path) -> None:
    made = Bulks(tmp_path)
    ended = await made.fill(1)
    running = [(await made.world.start("flow")).id for _ in range(5)]
    other = await made.submit(**LETTERS)
    id = await made.submit(Target.EXECUTIONS, action="cancel", filter={"workflow": "flow"})
    everything = await made.submit(Target.EXECUTIONS, action="cancel", filter={"owner": "eve"})
    await made.project()
    assert await find(made, everything) == []
    run = await made.drive(id)
    assert (output(run, id)["done"], output(run, id)["refused"]) == (5, 0)
    assert {(await made.world.view(one)).status for one in running} == {"CANCELLED"}
    assert {(await made.world.view(one)).status for one in ended} == {"FAILED"}
    assert (await made.world.view(other)).status == "PENDING"
    await close(made, run)


async def test_a_status_in_the_filter_shows_what_the_action_cannot_do(tmp_path: Path) -> None:
    made = Bulks(tmp_path)
    (ended,) = await made.fill(1)
    id = await made.submit(Target.EXECUTIONS, action="cancel", filter={"status": "FAILED"})
    await made.project()
    run = await made.drive(id)
    assert output(run, id)["refusals"] == [
        {
            "id": ended,
            "code": "CANNOT_CANCEL",
            "message": "the execution is FAILED; there is nothing left to cancel",
        }
    ]
    await close(made, run)


async def test_a_failed_execution_is_retried_once_even_if_it_has_failed_again(
    tmp_path: Path,
) -> None:
    made = Bulks(tmp_path)
    (ended,) = await made.fill(1)
    id = await made.submit(Target.EXECUTIONS, action="retry", filter={"workflow": "flow"})
    await made.project()
    engine = made.world.engine
    where = {"tenant": TENANT, "execution": id}
    text, _ = decode_output(
        await bulk.run(engine, {**where, "op": "find", "after": None, "limit": 9})
    )
    items = json.loads(text or "")["items"]
    assert [one[0] for one in items] == [ended]
    for _ in range(2):  # the second time: the answer of the first was lost
        await made.world.clock.advance(1)
        text, _ = decode_output(await bulk.run(engine, {**where, "op": "act", "items": items}))
        assert json.loads(text or "") == {"done": 1, "refused": []}
        await made.world.settle()
    assert (await made.world.view(ended)).status == "FAILED"
    assert len(await letters(made)) == 2
    await close(made)


# --- whose it is ----------------------------------------------------------------------------------


async def test_nothing_but_its_route_starts_it(tmp_path: Path) -> None:
    made = Bulks(tmp_path)
    await made.fill(1)
    engine = made.world.engine
    spec = {"target": "deadletters", **LETTERS}
    with pytest.raises(NotFoundError):
        await submit.start(engine, TENANT, workflow.BULK, spec, started_by="eve")
    with pytest.raises(ConflictError, match="code workflow"):
        await made.world.publish(flow(workflow.BULK, a=task("work")))
    within = {"type": "durable", "orchestration": workflow.BULK, "input": spec}
    with pytest.raises(Exception, match="no code workflow"):
        await made.world.publish(flow("sly", a=within))
    id = await made.submit(**LETTERS)
    await control.do(engine, TENANT, id, control.CANCEL, by="eve")
    with pytest.raises(ConflictError, match="send the request for it again"):
        await replay.replay(engine, TENANT, id, by="mallory")
    await close(made)


async def test_a_step_for_any_other_execution_is_refused(tmp_path: Path) -> None:
    made = Bulks(tmp_path)
    (other,) = await made.fill(1)
    step = {"op": "find", "tenant": TENANT, "execution": other, "after": None, "limit": 1}
    with pytest.raises(ActivityFailed) as caught:
        await bulk.run(made.world.engine, step)
    assert (caught.value.failure.type, caught.value.failure.retryable) == ("FORBIDDEN", False)
    await close(made)
