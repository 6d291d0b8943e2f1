"""The scenario of code workflows: its functions, called as Durable's host calls them."""

from __future__ import annotations

import json
import warnings
from typing import Any

from azure_functions_runtime.bindings.datumdef import Datum

from orchestrator.domain.topology import TASKS_STANDARD_QUEUE
from orchestrator.engine.core import Engine
from tests.support.durable_hand import START, envelope
from tests.wire.worker.library import InvocationFailed, Worker

TIME = START.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
PLAIN = {"EventId": -1, "IsPlayed": False, "Timestamp": TIME}
BINDING = {"taskHubName": "weft", "rpcBaseUrl": "http://127.0.0.1:9/durabletask/"}


async def code(worker: Worker, engine: list[Engine]) -> Any:
    """A turn of an orchestrator, its activity, its word at the end, and who learns the address."""
    warnings.filterwarnings("ignore", "azure.functions df_loads", DeprecationWarning)
    bound = sorted(
        name
        for name, bindings in worker.bindings.items()
        if any(one["type"] == "durableClient" for one in bindings)
    )
    text = envelope("greet", "Ada")
    context = {
        "history": [
            {**PLAIN, "EventType": 12},
            {**PLAIN, "EventType": 0, "Name": "code_greet_v1", "Input": text, "Version": None},
        ],
        "input": text,
        "instanceId": "e1",
        "isReplaying": False,
        "parentInstanceId": None,
        "upperSchemaVersion": 2,
    }
    turn = json.loads(await worker.call("code_greet_v1", "context", _text(json.dumps(context)), {}))
    asked = turn["actions"][0][0]
    output = await worker.call("weft_activity", "request", _json(json.loads(asked["input"])), {})
    failed = ""
    wrong = json.dumps({**json.loads(json.loads(asked["input"])), "activity": "no.such"})
    try:
        await worker.call("weft_activity", "request", _text(wrong), {})
    except InvocationFailed as error:
        failed = str(error)
    latest = await worker.call(
        "weft_support", "request", _text('{"op": "latest", "workflow": "greet"}'), {}
    )
    word = {"tenant": "t", "execution": "e1", "task": "main", "item": None, "instance": "e1"}
    await worker.call("weft_ended", "request", _text(json.dumps(word)), {})
    broker: Any = engine[0].transport
    (message,) = await broker.receive(TASKS_STANDARD_QUEUE, 1, 0)
    await worker.call(
        "tasks_standard",
        "message",
        Datum(type="bytes", value=message.body),
        {"MessageId": _text("m"), "UserProperties": _json({})},
        durable_client=_text(json.dumps(BINDING)),
    )
    hub: Any = engine[0].orchestrations
    return {
        "bound": bound,
        "asked": asked["functionName"],
        "output": json.loads(output),
        "failed": failed,
        "latest": json.loads(latest),
        "message": json.loads(message.body),
        "address": hub._base,
        "bindings": {
            name: worker.bindings[name] for name in ("code_greet_v1", "weft_activity", "weft_call")
        },
    }


def _text(value: str) -> Datum:
    return Datum(type="string", value=value)


def _json(value: Any) -> Datum:
    return Datum(type="json", value=json.dumps(value))
