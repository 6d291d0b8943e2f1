"""The composed app: its functions, the cost of its import, and that its triggers only translate."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import azure.functions as func
import pytest
from azure.functions.servicebus import ServiceBusMessage
from azure.functions.timer import TimerRequest

from orchestrator.domain import topology
from orchestrator.engine import execute, levels, orchestrate, project, relay, schedule, sweep
from orchestrator.engine.incoming import Incoming
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host import host_json
from orchestrator.local.host.indexing import (
    EventGridBinding,
    FeedBinding,
    HttpBinding,
    QueueBinding,
    TimerBinding,
    functions_of,
    index,
)

ROOT = Path(__file__).parents[2]

HTTP_FUNCTIONS = {
    "get_grants": "GET v1/tenants/{tenantId}/grants",
    "put_grants": "PUT v1/tenants/{tenantId}/grants",
    "get_egress": "GET v1/tenants/{tenantId}/egress",
    "put_egress": "PUT v1/tenants/{tenantId}/egress",
    "get_limits": "GET v1/tenants/{tenantId}/limits",
    "put_limits": "PUT v1/tenants/{tenantId}/limits",
    "publish_workflow": "POST v1/workflows",
    "list_workflows": "GET v1/workflows",
    "get_workflow": "GET v1/workflows/{name}",
    "list_versions": "GET v1/workflows/{name}/versions",
    "get_version": "GET v1/workflows/{name}/versions/{n}",
    "archive_workflow": "DELETE v1/workflows/{name}",
    "start_execution": "POST v1/workflows/{name}/start",
    "list_executions": "GET v1/executions",
    "get_execution": "GET v1/executions/{id}",
    "list_tasks": "GET v1/executions/{id}/tasks",
    "get_task": "GET v1/executions/{id}/tasks/{taskId}",
    "list_history": "GET v1/executions/{id}/history",
    "pause_execution": "POST v1/executions/{id}/pause",
    "resume_execution": "POST v1/executions/{id}/resume",
    "cancel_execution": "POST v1/executions/{id}/cancel",
    "erase_execution": "POST v1/executions/{id}/erase",
    "terminate_execution": "POST v1/executions/{id}/terminate",
    "replay_execution": "POST v1/executions/{id}/replay",
    "retry_execution": "POST v1/executions/{id}/retry",
    "list_deadletters": "GET v1/deadletters",
    "get_deadletter": "GET v1/deadletters/{letterId}",
    "retry_deadletter": "POST v1/deadletters/{letterId}/retry",
    "skip_deadletter": "POST v1/deadletters/{letterId}/skip",
    "fail_deadletter": "POST v1/deadletters/{letterId}/fail",
    "discard_deadletter": "POST v1/deadletters/{letterId}/discard",
    "bulk_deadletters": "POST v1/deadletters/bulk",
    "create_schedule": "POST v1/schedules",
    "list_schedules": "GET v1/schedules",
    "get_schedule": "GET v1/schedules/{schedule}",
    "update_schedule": "PUT v1/schedules/{schedule}",
    "delete_schedule": "DELETE v1/schedules/{schedule}",
    "pause_schedule": "POST v1/schedules/{schedule}/pause",
    "resume_schedule": "POST v1/schedules/{schedule}/resume",
    "run_schedule": "POST v1/schedules/{schedule}/run",
    "list_fires": "GET v1/schedules/{schedule}/history",
    "send_signal": "POST v1/executions/{id}/signals",
    "list_signals": "GET v1/executions/{id}/signals",
    "list_audit": "GET v1/audit",
    "verify_audit": "GET v1/audit/verify",
    "list_code_workflows": "GET v1/code-workflows",
    "publish_code_workflows": "POST v1/code-workflows",
    "list_archive": "GET v1/archive",
    "show_archive": "GET v1/archive/{archiveId}",
    "read_archive": "GET v1/archive/{archiveId}/content",
    "restore_archive": "POST v1/archive/{archiveId}/restore",
    "delete_archive": "DELETE v1/archive/{archiveId}",
    "list_breakers": "GET v1/breakers",
    "get_breaker": "GET v1/breakers/{dependency}",
    "open_breaker": "POST v1/breakers/{dependency}/open",
    "close_breaker": "POST v1/breakers/{dependency}/close",
    "create_trigger": "POST v1/triggers",
    "put_trigger": "PUT v1/triggers/{triggerName}",
    "list_triggers": "GET v1/triggers",
    "get_trigger": "GET v1/triggers/{triggerName}",
    "delete_trigger": "DELETE v1/triggers/{triggerName}",
    "pause_trigger": "POST v1/triggers/{triggerName}/pause",
    "resume_trigger": "POST v1/triggers/{triggerName}/resume",
    "test_trigger": "POST v1/triggers/{triggerName}/test",
    "send_events": "POST v1/events",
    "allow_events": "OPTIONS v1/events",
    "verify_execution": "GET v1/executions/{id}/verify",
    "health_report": "GET health",
    "live": "GET live",
    "metrics": "GET metrics",
    "ready": "GET ready",
    "startup": "GET startup",
    "openapi_document": "GET openapi.json",
    "docs": "GET docs",
    "zz_unmatched": "DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT v1/{*rest}",
}

# Run in its own process: an app may be indexed once only, and imports cannot be undone. The audit
# hook sees every file, socket and database that the import touches.
PROBE = """
import json, sys
touched = []
def hook(event, args):
    if event in ("socket.__new__", "socket.connect", "sqlite3.connect", "subprocess.Popen"):
        touched.append(event)
    if event == "open" and isinstance(args[0], str):
        path, mode = args[0], args[1] or "r"
        code = path.endswith((".py", ".pyc", ".so", ".json.gz")) or "site-packages" in path
        code = code or ".egg-info" in path  # what an editable install says of itself
        if "w" in mode or "a" in mode or not (code or path.startswith((sys.base_prefix, "/etc"))):
            touched.append(f"open {path} {mode}")
sys.dont_write_bytecode = True
sys.addaudithook(hook)
import function_app
import threading
loaded = [name for name in sys.modules if name.startswith(
    ("orchestrator.local", "orchestrator.adapters.azure", "azure.cosmos",
     "azure.servicebus", "azure.identity", "azure.durable_functions"))]
print(json.dumps({
    "names": sorted(f.get_function_name() for f in function_app.app.get_functions()),
    "touched": touched, "loaded": loaded, "threads": threading.active_count(),
}))
"""


def test_importing_the_function_app_is_cheap_and_has_no_side_effects(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "WEFT_LEASE_MS": "nonsense"},  # told by /health, not here
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["names"]) == {
        *HTTP_FUNCTIONS,
        "orchestration",
        "tasks_high",
        "tasks_standard",
        "tasks_low",
        "orchestration_dead",
        "tasks_high_dead",
        "tasks_standard_dead",
        "tasks_low_dead",
        "events",
        "events_dead",
        "event_grid",
        "relay",
        "project_visibility",
        "sweeper",
        "scheduler",
        "retention",
    }
    assert len(found["names"]) == len(HTTP_FUNCTIONS) + 16
    assert found["touched"] == []
    assert found["loaded"] == []
    assert found["threads"] == 1
    assert list(tmp_path.iterdir()) == []


def test_the_composition_root_stays_small() -> None:
    assert len((ROOT / "function_app.py").read_text().splitlines()) < 60


def never() -> EngineProvider:
    async def build() -> Any:
        raise AssertionError("nothing may ask for the engine")

    return EngineProvider(build)


def test_the_app_passes_the_hosts_checks_and_is_bound_as_designed() -> None:
    found = {f.name: f for f in index(compose(never()), {"COSMOS_DATABASE": "weft"})}
    assert {
        name: f"{'|'.join(sorted(f.binding.methods))} {f.binding.template.text}"
        for name, f in found.items()
        if isinstance(f.binding, HttpBinding)
    } == HTTP_FUNCTIONS
    assert found["orchestration"].binding == QueueBinding(queue="orchestration", many=True)
    for name in ("high", "standard", "low"):
        function, queue = f"tasks_{name}", f"tasks-{name}"
        assert found[function].binding == QueueBinding(queue=queue, many=False)
        dead = found[f"{function}_dead"].binding
        assert dead == QueueBinding(queue=f"{queue}/$DeadLetterQueue", many=False)
    dead = found["orchestration_dead"].binding
    assert dead == QueueBinding(queue="orchestration/$DeadLetterQueue", many=False)
    assert found["events"].binding == QueueBinding(queue="events", many=False)
    dead = found["events_dead"].binding
    assert dead == QueueBinding(queue="events/$DeadLetterQueue", many=False)
    assert found["event_grid"].binding == EventGridBinding()
    assert found["relay"].binding == FeedBinding(
        container="executions", lease_container="leases", lease_id="relay.executions"
    )
    assert found["project_visibility"].binding == FeedBinding(
        container="executions", lease_container="leases", lease_id="visibility.executions"
    )
    sweeper = found["sweeper"].binding
    assert isinstance(sweeper, TimerBinding)
    assert not sweeper.run_on_startup
    assert sweeper.schedule.next_after(0) == 15_000
    scheduler = found["scheduler"].binding
    assert isinstance(scheduler, TimerBinding)
    assert scheduler.schedule.next_after(0) == 5_000
    retention = found["retention"].binding
    assert isinstance(retention, TimerBinding)
    assert retention.schedule.next_after(0) == 600_000
    assert all(function.is_async for function in found.values())


def test_every_queue_is_read_by_exactly_one_function() -> None:
    functions = index(compose(never()), {"COSMOS_DATABASE": "weft"})
    read = [f.binding.queue for f in functions if isinstance(f.binding, QueueBinding)]
    dead = [queue + topology.DEAD_LETTER_SUFFIX for queue in topology.QUEUES]
    assert sorted(read) == sorted([*topology.QUEUES, *dead])


def test_the_sample_settings_name_every_connection_and_setting_of_the_bindings() -> None:
    values = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]
    connections = {
        connection
        for function in functions_of(compose(never()))
        if (connection := function.get_trigger().get_dict_repr().get("connection"))
    }
    assert connections == {"Cosmos", "ServiceBus"}
    for connection in connections:
        assert any(name == connection or name.startswith(f"{connection}__") for name in values)
    index(compose(never()), values)  # resolves every %NAME%


# --- host.json ------------------------------------------------------------------------------------


def test_host_json_agrees_with_the_topology() -> None:
    raw = json.loads((ROOT / "host.json").read_text())
    bus = raw["extensions"]["serviceBus"]
    assert host_json.parse(raw) == host_json.WEFT
    assert raw["extensionBundle"] == {
        "id": "Microsoft.Azure.Functions.ExtensionBundle",
        "version": "[4.*, 5.0.0)",
    }
    assert raw["extensions"]["http"]["routePrefix"] == ""
    assert bus["prefetchCount"] == 0
    assert bus["autoCompleteMessages"] is True
    assert bus["minMessageBatchSize"] == 1
    assert "retry" not in raw
    assert "Exception" in raw["logging"]["applicationInsights"]["samplingSettings"]["excludedTypes"]


def test_a_lock_is_renewed_longer_than_the_longest_attempt_and_the_host_ends_last() -> None:
    settings = host_json.load(ROOT / "host.json")
    assert (
        topology.MAX_ACTIVITY_TIMEOUT_MS
        < settings.max_lock_renewal_ms
        < settings.function_timeout_ms
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": "1.0"}, "version"),
        ({"retry": {"strategy": "fixedDelay"}}, "retry"),
        ({"extensions": {"serviceBus": {"prefetchCount": 10}}}, "prefetchCount"),
        ({"extensions": {"serviceBus": {"autoCompleteMessages": False}}}, "autoComplete"),
        ({"extensions": {"serviceBus": {"minMessageBatchSize": 5}}}, "minMessageBatchSize"),
        ({"extensions": {"serviceBus": {"maxConcurrentCalls": 0}}}, "maxConcurrentCalls"),
        ({"extensions": {"serviceBus": {"maxAutoLockRenewalDuration": "35m"}}}, "35m"),
        ({"extensions": []}, "extensions"),
        ({"functionTimeout": "00:99:00"}, "functionTimeout"),
    ],
)
def test_what_this_host_cannot_follow_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(host_json.HostJsonError, match=reason):
        host_json.parse({"version": "2.0", **change})


def test_an_unreadable_host_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(host_json.HostJsonError, match="missing"):
        host_json.load(tmp_path / "missing.json")


# --- the triggers translate -----------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Any]]:
    made: list[tuple[str, Any, Any]] = []

    def spy(name: str) -> Any:
        async def use_case(engine: Any, given: Any = None, *, queue: str = "") -> None:
            made.append((f"{name} {queue}".strip(), engine, given))

        return use_case

    monkeypatch.setattr(orchestrate, "handle", spy("orchestrate"))
    monkeypatch.setattr(execute, "handle", spy("execute"))
    monkeypatch.setattr(relay, "relay_documents", spy("relay"))
    monkeypatch.setattr(project, "project_documents", spy("project"))
    monkeypatch.setattr(sweep, "sweep", spy("sweep"))
    monkeypatch.setattr(levels, "refresh_if_possible", spy("refresh_if_possible"))
    monkeypatch.setattr(schedule, "run_due", spy("run_due"))
    return made


def user_function(name: str, engine: Any) -> Any:
    async def build() -> Any:
        return engine

    functions = index(compose(EngineProvider(build)), {"COSMOS_DATABASE": "weft"})
    return next(f.call for f in functions if f.name == name)


def message(**more: Any) -> Any:
    given = {"message_id": "m1", "application_properties": {}, "user_properties": {}, **more}
    return ServiceBusMessage(body=b"{}", **given)


async def test_queue_triggers_hand_over_incoming_messages(calls: list[Any]) -> None:
    engine = object()
    # What the worker's decoder makes of a time whose text has no zone.
    when = datetime(2026, 11, 30, 12, 0, 0, 250_000)
    first = message(
        delivery_count=3,
        application_properties={"traceparent": "00-a-b-01"},
        enqueued_time_utc=when,
    )
    # What the worker's decoder makes of metadata that the host left out.
    bare: Any = message(message_id=None, application_properties=None, user_properties=None)
    older = message(application_properties=None, user_properties={"n": 1})
    await user_function("orchestration", engine)(messages=[first, bare, older])
    for name in ("high", "standard", "low"):
        await user_function(f"tasks_{name}", engine)(message=first)
    whole = Incoming(
        body=b"{}",
        message_id="m1",
        delivery_count=3,
        properties={"traceparent": "00-a-b-01"},
        enqueued_at=1_796_040_000_250,
    )
    assert calls == [
        (
            "orchestrate",
            engine,
            [
                whole,
                Incoming(body=b"{}"),
                Incoming(body=b"{}", message_id="m1", properties={"n": "1"}),
            ],
        ),
        ("execute tasks-high", engine, whole),
        ("execute tasks-standard", engine, whole),
        ("execute tasks-low", engine, whole),
    ]


async def test_feed_and_timer_triggers_call_their_use_cases(calls: list[Any]) -> None:
    engine = object()
    documents = func.DocumentList([func.Document.from_dict({"id": "a", "type": "outbox"})])
    await user_function("relay", engine)(documents=documents)
    await user_function("project_visibility", engine)(documents=documents)
    await user_function("sweeper", engine)(timer=TimerRequest())
    await user_function("scheduler", engine)(timer=TimerRequest())
    assert [(name, bound) for name, bound, _ in calls] == [
        ("relay", engine),
        ("project", engine),
        ("sweep", engine),
        ("refresh_if_possible", engine),
        ("run_due", engine),
    ]
    for _, _, given in calls[:2]:
        assert [dict(document) for document in given] == [{"id": "a", "type": "outbox"}]
