"""The Durable extension's HTTP RPC, which `DurableOrchestrationClient` calls, on a port of its own.

Whoever may call it may do everything with every instance, and asks nobody; so it listens on
loopback only, and its paths begin with a secret of this process that only the client bindings know.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web

from orchestrator.functions.http_errors import stack
from orchestrator.local.durable import clients, status
from orchestrator.local.durable.clients import Status
from orchestrator.local.durable.events import milliseconds
from orchestrator.local.durable.hub import Hub, missing
from orchestrator.local.host.listening import listening_socket

logger = logging.getLogger("orchestrator.local.durable")

ADDRESS: Final = "127.0.0.1"
TASK_HUB: Final = "weft"
MAX_BODY_BYTES: Final = 100 * 1024 * 1024
_ID: Final = re.compile(r"(?!@)[^/\\#?\x00-\x1f\x7f-\x9f]{1,256}")
_VERBS: Final = {"terminate", "suspend", "resume", "rewind", "restart"}


class Rpc:
    """Serves one hub. `start`, then `stop`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._secret = secrets.token_urlsafe(24)
        self._runner: web.ServerRunner | None = None
        self._port = 0

    @property
    def base_url(self) -> str:
        """`rpcBaseUrl`, once started; ends with a slash. A secret: not to be logged."""
        return f"http://{ADDRESS}:{self._port}/{self._secret}/durabletask/"

    def binding(self, public_url: str) -> str:
        """The JSON that a `durableClient` parameter gets. `public_url`: where clients reach the
        host; the management URLs lead there, and the embedded host answers them with 404."""
        instances = f"{public_url}/runtime/webhooks/durabletask/instances/INSTANCEID"
        query = f"taskHub={TASK_HUB}&connection=Storage"
        creation = (
            f"{public_url}/runtime/webhooks/durabletask/orchestrators/"
            "{functionName}[/{instanceId}]"
        )
        with_reason = {
            f"{verb}PostUri": f"{instances}/{verb}?reason={{text}}&{query}"
            for verb in ("terminate", "rewind", "suspend", "resume")
        }
        return json.dumps(
            {
                "taskHubName": TASK_HUB,
                "creationUrls": {"createNewInstancePostUri": f"{creation}?{query}"},
                "managementUrls": {
                    "id": "INSTANCEID",
                    "statusQueryGetUri": f"{instances}?{query}",
                    "sendEventPostUri": f"{instances}/raiseEvent/{{eventName}}?{query}",
                    "purgeHistoryDeleteUri": f"{instances}?{query}",
                    "restartPostUri": f"{instances}/restart?{query}",
                    **with_reason,
                },
                "rpcBaseUrl": self.base_url,
            }
        )

    async def start(self) -> None:
        """Listen on a free port."""
        sock = listening_socket(ADDRESS, 0)
        self._port = sock.getsockname()[1]
        loop = asyncio.get_running_loop()

        def made(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> Any:
            return web.BaseRequest(
                message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
            )

        server = web.Server(self._handle, request_factory=made, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.SockSite(self._runner, sock).start()

    async def stop(self) -> None:
        """Close. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        secret, *path = [unquote(part) for part in request.rel_url.raw_path[1:].split("/")]
        if not secrets.compare_digest(secret.encode(), self._secret.encode()):
            return web.Response(status=404)
        try:
            return await self._route(request, [part for part in path[1:] if part])
        except _Refused as refused:
            return _problem(refused.status, str(refused))
        except Exception as error:
            logger.error(
                "durable rpc failed: %s\n%s",
                type(error).__name__,
                stack(error),
                extra={"action": "durable_rpc_failed"},
            )
            return _problem(500, "Something went wrong while processing your request")

    async def _route(self, request: web.BaseRequest, path: list[str]) -> web.Response:
        match request.method, path:
            case "POST", ["orchestrators", name]:
                return await self._start(request, name, self._hub.new_id())
            case "POST", ["orchestrators", name, instance]:
                return await self._start(request, name, instance)
            case "GET", ["instances"]:
                found = await self._select(request)
                payload = _flag(request, "showInput")
                return _answer(
                    200, [status.shown(one, payload=payload, events=None) for one in found]
                )
            case "DELETE", ["instances"]:
                if "createdTimeFrom" not in request.query:
                    raise _Refused(400, "Please provide value for 'createdTimeFrom' parameter.")
                return await self._purge([one.id for one in await self._select(request)])
            case "GET", ["instances", instance]:
                return await self._status(request, await self._known(instance))
            case "DELETE", ["instances", instance]:
                known = await self._known(instance)
                if not known.ended:
                    return _answer(
                        412,
                        "Only orchestrations in a terminal state can be purged, but the "
                        f"orchestration with instance ID {instance} has status {known.shown}",
                    )
                return await self._purge([instance])
            case "POST", ["instances", instance, "raiseEvent", name]:
                return await self._raise(request, await self._known(instance), name)
            case "POST", ["instances", instance, verb] if verb in _VERBS:
                reason = request.query.get("reason", "")
                return await self._do(request, instance, verb, reason)
            case _, ["entities", *_]:
                raise _Refused(501, "entities are not in the embedded mode")
        return web.Response(status=404)

    async def _start(self, request: web.BaseRequest, name: str, instance: str) -> web.Response:
        body = await _json_body(request)
        if not _ID.fullmatch(instance):
            raise _Refused(
                400, "an instance id has 1 to 256 characters, none of / \\ # ?, and no @ first"
            )
        if name.casefold() not in self._hub.orchestrators:
            raise _Refused(400, missing(name, "an orchestrator"))
        return await self._begin(request, name, instance, body)

    async def _begin(
        self, request: web.BaseRequest, name: str, instance: str, payload: str | None
    ) -> web.Response:
        now, execution = self._hub.clock.now(), self._hub.new_id()
        if not await self._call(clients.start, instance, name, payload, now, execution):
            raise _Refused(
                409, f"An Orchestration instance with the status Running already exists: {instance}"
            )
        # Without the URLs that the extension adds: functions hand them on, and ours have the secret
        return _answer(202, {"id": instance})

    async def _status(self, request: web.BaseRequest, known: Status) -> web.Response:
        events = None
        if _flag(request, "showHistory") and known.shown != "Pending":
            events = await self._call(clients.events_of, known.id)
        code = 200 if known.ended else 202
        if known.status == "Failed" and _flag(request, "returnInternalServerErrorOnFailure"):
            code = 500
        payload = _flag(request, "showInput", absent=True)
        results = _flag(request, "showHistoryOutput")
        headers = {} if known.ended else {"Retry-After": "5"}
        shown = status.shown(known, payload=payload, events=events, results=results)
        return _answer(code, shown, headers)

    async def _raise(self, request: web.BaseRequest, known: Status, name: str) -> web.Response:
        if known.ended:
            return web.Response(status=410)
        if request.content_type != "application/json":
            raise _Refused(400, "Only application/json request content is supported")
        body = await _json_body(request) or "null"
        now = self._hub.clock.now()
        done = await self._call(clients.raise_event, known.id, name, body, now)
        return web.Response(status=202 if done else 410)

    async def _do(
        self, request: web.BaseRequest, instance: str, verb: str, reason: str
    ) -> web.Response:
        now = self._hub.clock.now()
        if verb == "restart":
            known = await self._call(clients.find, instance)
            if known is None:
                raise _Refused(400, "InstanceId does not match a valid orchestration instance.")
            fresh = _flag(request, "restartWithNewInstanceId", absent=True)
            target = self._hub.new_id() if fresh else instance
            return await self._begin(request, known.name, target, known.payload)
        known = await self._known(instance)
        if verb == "rewind":
            if known.status != "Failed":
                return _answer(
                    412,
                    f"This orchestration has status {known.shown}, but only orchestrations in the "
                    '"Failed" state can be rewound.',
                )
            await self._call(clients.take_up, instance, reason, now, self._hub.plain)
            return web.Response(status=202)
        if verb == "terminate":
            done = await self._call(clients.terminate, instance, reason, now)
        else:
            suspend = verb == "suspend"
            done = await self._call(_suspend, instance, reason, now, suspend)
        return web.Response(status=202 if done else 410)

    async def _purge(self, instances: list[str]) -> web.Response:
        count = await self._call(clients.purge, instances)
        return _answer(200, {"instancesDeleted": count}) if count else web.Response(status=404)

    async def _known(self, instance: str) -> Status:
        known = await self._call(clients.find, instance)
        if known is None:
            raise _Refused(404, f"No instance with ID '{instance}' found.")
        return known

    async def _select(self, request: web.BaseRequest) -> list[Status]:
        query, conditions, values = request.query, ["1"], list[Any]()
        try:
            for key, condition in (
                ("createdTimeFrom", "created >= ?"),
                ("createdTimeTo", "created <= ?"),
            ):
                if query.get(key):
                    conditions.append(condition)
                    values.append(milliseconds(query[key]))
            limit = int(query.get("top") or -1)
        except ValueError as error:
            raise _Refused(400, f"not a time or number: {error}") from None
        if prefix := query.get("instanceIdPrefix"):
            # A range, for the index: an execution that ends looks for all below it.
            conditions.append("id >= ? AND id < ?")
            values += [prefix, f"{prefix}\U0010ffff"]
        found = await self._call(clients.select, " AND ".join(conditions), values, limit)
        wanted = set(filter(None, query.get("runtimeStatus", "").split(",")))
        return [one for one in found if not wanted or one.shown in wanted]

    async def _call(self, use_case: Any, *arguments: Any) -> Any:
        try:
            return await self._hub.call(use_case, self._hub.store, *arguments)
        finally:
            self._hub.wake()


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _suspend(store: Any, instance: str, reason: str, now: int, on: bool) -> bool:
    return clients.suspend(store, instance, reason, now, on=on)


async def _json_body(request: web.BaseRequest) -> str | None:
    """The body, which must be JSON; None if there is none, or if it is the client's `null`."""
    if not request.body_exists or not (data := await request.read()):
        return None
    try:
        text = data.decode()
        return None if json.loads(text) is None else text
    except ValueError:
        raise _Refused(400, "Invalid JSON content") from None


def _flag(request: web.BaseRequest, name: str, *, absent: bool = False) -> bool:
    text = request.query.get(name, "").lower()
    return text == "true" if text in ("true", "false") else absent


def _answer(code: int, body: Any, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(body, status=code, headers=headers)


def _problem(code: int, message: str) -> web.Response:
    """As ASP.NET shows an error; the client reads `ExceptionMessage`."""
    return _answer(code, {"Message": message, "ExceptionMessage": message})
