"""Requests to answers. Follows "Common Azure Cosmos DB REST request and response headers".

Every answer carries the request charge, an activity id and a session token; documents carry their
ETag. The account document names this server as its only region. `pkranges` answers 304 to the ETag
it gave out, without which the SDK asks for ever. Databases and containers can be created, so that
the same provisioning code runs here and against an emulator.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import orjson
from aiohttp import web

from tests.wire.cosmos import feeds
from tests.wire.cosmos.counters import Counters
from tests.wire.cosmos.faults import Fault, Faults
from tests.wire.cosmos.requests import Request, classify
from tests.wire.cosmos.state import Account, Container
from tests.wire.cosmos.wire import Answer, Refused, answer, refusal
from tests.wire.cosmos.writes import batch, read, single

MAX_REQUEST_BYTES = 16 * 1024 * 1024  # what the server takes in to be able to refuse it


class CosmosServer:
    """One endpoint. `async with CosmosServer() as server:` and connect to `server.endpoint`."""

    def __init__(self, account: Account | None = None, *, port: int = 0) -> None:
        """`account`: the data, if it is to outlive this server. `port` 0: any free one."""
        self.account = account or Account()
        self.faults = Faults()
        self.counters = Counters()
        self._port = port
        self._requests = itertools.count(1)
        self._hanging: set[asyncio.Task[Any] | None] = set()

    async def __aenter__(self) -> CosmosServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen on the loopback address."""
        app = web.Application(client_max_size=MAX_REQUEST_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections; what hangs is cut."""
        for task in list(self._hanging):
            if task is not None:
                task.cancel()
        await self._runner.cleanup()

    @property
    def endpoint(self) -> str:
        """What `CosmosClient` takes."""
        return f"http://127.0.0.1:{self._port}/"

    async def _serve(self, web_request: web.Request) -> web.StreamResponse:
        body = await web_request.read()
        parts = [
            unquote(part) for part in web_request.raw_path.partition("?")[0].split("/") if part
        ]
        if parts[:1] == ["_test"]:
            return self._test(parts[1:], body)
        request = Request(web_request.method, parts, web_request.headers, body)
        kind = classify(request)
        fault = self.faults.take(kind)
        result = await self._faulty(request, kind, fault)
        if result is None:
            if web_request.transport is not None:
                web_request.transport.close()
            self.counters.note(kind, 0, len(body), 0, 0.0)
            return web.Response(status=500)
        self.counters.note(kind, result.status, len(body), len(result.body), result.charge)
        headers = {
            "content-type": "application/json",
            "x-ms-request-charge": f"{result.charge:.2f}",
            "x-ms-activity-id": f"00000000-0000-0000-0000-{next(self._requests):012}",
            "x-ms-version": "2020-07-15",
            **result.headers,
        }
        return web.Response(status=result.status, body=result.body, headers=headers)

    async def _faulty(self, request: Request, kind: str, fault: Fault | None) -> Answer | None:
        """The answer, with the weather; None: none at all."""
        if fault is None or fault.operation is not None or fault.stale:
            return self._answer(request, kind, fault)
        if fault.applied:
            self._answer(request, kind, None)
        if fault.hang:
            task = asyncio.current_task()
            self._hanging.add(task)
            try:
                await asyncio.Event().wait()
            finally:
                self._hanging.discard(task)
        if fault.drop:
            return None
        return refusal(_as_refused(fault))

    def _answer(self, request: Request, kind: str, fault: Fault | None) -> Answer:
        try:
            return self._dispatch(request, kind, fault)
        except Refused as error:
            return refusal(error)

    def _dispatch(self, request: Request, kind: str, fault: Fault | None) -> Answer:
        parts, headers = request.parts, request.headers
        match kind:
            case "account":
                return self._account_document()
            case "database":
                return self._database(request)
            case "container":
                return self._container(request)
        container = self.account.container(parts[1], parts[3])
        match kind:
            case "pkranges":
                return _pkranges(container, headers)
            case "query":
                content = orjson.loads(request.body)
                result = feeds.query(container, headers, content, self.faults.foreign_rows)
            case "feed":
                result = feeds.change_feed(container, headers)
            case "read":
                result = read(container, request, stale=fault is not None and fault.stale)
            case "batch":
                failing = {fault.operation: _as_refused(fault)} if fault is not None else {}
                result = batch(container, request, failing, self.counters.operations)
            case _:
                result = single(container, request, kind)
                self.counters.operations[kind] += 1
        lsn = container.documents.lsn
        result.headers["x-ms-session-token"] = f"{_session_range(container, headers)}:-1#{lsn}"
        result.headers["lsn"] = str(lsn)
        return result

    # --- the account and its resources ------------------------------------------------------------

    def _account_document(self) -> Answer:
        here = [{"name": "Test", "databaseAccountEndpoint": self.endpoint}]
        return answer(
            {
                "id": "weft-test",
                "_rid": "weft-test",
                "_self": "",
                "writableLocations": here,
                "readableLocations": here,
                "enableMultipleWriteLocations": False,
                "userConsistencyPolicy": {"defaultConsistencyLevel": "Session"},
            }
        )

    def _database(self, request: Request) -> Answer:
        if request.method == "POST":
            name = orjson.loads(request.body)["id"]
            if name in self.account.databases:
                raise Refused(409, "the database exists")
            self.account.create(name)
        else:
            name = request.parts[1]
            if name not in self.account.databases:
                raise Refused(404, "no such database")
            if request.method == "DELETE":
                del self.account.databases[name]
                return Answer(204)
        content = {"id": name, "_rid": f"db-{name}", "_self": f"dbs/{name}/", "_etag": '"1"'}
        return answer(content, status=201 if request.method == "POST" else 200)

    def _container(self, request: Request) -> Answer:
        database = request.parts[1]
        if database not in self.account.databases:
            raise Refused(404, "Owner resource does not exist", sub_status=1003)
        if request.method == "GET":
            return answer(self.account.container(database, request.parts[3]).to_json(), charge=1.0)
        if request.method != "POST":
            raise Refused(501, "containers are only created and read")
        definition = orjson.loads(request.body)
        if definition["id"] in self.account.databases[database]:
            raise Refused(409, "the container exists")
        self.account.create(database, definition)
        created = self.account.container(database, definition["id"])
        return answer(created.to_json(), status=201)

    # --- for tests in other processes -------------------------------------------------------------

    def _test(self, parts: list[str], body: bytes) -> web.Response:
        """`POST faults` adds a rule, `DELETE`-like `POST clear` ends all, `GET counters` counts."""
        match parts:
            case ["faults"]:
                options = orjson.loads(body)
                self.faults.add(*options.pop("kinds", ()), **options)
            case ["clear"]:
                self.faults.clear()
                self.counters.clear()
            case ["counters"]:
                pass
            case _:
                return web.Response(status=404)
        return web.Response(
            body=orjson.dumps(self.counters.to_json()), content_type="application/json"
        )


def _as_refused(fault: Fault) -> Refused:
    error = Refused(fault.status, "as the test wishes", sub_status=fault.sub_status, charge=0.0)
    if fault.retry_after_ms is not None:
        error.headers["x-ms-retry-after-ms"] = str(fault.retry_after_ms)
    return error


def _pkranges(container: Container, headers: Mapping[str, str]) -> Answer:
    """The map; with the ETag of an older one, what came since."""
    ranges = container.ranges
    etag = f'"{ranges.version}"'
    known = headers.get("if-none-match")
    if known == etag:
        return Answer(304, headers={"etag": etag})
    wanted = ranges.newer_than(int(known.strip('"'))) if known else ranges.ranges
    content = {
        "_rid": container.rid,
        "PartitionKeyRanges": [one.to_json() for one in wanted],
        "_count": len(wanted),
    }
    return Answer(200, orjson.dumps(content), 0.0, {"etag": etag})


def _session_range(container: Container, headers: Mapping[str, str]) -> str:
    """The range that a request was served by."""
    key = headers.get("x-ms-documentdb-partitionkey")
    if key is None:
        return headers.get("x-ms-documentdb-partitionkeyrangeid", "0")
    effective = container.ranges.effective_key(orjson.loads(key))
    return next(one.id for one in container.ranges.ranges if one.min <= effective < one.max)
