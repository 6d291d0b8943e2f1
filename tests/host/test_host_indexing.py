"""What the real host or worker refuses at deployment is refused here at start, by name."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import azure.functions as func
import pytest

from orchestrator.local.host.errors import IndexingError
from orchestrator.local.host.indexing import (
    FeedBinding,
    HttpBinding,
    QueueBinding,
    TimerBinding,
    index,
)

Register = Callable[[func.FunctionApp], Any]


def http(app: func.FunctionApp, **more: Any) -> Any:
    return app.route(route="things/{id}", methods=["GET"], **more)


def batch(app: func.FunctionApp, queue: str = "orchestration", **more: Any) -> Any:
    more.setdefault("cardinality", "many")
    return app.service_bus_queue_trigger(
        arg_name="messages", queue_name=queue, connection="ServiceBus", **more
    )


def single(app: func.FunctionApp, **more: Any) -> Any:
    return app.service_bus_queue_trigger(
        arg_name="message", queue_name="tasks-standard", connection="ServiceBus", **more
    )


def feed(app: func.FunctionApp, **more: Any) -> Any:
    settings = {"database_name": "%DB%", "container_name": "executions", **more}
    return app.cosmos_db_trigger(arg_name="documents", connection="Cosmos", **settings)


def timer(app: func.FunctionApp, schedule: str = "*/15 * * * * *") -> Any:
    return app.timer_trigger(arg_name="timer", schedule=schedule)


def test_good_functions_of_all_kinds_are_indexed() -> None:
    app = func.FunctionApp()

    @http(app)
    async def get_thing(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
        raise NotImplementedError

    @batch(app)
    async def many(messages: typing.List[func.ServiceBusMessage]) -> None:  # noqa: UP006
        pass

    @single(app)
    def one(message: func.ServiceBusMessage) -> None:
        pass

    @feed(app, lease_container_prefix="relay")
    async def changed(documents: func.DocumentList) -> None:
        pass

    @timer(app)
    async def tick(timer) -> None:  # type: ignore[no-untyped-def]
        pass

    found = {f.name: f for f in index(app, {"DB": "weft"}, route_prefix="api")}

    assert set(found) == {"get_thing", "many", "one", "changed", "tick"}
    http_binding = found["get_thing"].binding
    assert isinstance(http_binding, HttpBinding)
    assert http_binding.methods == {"GET"}
    assert http_binding.template.text == "api/things/{id}"
    assert found["get_thing"].wants_context
    assert found["many"].binding == QueueBinding(queue="orchestration", many=True)
    assert found["one"].binding == QueueBinding(queue="tasks-standard", many=False)
    assert not found["one"].is_async
    assert found["changed"].binding == FeedBinding(
        container="executions", lease_container="leases", lease_id="relay.executions"
    )
    assert isinstance(found["tick"].binding, TimerBinding)
    # A second look at the same app works, although get_functions() itself may be called only once.
    assert len(index(app, {"DB": "weft"})) == 5


def builtin_list(app: func.FunctionApp) -> None:
    @batch(app)
    async def bad(messages: list[func.ServiceBusMessage]) -> None: ...


def optional_response(app: func.FunctionApp) -> None:
    @http(app)
    async def bad(req: func.HttpRequest) -> func.HttpResponse | None: ...


def dict_response(app: func.FunctionApp) -> None:
    @http(app)
    async def bad(req: func.HttpRequest) -> dict[str, Any]: ...


def plain_dict_response(app: func.FunctionApp) -> None:
    @http(app)
    async def bad(req: func.HttpRequest) -> dict: ...  # type: ignore[type-arg]


def none_response(app: func.FunctionApp) -> None:
    @http(app)
    async def bad(req: func.HttpRequest) -> None: ...


def extra_parameter(app: func.FunctionApp) -> None:
    @single(app)
    async def bad(message: func.ServiceBusMessage, extra: int = 0) -> None: ...


def wrong_name(app: func.FunctionApp) -> None:
    @single(app)
    async def bad(msg: func.ServiceBusMessage) -> None: ...


def wrong_class(app: func.FunctionApp) -> None:
    @single(app)
    async def bad(message: func.HttpRequest) -> None: ...


def wrong_context(app: func.FunctionApp) -> None:
    @single(app)
    async def bad(message: func.ServiceBusMessage, context: dict) -> None: ...  # type: ignore[type-arg]


def undefined_annotation(app: func.FunctionApp) -> None:
    @single(app)
    async def bad(message: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def single_for_batch(app: func.FunctionApp) -> None:
    @batch(app)
    async def bad(messages: func.ServiceBusMessage) -> None: ...


def batch_for_single(app: func.FunctionApp) -> None:
    @batch(app, cardinality="one")
    async def bad(messages: typing.List[func.ServiceBusMessage]) -> None: ...  # noqa: UP006


def returned_value(app: func.FunctionApp) -> None:
    @timer(app)
    async def bad(timer: func.TimerRequest) -> int: ...


def plain_document_list(app: func.FunctionApp) -> None:
    @feed(app)
    async def bad(documents: typing.List[func.Document]) -> None: ...  # noqa: UP006


def unknown_queue(app: func.FunctionApp) -> None:
    @batch(app, queue="orchestartion")
    async def bad(messages: typing.List[func.ServiceBusMessage]) -> None: ...  # noqa: UP006


def unknown_container(app: func.FunctionApp) -> None:
    @feed(app, container_name="execution")
    async def bad(documents: func.DocumentList) -> None: ...


def unknown_lease_container(app: func.FunctionApp) -> None:
    @feed(app, lease_container_name="lease")
    async def bad(documents: func.DocumentList) -> None: ...


def unresolved_setting(app: func.FunctionApp) -> None:
    @feed(app, database_name="%NO_SUCH%")
    async def bad(documents: func.DocumentList) -> None: ...


def five_fields(app: func.FunctionApp) -> None:
    @timer(app, "*/5 * * * *")
    async def bad(timer: func.TimerRequest) -> None: ...


def unsupported_trigger(app: func.FunctionApp) -> None:
    @app.queue_trigger(arg_name="message", queue_name="q", connection="S")
    async def bad(message: func.QueueMessage) -> None: ...


def output_binding(app: func.FunctionApp) -> None:
    @single(app)
    @app.service_bus_queue_output(arg_name="out", queue_name="orchestration", connection="S")
    async def bad(message: func.ServiceBusMessage, out: func.Out[str]) -> None: ...


def host_retry(app: func.FunctionApp) -> None:
    @app.retry(strategy="fixed_delay", max_retry_count="3", delay_interval="00:00:01")
    @single(app)
    async def bad(message: func.ServiceBusMessage) -> None: ...


def manual_completion(app: func.FunctionApp) -> None:
    @single(app, auto_complete_messages=False)
    async def bad(message: func.ServiceBusMessage) -> None: ...


def sessions(app: func.FunctionApp) -> None:
    @single(app, is_sessions_enabled=True)
    async def bad(message: func.ServiceBusMessage) -> None: ...


def constrained_route(app: func.FunctionApp) -> None:
    @app.route(route="things/{id:int}")
    async def bad(req: func.HttpRequest) -> func.HttpResponse: ...


def bad_name(app: func.FunctionApp) -> None:
    @app.function_name("bad name")
    @single(app)
    async def bad(message: func.ServiceBusMessage) -> None: ...


CASES: list[tuple[Register, str]] = [
    (builtin_list, "typing.List"),
    (optional_response, "not a plain type"),
    (dict_response, "not a plain type"),
    (plain_dict_response, "does not take a returned dict"),
    (none_response, "does not take a returned NoneType"),
    (extra_parameter, "no binding's: extra"),
    (wrong_name, "no binding's: msg"),
    (wrong_class, "does not take HttpRequest"),
    (wrong_context, "azure.functions.Context"),
    (undefined_annotation, "do not evaluate"),
    (single_for_batch, "cardinality"),
    (batch_for_single, "cardinality"),
    (returned_value, "no output binding"),
    (plain_document_list, "does not take"),
    (unknown_queue, "unknown queue 'orchestartion'"),
    (unknown_container, "unknown container 'execution'"),
    (unknown_lease_container, "unknown container 'lease'"),
    (unresolved_setting, "%NO_SUCH%"),
    (five_fields, "six fields"),
    (unsupported_trigger, "no trigger queueTrigger"),
    (output_binding, "no binding serviceBus"),
    (host_retry, "retry policy"),
    (manual_completion, "auto-complete"),
    (sessions, "sessions"),
    (constrained_route, "{id:int}"),
    (bad_name, "valid function name"),
]


@pytest.mark.parametrize(("register", "reason"), CASES, ids=[case[0].__name__ for case in CASES])
def test_refused_at_start_by_name(register: Register, reason: str) -> None:
    app = func.FunctionApp()
    register(app)
    with pytest.raises(IndexingError) as caught:
        index(app, {"DB": "weft"})
    assert "bad" in str(caught.value)
    assert reason in str(caught.value)


def test_all_problems_are_reported_at_once() -> None:
    app = func.FunctionApp()

    @single(app)
    async def first(message: int, extra: str) -> None: ...

    @timer(app, "nonsense")
    async def second(timer: func.TimerRequest) -> str: ...

    with pytest.raises(IndexingError) as caught:
        index(app, {})
    text = "\n".join(caught.value.problems)
    assert text.count("the first function") == 2
    assert text.count("the second function") == 2


def test_duplicate_function_names_are_refused() -> None:
    app = func.FunctionApp()
    for _ in range(2):

        @single(app)
        async def twice(message: func.ServiceBusMessage) -> None: ...

    with pytest.raises(IndexingError, match="twice"):
        index(app, {})


def test_names_that_differ_only_in_case_are_refused() -> None:
    app = func.FunctionApp()
    for name in ("twice", "Twice"):

        @app.function_name(name)
        @single(app)
        async def function(message: func.ServiceBusMessage) -> None: ...

    with pytest.raises(IndexingError, match="Twice"):
        index(app, {})


def test_an_app_without_functions_is_refused() -> None:
    with pytest.raises(IndexingError, match="no functions"):
        index(func.FunctionApp(), {})
