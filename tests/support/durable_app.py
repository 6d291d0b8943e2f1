"""A small app of durable functions: one orchestrator per thing that can be done."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import azure.durable_functions as df
import azure.functions as func

bp = df.Blueprint()
CALLS: Counter[str] = Counter()
BROKEN: Counter[str] = Counter()
"""How often an activity shall still fail, by its key."""


@bp.activity_trigger(input_name="n")
def double(n: int) -> int:
    CALLS["double"] += 1
    return n * 2


@bp.activity_trigger(input_name="key")
async def flaky(key: str) -> str:
    CALLS[key] += 1
    if BROKEN[key] > 0:
        BROKEN[key] -= 1
        raise ValueError(f"{key} is broken")
    return f"{key} done"


@bp.activity_trigger(input_name="nothing", activity="Echo")
def echo(nothing: Any) -> Any:
    return nothing


@bp.orchestration_trigger(context_name="context")
def chain(context: df.DurableOrchestrationContext) -> Any:
    n = context.get_input()
    for _ in range(3):
        n = yield context.call_activity("double", n)
        context.set_custom_status({"at": n})
    return n


@bp.orchestration_trigger(context_name="context")
def fan(context: df.DurableOrchestrationContext) -> Any:
    parts = yield context.task_all([context.call_activity(double, n) for n in range(4)])
    return sum(parts)


@bp.orchestration_trigger(context_name="context")
def race(context: df.DurableOrchestrationContext) -> Any:
    timer = context.create_timer(context.current_utc_datetime + dt.timedelta(seconds=60))
    approval = context.wait_for_external_event("Approval")
    winner = yield context.task_any([timer, approval])
    if winner == timer:
        return "late"
    timer.cancel()
    return [(yield context.call_activity("Echo", approval.result)), "in time"]


@bp.orchestration_trigger(context_name="context")
def three_events(context: df.DurableOrchestrationContext) -> Any:
    got = []
    for _ in range(3):
        got.append((yield context.wait_for_external_event("tick")))
        yield context.call_activity("double", 1)
    return got


@bp.orchestration_trigger(context_name="context")
def nap(context: df.DurableOrchestrationContext) -> Any:
    began = context.current_utc_datetime
    yield context.create_timer(began + dt.timedelta(days=40))
    return (context.current_utc_datetime - began).days


@bp.orchestration_trigger(context_name="context")
def parent(context: df.DurableOrchestrationContext) -> Any:
    named = context.call_sub_orchestrator("chain", 1, "the-child")
    unnamed = context.call_sub_orchestrator("chain", 5)
    return (yield context.task_all([named, unnamed]))


@bp.orchestration_trigger(context_name="context")
def family(context: df.DurableOrchestrationContext) -> Any:
    """As `parent`, with shorter children."""
    named = context.call_sub_orchestrator("single", 1, "the-child")
    return (yield context.task_all([named, context.call_sub_orchestrator("single", 5)]))


@bp.orchestration_trigger(context_name="context")
def single(context: df.DurableOrchestrationContext) -> Any:
    return (yield context.call_activity("double", context.get_input()))


@bp.orchestration_trigger(context_name="context")
def fails(context: df.DurableOrchestrationContext) -> Any:
    yield context.call_activity("double", 1)
    raise RuntimeError("on purpose")


@bp.orchestration_trigger(context_name="context")
def catches(context: df.DurableOrchestrationContext) -> Any:
    said = []
    for call in (
        context.call_activity("flaky", "always"),
        context.call_sub_orchestrator("fails"),
        context.call_activity("nowhere"),
        context.call_sub_orchestrator("nobody"),
    ):
        try:
            yield call
        except Exception as error:
            said.append(str(error).splitlines()[0].strip())
    return said


@bp.orchestration_trigger(context_name="context")
def retries(context: df.DurableOrchestrationContext) -> Any:
    options = df.RetryOptions(5_000, 3)
    first = context.call_activity_with_retry("flaky", options, "one")
    other = context.call_activity_with_retry("flaky", options, "two")
    results = yield context.task_all([first, other, context.call_activity("double", 4)])
    last = yield context.call_activity("double", results[2])
    return [*results, last]


@bp.orchestration_trigger(context_name="context")
def retries_child(context: df.DurableOrchestrationContext) -> Any:
    return (yield context.call_sub_orchestrator_with_retry("one_try", df.RetryOptions(1_000, 3)))


@bp.orchestration_trigger(context_name="context")
def one_try(context: df.DurableOrchestrationContext) -> Any:
    return (yield context.call_activity("flaky", "child"))


@bp.orchestration_trigger(context_name="context")
def two_tries(context: df.DurableOrchestrationContext) -> Any:
    """Fails beside a call that succeeds, also within a sub-orchestration."""
    good = yield context.call_activity("double", 21)
    yield context.call_activity("flaky", "mine")
    child = yield context.call_sub_orchestrator("one_try")
    return [good, child]


@bp.orchestration_trigger(context_name="context")
def frail(context: df.DurableOrchestrationContext) -> Any:
    """Events come before anybody waits for them, and before it fails."""
    got = [(yield context.wait_for_external_event("tick"))]
    yield context.call_activity("flaky", "frail")
    for _ in range(2):
        got.append((yield context.wait_for_external_event("tick")))
    return got


@bp.orchestration_trigger(context_name="context")
def sums(context: df.DurableOrchestrationContext) -> Any:
    """Continues as new after each event."""
    total = context.get_input() or 0
    event = yield context.wait_for_external_event("add")
    if event == "stop":
        return total
    context.continue_as_new(total + event)
    return None


@bp.orchestration_trigger(context_name="context")
def asks_http(context: df.DurableOrchestrationContext) -> Any:
    return (yield context.call_http("GET", "http://example.invalid/"))


CLIENTS: list[df.DurableOrchestrationClient] = []
"""The one that `begin` was given last."""


@bp.route(route="begin/{name}", methods=["POST"], auth_level=func.AuthLevel.ANONYMOUS)
@bp.durable_client_input(client_name="client")
async def begin(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> func.HttpResponse:
    CLIENTS[:] = [client]
    text = req.get_body().decode()
    payload = req.get_json() if text else None
    instance = await client.start_new(req.route_params["name"], req.params.get("id"), payload)
    return client.create_check_status_response(req, instance)


def new_app() -> func.FunctionApp:
    """The blueprint in a plain `FunctionApp`, as Weft's own app takes them. An app of Functions can
    be read once, so there is one."""
    app = func.FunctionApp()
    app.register_functions(bp)
    return app


app = new_app()
