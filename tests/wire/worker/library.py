"""The real Functions worker library, driven as its host drives it, without gRPC.

`azure-functions-runtime` is what the Python 3.13 worker runs. It takes the protobuf classes from
its caller, so plain classes of the same names do; all between them is the library's own code:
import, indexing, checks of annotations, decoding, invocation, encoding. It keeps its functions in
module globals, so one process can index one app, once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from azure_functions_runtime import handle_event
from azure_functions_runtime.bindings.datumdef import Datum
from azure_functions_runtime.native_invocation import invocation_request_native
from azure_functions_runtime.utils.threadpool import start_threadpool_executor

from tests.support.identities import bearer

_CLASSES = (
    "BindingInfo RpcFunctionMetadata RpcRetryOptions StatusResult WorkerInitResponse "
    "WorkerMetadata FunctionMetadataResponse FunctionLoadResponse RpcException"
)


class _Message:
    """A protobuf message as far as the library looks: what it was made of."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def _protos() -> SimpleNamespace:
    protos = SimpleNamespace(**{name: type(name, (_Message,), {}) for name in _CLASSES.split()})
    protos.StatusResult.Success, protos.StatusResult.Failure = 1, 0
    protos.BindingInfo.out, protos.BindingInfo.inout = 1, 2
    return protos


class IndexingFailed(Exception):
    """What the library tells the host when it cannot index the app."""


class InvocationFailed(Exception):
    """A function raised, or the library could not decode its trigger."""


class Worker:
    """One app, indexed. `bindings`: by function, what the host gets to read."""

    def __init__(
        self, bindings: Mapping[str, list[dict[str, Any]]], ids: Mapping[str, str]
    ) -> None:
        self.bindings = bindings
        self._ids = ids
        self._calls = 0

    @classmethod
    async def start(cls, app_dir: str) -> Worker:
        """Initialise the library over the folder of a `function_app.py`. Raises
        `IndexingFailed`."""
        sys.path.insert(0, app_dir)  # the worker's own main does this, not the library
        start_threadpool_executor()
        request = SimpleNamespace(
            properties={"host": "127.0.0.1", "protos": _protos()},
            request=SimpleNamespace(
                worker_init_request=SimpleNamespace(capabilities={}, function_app_directory=app_dir)
            ),
        )
        answer = await handle_event.worker_init_request(request)
        if answer.result.status != 1:
            raise IndexingFailed(answer.result.exception.message)
        metadata = await handle_event.functions_metadata_request(request)
        found = metadata.function_metadata_results or []
        return cls(
            {f.name: [json.loads(raw) for raw in f.raw_bindings] for f in found},
            {f.name: f.function_id for f in found},
        )

    async def call(
        self,
        function: str,
        parameter: str,
        value: Datum,
        metadata: Mapping[str, Datum],
        **inputs: Datum,
    ) -> Any:
        """Invoke once; the returned datum's value, None without one. Raises
        `InvocationFailed`."""
        self._calls += 1
        ok, returned, _, error, trace = await invocation_request_native(
            f"invocation-{self._calls}",
            self._ids[function],
            [(parameter, value), *inputs.items()],
            dict(metadata),
        )
        if not ok:
            raise InvocationFailed(f"{error}\n{trace}")
        return None if returned is None else returned.value

    # --- what the host sends ----------------------------------------------------------------------

    async def http(
        self,
        function: str,
        method: str,
        url: str,
        *,
        body: Any = None,
        route: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any, dict[str, str]]:
        """A request as the host hands it over: status, decoded JSON body, headers."""
        who = bearer(Path(os.environ["WEFT_DATA_DIR"]))
        given = {"content-type": "application/json", **who, **(headers or {})}
        request = {
            "method": _text(method),
            "url": _text(url),
            "headers": {name: _text(value) for name, value in given.items()},
            "params": {name: _text(value) for name, value in (route or {}).items()},
            "query": {},
            "body": Datum(type="bytes", value=b"" if body is None else json.dumps(body).encode()),
        }
        answer = await self.call(function, "req", Datum(type="http", value=request), {})
        return (
            int(answer["status_code"].value),
            json.loads(answer["body"].value),
            {name: datum.value for name, datum in answer["headers"].items()},
        )

    async def messages(self, function: str, parameter: str, batch: Sequence[Any]) -> None:
        """A batch of Service Bus messages (`ports.Received`), bodies as a binary collection."""
        properties = [dict(message.properties) for message in batch]
        await self.call(
            function,
            parameter,
            Datum(
                type="collection_bytes",
                value=SimpleNamespace(bytes=[message.body for message in batch]),
            ),
            {
                "MessageIdArray": _json([message.message_id for message in batch]),
                "DeliveryCountArray": _json([message.delivery_count for message in batch]),
                "SequenceNumberArray": _json([message.sequence_number for message in batch]),
                "LockTokenArray": _json([message.lock_token for message in batch]),
                "UserPropertiesArray": _json(properties),
                "ApplicationPropertiesArray": _json(properties),
            },
        )

    async def message(self, function: str, parameter: str, message: Any) -> None:
        """One Service Bus message (`ports.Received`)."""
        properties = dict(message.properties)
        await self.call(
            function,
            parameter,
            Datum(type="bytes", value=message.body),
            {
                "MessageId": _text(message.message_id),
                "DeliveryCount": _json(message.delivery_count),
                "SequenceNumber": _json(message.sequence_number),
                "LockToken": _text(message.lock_token),
                "UserProperties": _json(properties),
                "ApplicationProperties": _json(properties),
            },
        )

    async def documents(self, function: str, parameter: str, docs: Sequence[Any]) -> None:
        """A page of the change feed."""
        await self.call(function, parameter, _json(list(docs)), {})

    async def event(self, function: str, parameter: str, body: Any) -> None:
        """An Event Grid event, in either schema."""
        await self.call(function, parameter, _json(body), {})

    async def tick(self, function: str, parameter: str) -> None:
        """A timer."""
        await self.call(
            function,
            parameter,
            _json({"IsPastDue": False, "Schedule": {}, "ScheduleStatus": None}),
            {},
        )


def _text(value: str) -> Datum:
    return Datum(type="string", value=value)


def _json(value: Any) -> Datum:
    return Datum(type="json", value=json.dumps(value))
