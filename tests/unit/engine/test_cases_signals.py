"""External events lost when early, in bursts, or around restarts: signals in the whole engine."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError, InvalidError, NotFoundError, TooLargeError
from orchestrator.domain.tenant_limits import TenantLimits
from orchestrator.domain.topology import INLINE_PAYLOAD_BYTES, ORCHESTRATION_QUEUE
from orchestrator.engine import control, letters_act, letters_list, replay, signals
from orchestrator.engine.core import Tunables
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from tests.support.definitions import flow, task
from tests.support.signals import awaiting, listed, send, started, states, stored
from tests.support.world import TENANT
from tests.unit.engine.conftest import MakeWorld

DAY = 24 * 3600 * 1000


async def test_signal_before_the_task_waits_is_kept_and_consumed(make: MakeWorld) -> None:
    """Right after the 202, before the first orchestration; its message comes before the start's."""
    world = await make(noop=lambda call: 1)
    id = await started(
        world, settle=False, a=task("noop"), s=awaiting("go", "a"), output="${tasks.s.output}"
    )
    await send(world, id, payload={"ok": [1, 2.5, "é", None]}, id="x")
    world.transport.messages.reverse()
    await world.settle()
    view = await world.view(id)
    assert (view.status.value, view.output) == ("COMPLETED", {"ok": [1, 2.5, "é", None]})
    assert await states(world, id) == {"x": ("CONSUMED", "s")}
    await world.verified(id)


async def test_signals_five_of_one_name_for_two_waits_two_in_order_three_unmatched(
    make: MakeWorld,
) -> None:
    world = await make()
    id = await started(
        world, a=awaiting(), b=awaiting(), output="${[tasks.a.output, tasks.b.output]}"
    )
    for n in range(5):
        await send(world, id, payload=n, id=f"n{n}")
        world.clock.jump(1)
    await world.settle()
    assert (await world.view(id)).output == [0, 1]
    assert await states(world, id) == {
        "n0": ("CONSUMED", "a"),
        "n1": ("CONSUMED", "b"),
        "n2": ("UNMATCHED", None),
        "n3": ("UNMATCHED", None),
        "n4": ("UNMATCHED", None),
    }
    await world.verified(id)


async def test_signals_in_a_burst_of_100_for_3_tasks_none_lost_none_twice(make: MakeWorld) -> None:
    world = await make(noop=lambda call: 1)
    tasks = {f"s{n}": awaiting() for n in range(3)}
    id = await started(world, **tasks, hold={"type": "wait", "duration": "1h"})
    for n in range(100):
        await send(world, id, payload=n, id=f"n{n:02}")
        await send(world, id, payload=n, id=f"n{n:02}")
    world.transport.messages.sort(key=lambda message: hash(message.message_id))
    await world.settle()
    found = await states(world, id)
    assert len(found) == 100
    assert sorted(task for _, task in found.values() if task) == ["s0", "s1", "s2"]
    assert sum(status == "BUFFERED" for status, _ in found.values()) == 97
    await world.verified(id)
    page, after = await signals.page(world.engine, TENANT, id, limit=60, after=None)
    rest, end = await signals.page(world.engine, TENANT, id, limit=60, after=after)
    assert (len({one.id for one in [*page, *rest]}), end) == (100, None)


async def test_signal_with_the_same_id_again_is_the_same_and_another_payload_is_409(
    make: MakeWorld,
) -> None:
    world = await make()
    id = await started(world, s=awaiting(), t=awaiting("other"))
    first = await send(world, id, payload={"a": 1}, id="x/ü #1")
    assert first.created
    again = await send(world, id, payload={"a": 1}, id="x/ü #1")
    assert again == first.model_copy(update={"created": False})
    for name, payload in (("go", {"a": 2}), ("other", {"a": 1})):
        with pytest.raises(ConflictError) as caught:
            await send(world, id, name, payload, id="x/ü #1")
        assert caught.value.code == "SIGNAL_ID_REUSED"
    await world.settle()
    assert await states(world, id) == {"x/ü #1": ("CONSUMED", "s")}
    await send(world, id, "other")
    await world.settle()
    assert not (await send(world, id, payload={"a": 1}, id="x/ü #1")).created, "ended: the same"


async def test_signal_timeout_is_a_dead_letter_and_a_branch_can_escalate(make: MakeWorld) -> None:
    world = await make(noop=lambda call: call.input)
    id = await started(
        world,
        s=awaiting(timeout="2d", continueOnError=True),
        boss=task("noop", "s", runWhen="anyFailed", input="${tasks.s.error.type}"),
        ship=task("noop", "s"),
    )
    assert (await world.statuses(id))["s"] == "WAITING"
    world.transport.take(world.clock.now() + 3 * DAY)  # the timer's message is lost
    await world.clock.advance(2 * DAY + 10_000)
    await world.sweep()
    view = await world.view(id)
    assert view.status.value == "COMPLETED"
    assert await world.statuses(id) == {
        "s": "DEAD_LETTERED",
        "boss": "COMPLETED",
        "ship": "SKIPPED",
    }
    (letter,), _ = await letters_list.find(
        world.engine, TENANT, LetterFilter(), limit=10, after=None
    )
    assert letter.body["errorType"] == "SIGNAL_TIMEOUT"
    assert world.activities.calls[0].input == "SIGNAL_TIMEOUT"
    await world.verified(id)


@pytest.mark.parametrize("action", [Action.RETRY, Action.SKIP])
async def test_signal_timeout_retried_waits_anew_and_skipped_is_approved(
    make: MakeWorld, action: Action
) -> None:
    world = await make()
    id = await started(world, s=awaiting(timeout="1h"), output="${tasks.s.output}")
    await world.run_until_quiet()
    assert (await world.view(id)).status.value == "FAILED"
    (letter,), _ = await letters_list.find(
        world.engine, TENANT, LetterFilter(), limit=10, after=None
    )
    wish = Wish(action=action, by="eve", value="fine")
    await letters_act.act(world.engine, TENANT, letters_list.public_id(letter.body), wish)
    if action is Action.RETRY:
        await world.settle()
        assert (await world.statuses(id)) == {"s": "WAITING"}
        await send(world, id, payload="fine")
    await world.settle()
    assert (await world.view(id)).output == "fine"
    await world.verified(id)


async def test_signal_to_a_paused_execution_is_kept_and_consumed_on_resume(
    make: MakeWorld,
) -> None:
    world = await make()
    id = await started(world, s=awaiting(timeout="1h"))
    await control.act(world.engine, TENANT, id, control.PAUSE, by="eve")
    await send(world, id, id="x")
    await world.settle()
    assert await states(world, id) == {"x": ("BUFFERED", None)}
    await world.clock.advance(2 * 3_600_000)
    await world.settle()
    await control.act(world.engine, TENANT, id, control.RESUME, by="eve")
    await world.settle()
    assert await states(world, id) == {"x": ("CONSUMED", "s")}
    await world.verified(id)


async def test_signal_for_an_ended_execution_is_409_and_for_an_unknown_one_404(
    make: MakeWorld,
) -> None:
    world = await make()
    id = await started(world, s=awaiting(), t=awaiting("late", "s"))
    await send(world, id, "late", id="early")
    await control.act(world.engine, TENANT, id, control.CANCEL, by="eve")
    with pytest.raises(ConflictError) as caught:
        await send(world, id)
    assert caught.value.code == "EXECUTION_ENDED"
    await world.settle()
    assert await states(world, id) == {"early": ("UNMATCHED", None)}
    assert "sweepAt" not in await stored(world, id, "signal:early"), "nobody asks for it again"
    for call in (
        send(world, "nothing"),
        signals.page(world.engine, TENANT, "no", limit=1, after=None),
    ):
        with pytest.raises(NotFoundError):
            await call
    with pytest.raises(NotFoundError):
        await signals.send(world.engine, "other-tenant", id, "go")


async def test_signal_payload_against_the_schema_is_422_with_the_fields(make: MakeWorld) -> None:
    world = await make()
    schema = {"type": "object", "required": ["by"], "properties": {"n": {"type": "integer"}}}
    id = await started(world, s=awaiting(schema=schema), t=awaiting("never", schema=False))
    with pytest.raises(InvalidError) as caught:
        await send(world, id, payload={"n": "x"})
    assert caught.value.code == "PAYLOAD_INVALID"
    assert [detail.field for detail in caught.value.details] == ["$.payload", "$.payload.n"]
    with pytest.raises(InvalidError):
        await send(world, id, "never", 1)
    assert await listed(world, id) == []
    await send(world, id, payload={"by": "eve", "n": 1})


@pytest.mark.parametrize(
    ("name", "hint"), [("approvd", 'did you mean "approved"?'), ("zzz", "approved, rejected")]
)
async def test_signal_of_an_unknown_name_is_422_with_the_nearest(
    make: MakeWorld, name: str, hint: str
) -> None:
    world = await make()
    id = await started(world, s=awaiting("approved"), t=awaiting("rejected"))
    with pytest.raises(InvalidError) as caught:
        await send(world, id, name)
    assert caught.value.code == "UNKNOWN_SIGNAL"
    assert hint in caught.value.details[0].hint
    assert await listed(world, id) == []


async def test_signal_to_a_workflow_without_signal_tasks_says_so(make: MakeWorld) -> None:
    world = await make(noop=lambda call: 1)
    id = await started(world, settle=False, a=task("noop"))
    with pytest.raises(InvalidError, match="no signal task"):
        await send(world, id)


async def test_signals_nobody_takes_are_limited(make: MakeWorld, monkeypatch: Any) -> None:
    for module in ("orchestrator.domain.signalling", "orchestrator.engine.signals"):
        monkeypatch.setattr(f"{module}.MAX_BUFFERED", 3)
    world = await make()
    id = await started(world, s=awaiting("other"), t=awaiting("go", "s"))
    for n in range(5):  # faster than they are taken in
        await send(world, id, id=f"n{n}")
    await world.run_until_quiet()
    with pytest.raises(ConflictError) as caught:
        await send(world, id)
    assert caught.value.code == "TOO_MANY_SIGNALS"
    assert sorted(status for status, _ in (await states(world, id)).values()) == [
        "BUFFERED", "BUFFERED", "BUFFERED", "RECEIVED", "RECEIVED",
    ]  # fmt: skip
    await world.verified(id)


async def test_signal_with_a_large_payload_is_not_loaded_to_be_copied(make: MakeWorld) -> None:
    world = await make(size=lambda call: len(call.input))
    id = await started(world, s=awaiting(), n=task("size", "s", input="${tasks.s.output}"))
    text = "x" * (INLINE_PAYLOAD_BYTES + 1)
    await send(world, id, payload=text, id="x")
    kept = dict(world.payloads.data)
    assert len(kept) == 1
    world.payloads.data.clear()  # nobody may read it until the activity's input needs it
    await world.deliver(world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE))
    doc = await stored(world, id, "task:s")
    assert (doc["status"], doc["output"]["ref"]) == ("COMPLETED", next(iter(kept)))
    world.payloads.data |= kept
    await world.settle()
    assert (await world.view(id)).status.value == "COMPLETED"
    assert world.activities.calls[0].input == text


async def test_signal_payload_over_the_limit_is_refused(make: MakeWorld) -> None:
    world = await make(tunables=Tunables(limits=TenantLimits(payload_bytes=70_000)))
    id = await started(world, s=awaiting())
    with pytest.raises(TooLargeError):
        await send(world, id, payload="x" * 70_001)
    assert await listed(world, id) == []


async def test_signal_payload_decides_a_condition_in_the_same_decision(make: MakeWorld) -> None:
    world = await make(noop=lambda call: 1)
    id = await started(
        world,
        s=awaiting(),
        yes=task("noop", "s", when="${tasks.s.output.ok}"),
        no=task("noop", "s", when="${!tasks.s.output.ok}"),
    )
    await send(world, id, payload={"ok": False})
    await world.settle()
    assert await world.statuses(id) == {"s": "COMPLETED", "yes": "SKIPPED", "no": "COMPLETED"}


async def test_signals_of_the_origin_are_not_taken_by_a_replay(make: MakeWorld) -> None:
    world = await make(noop=lambda call: call.input)
    id = await started(
        world, s=awaiting(), t=awaiting("last", "s"), a=task("noop", "s", input="${tasks.s.output}")
    )
    await send(world, id, payload="yes")
    await send(world, id, "last")
    await world.settle()
    again = await replay.replay(world.engine, TENANT, id, start_at="t", by="eve")
    await world.settle()
    assert await world.statuses(again.id) == {
        "s": "COMPLETED",
        "t": "WAITING",
        "a": "COMPLETED",
    }
    assert await listed(world, again.id) == []
    whole = await replay.replay(world.engine, TENANT, id, by="eve")
    await world.settle()
    assert (await world.statuses(whole.id))["s"] == "WAITING"


async def test_signal_tasks_of_one_name_must_agree_on_the_schema(make: MakeWorld) -> None:
    world = await make()
    with pytest.raises(InvalidError) as caught:
        await world.publish(flow(a=awaiting(schema=True), b=awaiting(schema={"type": "object"})))
    (fault,) = caught.value.details
    assert (fault.code, fault.field) == ("SIGNAL_SCHEMA", "$.tasks.b.schema")
