"""Completion notifications: sent once per end, signed, retried, dead-lettered, at least once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from activities.context import Context
from activities.egress import EgressPolicy
from activities.http import HttpActivity
from activities.http_request import HttpRequest
from orchestrator.domain import jsonvalues
from orchestrator.domain.errors import ConflictError, InvalidError
from orchestrator.domain.failure import Failure
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import control, letters_act, letters_bulk, letters_list
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import ActivityCall, ActivityFailed, StoreError, Unavailable
from tests.support.definitions import flow, retry, task
from tests.support.faults import FaultyStore
from tests.support.world import START, TENANT, World
from tests.unit.engine.conftest import MakeWorld

URL = "https://hooks.example/weft"
ALL = ["completed", "failed", "cancelled"]
PAGE = (Path(__file__).parents[3] / "docs/definition.md").read_text(encoding="utf-8")


class Hook:
    """A receiver: `answers` in turn (a status, or a failure to raise), then 200 for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[ActivityCall] = []

    def __call__(self, call: ActivityCall) -> Any:
        self.calls.append(call)
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Failure):
            raise ActivityFailed(answer)
        return {"status": answer, "headers": {}, "body": None}

    @property
    def bodies(self) -> list[Any]:
        return [_input(call)["body"] for call in self.calls]

    @property
    def headers(self) -> list[dict[str, str]]:
        return [_input(call)["headers"] for call in self.calls]


def _input(call: ActivityCall) -> Any:
    return call.input


async def run(make: MakeWorld, hook: Hook, *notify: dict[str, Any], **more: Any) -> World:
    """A world with a published `flow` of one task."""
    world = await make(**{"weft.http": hook, "work": lambda call: call.input}, **more)
    world.secrets.values[TENANT, "hook-key"] = "s3cret"
    definition = flow(
        a=task("work", input="${input}"), output="${tasks.a.output}", defaults={"retry": retry(3)}
    )
    await world.publish({**definition, "notify": list(notify)})
    return world


def to(on: list[str], **more: Any) -> dict[str, Any]:
    webhook = {"url": URL, **more.pop("webhook", {})}
    return {"on": on, "webhook": webhook, **more}


async def letters(world: World) -> list[Any]:
    found, _ = await letters_list.find(world.engine, TENANT, LetterFilter(), limit=100, after=None)
    return found


async def stored(world: World, id: str, key: str) -> dict[str, Any]:
    return (await world.sqlite.read(EXECUTIONS, (TENANT, id), f"notify:{key}")).body


async def test_a_webhook_is_told_once_without_payloads(make: MakeWorld) -> None:
    hook = Hook()
    world = await run(make, hook, to(ALL), to(["failed"]))
    id = (await world.start("flow", {"private": 1}, tags={"env": "prod"})).id
    await world.settle()
    (call,) = hook.calls
    (body,) = hook.bodies
    seq = (await world.view(id)).seq
    assert body == {
        "id": f"{id}.{seq}.0",
        "type": "execution.completed",
        "execution": id,
        "workflow": "flow",
        "version": 1,
        "status": "COMPLETED",
        "error": None,
        "createdAt": "2027-01-15T08:00:00.000Z",
        "startedAt": "2027-01-15T08:00:00.000Z",
        "endedAt": "2027-01-15T08:00:00.000Z",
        "tags": {"env": "prod"},
    }
    assert _input(call)["url"] == URL
    assert hook.headers[0] == {"Weft-Event-Id": body["id"], "Weft-Timestamp": str(START // 1000)}
    assert call.idempotency_key == body["id"]
    doc = await stored(world, id, f"{seq}.0")
    assert (doc["status"], "sweepAt" in doc, "lease" in doc) == ("COMPLETED", False, False)
    await world.verified(id)


async def test_the_output_is_sent_only_if_asked_for(make: MakeWorld) -> None:
    hook = Hook()
    world = await run(make, hook, to(["completed"], includeOutput=True))
    await world.start("flow", {"big": "x" * 70_000})
    await world.settle()
    assert hook.bodies[0]["output"] == {"big": "x" * 70_000}


async def test_what_is_sensitive_of_the_output_is_not_sent(make: MakeWorld) -> None:
    hook = Hook()
    world = await run(make, hook)
    ssn = {"properties": {"ssn": {"x-sensitive": True}}}
    notify = [to(ALL, includeOutput=True), {"on": ALL, "to": "events", "includeOutput": True}]
    marked = {**flow(a=task("work"), output="${input}"), "input": ssn, "notify": notify}
    await world.publish(marked)
    await world.start("flow", {"ssn": "078-05", "name": "Ann"})
    await world.settle()
    (event,) = [jsonvalues.loads(m.body) for m in world.transport.sent if m.queue == "events"]
    for body in (hook.bodies[0], event["data"]):
        assert body["output"] == {"ssn": "***", "name": "Ann"}


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_other_ends_name_the_error(make: MakeWorld, end: str) -> None:
    hook = Hook()
    world = await run(make, hook, to([end]), to(["completed"]))
    world.activities.functions["work"] = lambda call: 1 / 0
    id = (await world.start("flow")).id
    if end == "cancelled":
        await control.act(world.engine, TENANT, id, control.CANCEL, by="eve")
    await world.run_until_quiet()
    (body,) = hook.bodies
    error = {"type": "ZeroDivisionError", "task": "a"} if end == "failed" else None
    assert (body["type"], body["status"], body["error"]) == (
        f"execution.{end}",
        end.upper(),
        error,
    )


async def test_the_signature_is_verified_by_the_example_in_the_docs(make: MakeWorld) -> None:
    found = re.search(r"```python\n(import hashlib.*?)```", PAGE, re.DOTALL)
    assert found is not None
    example: dict[str, Any] = {}
    exec(found[1], example)
    hook = Hook()
    world = await run(make, hook, to(["completed"], webhook={"secret": "hook-key"}))
    await world.start("flow", {"ü": [1, 2.5]})
    await world.settle()
    body = jsonvalues.dumps(hook.bodies[0])  # what the http activity sends
    headers = hook.headers[0]
    now = START / 1000
    assert example["verify"]("s3cret", headers, body, now=now)
    assert not example["verify"]("other", headers, body, now=now)
    assert not example["verify"]("s3cret", headers, body + b" ", now=now)
    assert not example["verify"]("s3cret", headers, body, now=now + 3600)
    assert not example["verify"]("s3cret", {**headers, "Weft-Timestamp": "1"}, body, now=1)


async def test_what_leaves_the_process_is_what_was_signed(make: MakeWorld) -> None:
    """Through the real http activity: its bytes, its headers."""
    found = re.search(r"```python\n(import hashlib.*?)```", PAGE, re.DOTALL)
    assert found is not None
    example: dict[str, Any] = {}
    exec(found[1], example)
    hook = Hook()
    world = await run(make, hook, to(["completed"], webhook={"secret": "hook-key"}))
    await world.start("flow", tags={"who": "Zoë, 日本", "n": "1.50"})
    await world.settle()
    sent: list[httpx.Request] = []

    def receive(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(b""))

    transport = httpx.MockTransport(receive)
    activity = HttpActivity(policy=EgressPolicy(), transport=transport)
    call = hook.calls[0]
    await activity.run(HttpRequest.model_validate(call.input), Context(call, now=world.clock.now))
    await activity.close()
    (request,) = sent
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json"
    assert example["verify"]("s3cret", request.headers, request.content, now=START / 1000)


async def test_a_wrong_secret_name_is_a_dead_letter_at_once(make: MakeWorld) -> None:
    hook = Hook()
    world = await run(make, hook, to(ALL, webhook={"secret": "nope"}))
    await world.start("flow")
    await world.run_until_quiet()
    (letter,) = await letters(world)
    assert (letter.body["kind"], letter.body["errorType"]) == ("notification", "SECRET_NOT_FOUND")
    assert letter.body["reason"] == "notRetryable"
    assert hook.calls == []


BUSY = Failure(type="HttpServerError", message="503", retry_after_ms=7_000)
GONE = Failure(type="HttpClientError", message="410", retryable=False)


@pytest.mark.parametrize("answer", [BUSY, 409])
async def test_it_is_sent_again_with_the_same_event_id(make: MakeWorld, answer: Any) -> None:
    hook = Hook(answer)
    world = await run(make, hook, to(ALL))
    id = (await world.start("flow")).id
    await world.settle()
    (due,) = world.transport.messages
    assert due.due_at == world.clock.now() + (7_000 if answer is BUSY else 1_000)
    await world.run_until_quiet()
    assert len({headers["Weft-Event-Id"] for headers in hook.headers}) == 1
    assert len({headers["Weft-Timestamp"] for headers in hook.headers}) == 2
    assert hook.bodies[0] == hook.bodies[1]
    seq = (await world.view(id)).seq
    assert [one["attempt"] for one in (await stored(world, id, f"{seq}.0"))["attempts"]] == [1, 2]
    assert await letters(world) == []


@pytest.mark.parametrize(("answers", "sent"), [([GONE], 1), ([BUSY, BUSY, BUSY], 3)])
async def test_out_of_attempts_is_a_dead_letter_that_can_be_retried_or_discarded(
    make: MakeWorld, answers: list[Any], sent: int
) -> None:
    hook = Hook(*answers)
    world = await run(make, hook, to(ALL))
    id = (await world.start("flow")).id
    await world.run_until_quiet()
    assert len(hook.calls) == sent
    (letter,) = await letters(world)
    name = letters_list.public_id(letter.body)
    shown = await letters_list.show(world.engine, TENANT, name)
    assert (shown.kind, shown.execution, shown.attempt, shown.task) == (
        "notification",
        id,
        sent,
        None,
    )
    for action in (Action.SKIP, Action.FAIL):
        with pytest.raises(ConflictError):
            await letters_act.act(world.engine, TENANT, name, Wish(action=action, by="eve"))
    before = (await world.view(id)).seq
    for _ in range(2):
        wish = Wish(action=Action.RETRY, by="eve")
        assert (await letters_act.act(world.engine, TENANT, name, wish)).status == "RETRIED"
    await world.run_until_quiet()
    assert len(hook.calls) == sent + 1
    assert len({headers["Weft-Event-Id"] for headers in hook.headers}) == 1
    assert (await world.view(id)).seq == before, "the execution is left alone"


async def test_a_discarded_letter_sends_nothing(make: MakeWorld) -> None:
    hook = Hook(GONE)
    world = await run(make, hook, to(ALL))
    await world.start("flow")
    await world.run_until_quiet()
    (letter,) = await letters(world)
    name = letters_list.public_id(letter.body)
    wish = Wish(action=Action.DISCARD, by="eve")
    assert (await letters_act.act(world.engine, TENANT, name, wish)).status == "DISCARDED"
    await world.clock.advance(3_600_000)
    await world.sweep()
    assert len(hook.calls) == 1


async def test_an_execution_that_ends_again_notifies_again(make: MakeWorld) -> None:
    hook = Hook(GONE)
    world = await run(make, hook, to(ALL))
    world.activities.functions["work"] = lambda call: 1 / 0
    id = (await world.start("flow")).id
    await world.run_until_quiet()
    world.activities.functions["work"] = lambda call: 1
    await letters_bulk.retry_execution(world.engine, TENANT, id, by="eve")
    await world.run_until_quiet()
    assert [body["status"] for body in hook.bodies] == ["FAILED", "COMPLETED"]
    assert len({body["id"] for body in hook.bodies}) == 2
    kinds = {one.body["kind"]: one.body["status"] for one in await letters(world)}
    assert kinds == {"task": "RETRIED", "notification": "OPEN"}, "not retried with the execution"


async def test_a_replayed_message_and_a_duplicate_send_nothing_more(make: MakeWorld) -> None:
    hook = Hook()
    world = await run(make, hook, to(ALL))
    await world.start("flow")
    await world.settle()
    told = [one for one in world.transport.sent if one.properties["type"] == "notify"]
    await world.deliver([*told, *told])
    assert len(hook.calls) == 1


async def test_two_workers_with_one_message_send_once(make: MakeWorld) -> None:
    hook = Hook()
    world = await run(make, hook, to(ALL))
    await world.start("flow")
    while not (due := [m for m in world.transport.messages if m.properties["type"] == "notify"]):
        await world.deliver(world.transport.take(world.clock.now(), limit=1))
    await world.deliver([*due, *due, *due])
    assert len(hook.calls) == 1


async def test_a_crash_between_sending_and_recording_sends_again_under_the_same_id(
    make: MakeWorld,
) -> None:
    hook = Hook()
    world = await run(make, hook, to(ALL), wrap_store=FaultyStore, tunables=None)
    faulty: Any = world.engine.store
    dying = [True]

    def die(name: str, args: tuple[Any, ...]) -> StoreError | None:
        notification = name == "batch" and any(
            getattr(op, "body", {}).get("type") == "notification"
            and getattr(op, "body", {}).get("recorded")
            for op in args[2]
        )
        return Died("killed") if notification and dying.pop() else None

    faulty.before = die
    id = (await world.start("flow")).id
    await world.settle()
    assert len(hook.calls) == 1
    seq = (await world.view(id)).seq
    assert (await stored(world, id, f"{seq}.0"))["status"] == "RUNNING"
    dying.append(False)
    faulty.before = lambda name, args: None
    await world.clock.advance(30_000)
    await world.sweep()
    assert len(hook.calls) == 2
    assert hook.headers[0]["Weft-Event-Id"] == hook.headers[1]["Weft-Event-Id"]
    doc = await stored(world, id, f"{seq}.0")
    assert doc["status"] == "COMPLETED"
    assert doc["attempts"][0]["error"]["type"] == "LEASE_EXPIRED"


async def test_a_crash_loop_ends_as_a_dead_letter(make: MakeWorld) -> None:
    hook = Hook()
    world = await run(make, hook, to(ALL), wrap_store=FaultyStore)
    faulty: Any = world.engine.store

    def die(name: str, args: tuple[Any, ...]) -> StoreError | None:
        for op in args[2] if name == "batch" else ():
            body = getattr(op, "body", {})
            if body.get("type") == "notification" and body.get("status") == "COMPLETED":
                return Died("killed")
        return None

    faulty.before = die
    await world.start("flow")
    await world.settle()
    for _ in range(5):
        await world.clock.advance(61_000)
        await world.sweep()
    assert len(hook.calls) == 3, "attempts of the retry policy"
    kinds = {one.body["kind"]: one.body.get("errorType") for one in await letters(world)}
    assert kinds["notification"] == "LEASE_EXPIRED"


async def test_a_lost_message_is_sent_again_by_the_sweeper(make: MakeWorld) -> None:
    hook = Hook()
    world = await run(make, hook, to(ALL))
    await world.start("flow")
    while not [m for m in world.transport.messages if m.properties["type"] == "notify"]:
        await world.deliver(world.transport.take(world.clock.now(), limit=1))
    world.transport.messages.clear()
    await world.clock.advance(59_000)
    await world.sweep()
    assert hook.calls == []
    await world.clock.advance(1_000)
    assert (await world.sweep()).notifications == 1
    assert len(hook.calls) == 1
    assert world.engine.metrics.value("weft_repairs_total", "notification") == 1


async def test_a_store_that_does_not_answer_costs_no_attempt(make: MakeWorld) -> None:
    hook = Hook()
    tunables = None
    world = await run(make, hook, to(ALL), wrap_store=FaultyStore, tunables=tunables)
    world.engine.tunables = type(world.engine.tunables)(throttle_budget_ms=0)
    faulty: Any = world.engine.store
    once = [1]

    def rule(name: str, args: tuple[Any, ...]) -> StoreError | None:
        wanted = name == "read_many" and any(str(id).startswith("notify:") for id in args[2])
        return Unavailable("gone") if wanted and once and once.pop() else None

    faulty.before = rule
    await world.start("flow")
    await world.run_until_quiet()
    assert [call.attempt for call in hook.calls] == [1]


@pytest.mark.parametrize(
    ("notify", "field", "code"),
    [
        ({"on": [], "webhook": {"url": URL}}, "$.notify[0].on", None),
        ({"on": ["done"], "webhook": {"url": URL}}, "$.notify[0].on[0]", None),
        ({"on": ["failed", "failed"], "webhook": {"url": URL}}, "$.notify[0].on", "BAD_VALUE"),
        ({"on": ALL}, "$.notify[0]", "BAD_NOTIFY"),
        ({"webhook": {"url": URL}}, "$.notify[0].on", "MISSING_FIELD"),
        ({"on": ALL, "webhook": {"url": "file:///x"}}, "$.notify[0].webhook.url", "BAD_URL"),
        ({"on": ALL, "webhook": {"url": "https://u:p@h/"}}, "$.notify[0].webhook.url", "BAD_URL"),
        ({"on": ALL, "webhook": {"url": "https://${input}"}}, "$.notify[0].webhook.url", "BAD_URL"),
        ({"on": ALL, "webhook": {"url": URL, "secret": "a b"}}, "$.notify[0].webhook.secret", None),
        ({"on": ALL, "queue": "events"}, "$.notify[0].queue", "UNKNOWN_FIELD"),
    ],
)
async def test_what_is_wrong_in_notify_is_said_with_its_place(
    make: MakeWorld, notify: dict[str, Any], field: str, code: str | None
) -> None:
    with pytest.raises(InvalidError) as caught:
        await run(make, Hook(), notify)
    found = {detail.field: detail.code for detail in caught.value.details}
    assert field in found
    assert code in (None, found[field])


class Died(StoreError):
    """As if the process had been killed."""
