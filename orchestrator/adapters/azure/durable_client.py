"""`Orchestrations` over the RPC address of the Durable extension.

The extension tells that address with each call of a function that has a `durableClient` binding;
there is no other way to learn it. The library's own client is not used: it keeps one session per
module, which nobody can close, bound to the first event loop, and its errors are texts.

Below the address (as azure-functions-durable 1.7 calls it):

    GET    instances/?instanceIdPrefix=…      a list, with a continuation token; ?runtimeStatus=…
    POST   orchestrators/NAME/ID              body: JSON of the JSON text
    GET    instances/ID?showHistory=…
    POST   instances/ID/raiseEvent/NAME       body: JSON of the JSON text
    POST   instances/ID/VERB?reason=…         terminate, suspend, resume, rewind
    DELETE instances/ID
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import httpx

from orchestrator.domain.orchestration_result import is_below
from orchestrator.ports import NotFound, StoreError, Throttled, Unavailable
from orchestrator.ports_durable import ENDED, Instance, InstanceStatus

SECONDS: Final = 30.0  # of one request: the extension is on this machine, its store may not answer
CONTINUATION: Final = "x-ms-continuation-token"
_OPEN: Final = ",".join(one for one in InstanceStatus if one not in ENDED)
_THERE: Final = frozenset({200, 202})
_GONE: Final = frozenset({404, 410, 412})


class DurableClient:
    """One task hub. Opens nothing before the first request; may be used again after `close`."""

    def __init__(self, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """`transport`: of the requests, for tests."""
        self._transport = transport
        self._http: httpx.AsyncClient | None = None
        self._base = ""
        self._binding: str | None = None

    def learn(self, binding: str) -> None:
        """Take the address from what a `durableClient` binding gave. Raises `ValueError`: that was
        not one, or the extension has no RPC address (`localRpcEndpointEnabled` in host.json)."""
        if binding == self._binding:
            return
        try:
            base = json.loads(binding)["rpcBaseUrl"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"no durableClient binding: {type(error).__name__}") from None
        if not isinstance(base, str) or not base:
            raise ValueError("the Durable extension has no RPC address; see host.json")
        self._base = base if base.endswith("/") else f"{base}/"
        self._binding = binding

    async def start(self, name: str, instance: str, payload: str) -> None:
        """See `Orchestrations`."""
        path = f"orchestrators/{quote(name, safe='')}/{quote(instance, safe='')}"
        answer = await self._ask("POST", path, json=payload)
        if answer.status_code == 400:  # with an ExceptionMessage: no such function
            raise NotFound(f"there is no orchestrator function {name}")
        if answer.status_code != 409:  # it is there already, and has not ended
            _check(answer, _THERE)

    async def status(self, instance: str, *, history: bool = False) -> Instance | None:
        """See `Orchestrations`. A failed instance may come as 400 or 500: its body decides."""
        shown = {"showHistory": "true", "showHistoryOutput": "true"} if history else {}
        inputs = "true" if history else "false"  # of steps, too: they say which activity it is
        answer = await self._ask("GET", _path(instance), params={**shown, "showInput": inputs})
        if answer.status_code == 404:
            return None
        body = _body(answer)
        if not isinstance(body, dict) or not body.get("runtimeStatus"):
            _check(answer, frozenset())
            return None
        events = body.get("historyEvents", body.get("history"))
        return Instance(
            id=body.get("instanceId") or instance,
            name=body.get("name") or "",
            status=InstanceStatus(body["runtimeStatus"]),
            output=_text(body.get("output")),
            custom_status=_text(body.get("customStatus")),
            created_at=_ms(body["createdTime"]),
            updated_at=_ms(body["lastUpdatedTime"]),
            history=tuple(events or ()) if history else None,
        )

    async def open_of(self, names: Collection[str]) -> dict[str, list[str]]:
        """See `Orchestrations`."""
        found: dict[str, list[str]] = {}
        async for row in self._list({"runtimeStatus": _OPEN}):
            if row["name"] in names:
                found.setdefault(row["name"], []).append(row["instanceId"])
        return found

    async def raise_event(self, instance: str, name: str, payload: str) -> None:
        """See `Orchestrations`."""
        path = f"{_path(instance)}/raiseEvent/{quote(name, safe='')}"
        _check(await self._ask("POST", path, json=payload), _THERE, instance)

    async def terminate(self, instance: str, reason: str) -> None:
        """See `Orchestrations`."""
        answer = await self._verb(instance, "terminate", reason)
        _check(answer, _THERE | {410}, instance)
        await self._each_below(instance, "terminate", reason)

    async def suspend(self, instance: str, reason: str) -> None:
        """See `Orchestrations`. Itself last, since what it shows says that it was done; and those
        that it started meanwhile."""
        await self._each_below(instance, "suspend", reason)
        _check(await self._verb(instance, "suspend", reason), _THERE, instance)
        await self._each_below(instance, "suspend", reason)

    async def resume(self, instance: str, reason: str) -> None:
        """See `Orchestrations`. Itself last."""
        await self._each_below(instance, "resume", reason)
        _check(await self._verb(instance, "resume", reason), _THERE, instance)

    async def rewind(self, instance: str, reason: str) -> None:
        """See `Orchestrations`."""
        _check(await self._verb(instance, "rewind", reason), _THERE, instance)

    async def purge(self, instance: str) -> None:
        """See `Orchestrations`."""
        # Nobody waits any more for what still goes on.
        below = await self._each_below(instance, "terminate", "what it belongs to is deleted")
        goes_on = 0
        for id in (instance, *below):
            answer = await self._ask("DELETE", _path(id))
            goes_on += answer.status_code == 412
            _check(answer, _THERE | {404, 412})
        if goes_on:
            raise Unavailable(f"{goes_on} instances of {instance} have not ended yet")

    async def close(self) -> None:
        """See `Orchestrations`."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def _each_below(self, instance: str, verb: str, reason: str) -> list[str]:
        """Do it to every instance that it started, and those started, unless they have ended or it
        was done before. The ids of all of them."""
        ids: list[str] = []
        async for row in self._list({"instanceIdPrefix": f"{instance}:"}):
            id, status = row["instanceId"], row["runtimeStatus"]
            if not is_below(instance, id):
                continue
            ids.append(id)
            rests = status == InstanceStatus.SUSPENDED
            if status in ENDED or (verb == "suspend" if rests else verb == "resume"):
                continue
            _check(await self._verb(id, verb, reason), _THERE | {404, 410}, id)
        return ids

    async def _list(self, filters: dict[str, str]) -> AsyncIterator[dict[str, Any]]:
        """All instances that the filters let through, page by page."""
        token = ""
        while True:
            answer = await self._ask(
                "GET",
                "instances/",
                params={**filters, "showInput": "false"},
                headers={CONTINUATION: token} if token else {},
            )
            _check(answer, _THERE)
            rows = _body(answer)
            if not isinstance(rows, list):
                raise Unavailable("the Durable extension gave no list")
            for row in rows:
                yield row
            token = answer.headers.get(CONTINUATION, "")
            if not token:
                return

    async def _verb(self, instance: str, verb: str, reason: str) -> httpx.Response:
        return await self._ask("POST", f"{_path(instance)}/{verb}", params={"reason": reason})

    async def _ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        if not self._base:
            raise Unavailable("no function with a durableClient binding has been called yet")
        if self._http is None:
            # Without the environment: a proxy has no business on the way to this machine.
            self._http = httpx.AsyncClient(
                timeout=SECONDS, trust_env=False, transport=self._transport
            )
        try:
            return await self._http.request(method, self._base + path, **given)
        except httpx.HTTPError as error:
            raise Unavailable(f"the Durable extension: {type(error).__name__}") from error


def _path(instance: str) -> str:
    return f"instances/{quote(instance, safe='')}"


def _check(answer: httpx.Response, good: frozenset[int], instance: str = "") -> None:
    """Raise what the status means. Bodies are not told: they may hold payloads."""
    status = answer.status_code
    if status in good:
        return
    if status in _GONE:
        raise NotFound(f"instance {instance} is not there, or not in a state for this ({status})")
    if status == 429:
        raise Throttled("the Durable extension is busy", retry_after_ms=_retry_after(answer))
    if status >= 500 or status in (401, 403, 408) or status in _THERE:
        raise Unavailable(f"the Durable extension answered {status}")
    raise StoreError(f"the Durable extension refused the request with {status}")


def _retry_after(answer: httpx.Response) -> int:
    try:
        return max(0, round(float(answer.headers.get("retry-after", "1")) * 1000))
    except ValueError:
        return 1000


def _body(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _ms(time: str) -> int:
    """Epoch ms of an ISO time; .NET writes seven digits of a second, Python reads six."""
    head, dot, rest = time.partition(".")
    digits = rest.rstrip("Zz").split("+")[0]
    moment = datetime.fromisoformat(f"{head.rstrip('Zz')}+00:00")
    return round(moment.timestamp() * 1000) + (int(float(f"0.{digits}") * 1000) if dot else 0)
