"""The API as the command line sees it: plain methods, JSON in and out, `Fault` on any trouble.

Here every answer is turned into an exit code once: 404 is 3, other refusals are 2, and a server
that is not there, cannot answer, or is not Weft at all is 4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from orchestrator.local import cli_credentials
from orchestrator.local.cli_faults import NOT_FOUND, UNREACHABLE, USAGE, Fault, usage

DEFAULT_URL: Final = "http://127.0.0.1:7071"
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 60.0
BROKEN_READS: Final = 3  # times that a read is asked again
NO_CONTENT: Final = 204
PAGE_SIZE: Final = 200  # the most that the API gives at once
SLOW: Final = httpx.Timeout(230.0, connect=CONNECT_SECONDS)  # Azure ends an answer then


class Client:
    """A connection to one server. Use as a context manager; not for several threads."""

    def __init__(self, url: str) -> None:
        """`url` is the server's root, such as `http://127.0.0.1:7071`. Raises `Fault` (usage)."""
        try:
            base = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise usage(f"--url {url!r} is not a URL: {error}.") from error
        if base.scheme not in ("http", "https") or not base.host:
            raise usage(f"--url {url!r} is not an http(s) URL; expected one like {DEFAULT_URL}.")
        self.url = str(base)
        # A proxy from the environment is right for a server elsewhere, never for this machine.
        self._http = httpx.Client(
            base_url=base,
            headers=cli_credentials.headers(base),
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            trust_env=not cli_credentials.is_loopback(base.host),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.close()

    # --- workflows --------------------------------------------------------------------------------

    def publish(self, source: bytes, *, content_type: str, dry_run: bool) -> dict[str, Any]:
        """Publish a definition as it was written, so that the server judges the real text."""
        return self._call(
            "POST",
            "/v1/workflows",
            params={"dryRun": "true"} if dry_run else {},
            content=source,
            headers={"Content-Type": content_type},
        )

    def start(
        self, workflow: str, request: Mapping[str, Any], *, key: str | None = None
    ) -> dict[str, Any]:
        """Start an execution; `request`: see `cli_input`. With `key`, the same call again
        gives the same execution."""
        headers = [(b"Content-Type", b"application/json")]
        if key is not None:
            headers.append((b"Idempotency-Key", header(key)))
        return self._call(
            "POST",
            f"/v1/workflows/{segment(workflow, 'workflow name')}/start",
            content=json.dumps(request, allow_nan=False).encode(),
            headers=headers,
        )

    # --- executions -------------------------------------------------------------------------------

    def execution(self, id: str, *, wait_ms: int = 0) -> dict[str, Any]:
        """One execution; with `wait_ms`, the server answers at its end or after that time."""
        return self._call(
            "GET",
            f"/v1/executions/{segment(id, 'execution id')}",
            params={"wait": f"{wait_ms}ms"} if wait_ms else {},
            timeout=httpx.Timeout(ANSWER_SECONDS + wait_ms / 1000, connect=CONNECT_SECONDS),
        )

    def executions(self, filters: Mapping[str, str], *, limit: int) -> dict[str, Any]:
        """At most `limit` executions, newest first, as one page."""
        return self._collect("/v1/executions", filters, limit)

    def tasks(self, id: str, *, limit: int | None = None) -> dict[str, Any]:
        """All tasks of an execution (or the first `limit`), in definition order, as one page."""
        return self._collect(f"/v1/executions/{segment(id, 'execution id')}/tasks", {}, limit)

    def history(self, id: str) -> dict[str, Any]:
        """All events of an execution, oldest first, as one page."""
        path = f"/v1/executions/{segment(id, 'execution id')}/history"
        return self._collect(path, {"include": "orchestration"}, None)

    def verify(self, id: str) -> dict[str, Any]:
        """Whether the history folds to the stored state (a `VerifyReport`)."""
        return self._call("GET", f"/v1/executions/{segment(id, 'execution id')}/verify")

    def act(self, id: str, verb: str, *, reason: str = "", **more: Any) -> dict[str, Any]:
        """Pause, resume, cancel or terminate an execution; the execution after it."""
        body = {"reason": reason, **more} if reason else more
        path = f"/v1/executions/{segment(id, 'execution id')}/{verb}"
        return self._call("POST", path, json=body)

    def replay(
        self, id: str, request: Mapping[str, Any], *, key: str | None = None
    ) -> dict[str, Any]:
        """Run an ended execution again, as a new one."""
        headers = {} if key is None else {b"Idempotency-Key": header(key)}
        path = f"/v1/executions/{segment(id, 'execution id')}/replay"
        return self._call("POST", path, json=dict(request), headers=headers)

    def signal(self, id: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a signal; `request` has `name` and may have `payload` and `id`."""
        path = f"/v1/executions/{segment(id, 'execution id')}/signals"
        return self._call("POST", path, json=dict(request))

    def signals(self, id: str) -> dict[str, Any]:
        """All signals of an execution, oldest first, as one page."""
        return self._collect(f"/v1/executions/{segment(id, 'execution id')}/signals", {}, None)

    # --- dead letters -----------------------------------------------------------------------------

    def dead_letters(self, filters: Mapping[str, str], *, limit: int) -> dict[str, Any]:
        """At most `limit` dead letters, newest first, as one page."""
        return self._collect("/v1/deadletters", filters, limit)

    def dead_letter(self, id: str) -> dict[str, Any]:
        """One dead letter."""
        return self._call("GET", f"/v1/deadletters/{segment(id, 'dead letter id')}")

    def resolve(self, id: str, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Retry, skip, fail or discard a dead letter; the letter after it."""
        path = f"/v1/deadletters/{segment(id, 'dead letter id')}/{verb}"
        return self._call("POST", path, json=dict(body), timeout=SLOW)

    def resolve_many(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A bulk action; what was done."""
        return self._call("POST", "/v1/deadletters/bulk", json=dict(body), timeout=SLOW)

    # --- circuit breakers -------------------------------------------------------------------------

    def breakers(self) -> dict[str, Any]:
        """All circuit breakers with a record."""
        return self._call("GET", "/v1/breakers")

    def breaker(self, dependency: str) -> dict[str, Any]:
        """One of them."""
        return self._call("GET", f"/v1/breakers/{segment(dependency, 'dependency')}")

    def set_breaker(self, dependency: str, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Open or close one; the breaker after it."""
        path = f"/v1/breakers/{segment(dependency, 'dependency')}/{verb}"
        return self._call("POST", path, json=dict(body))

    # --- events -----------------------------------------------------------------------------------

    def triggers(self, *, limit: int) -> dict[str, Any]:
        """At most `limit` event triggers by name, as one page."""
        return self._collect("/v1/triggers", {}, limit)

    def trigger(self, name: str) -> dict[str, Any]:
        """One event trigger."""
        return self._call("GET", _trigger(name))

    def write_trigger(
        self, source: bytes, *, content_type: str, name: str | None = None
    ) -> dict[str, Any]:
        """Create a trigger as it was written; with `name`, create or replace that one."""
        method, path = ("POST", "/v1/triggers") if name is None else ("PUT", _trigger(name))
        return self._call(method, path, content=source, headers={"Content-Type": content_type})

    def act_on_trigger(self, name: str, verb: str) -> dict[str, Any]:
        """Pause or resume a trigger; the trigger after it."""
        return self._call("POST", f"{_trigger(name)}/{verb}")

    def delete_trigger(self, name: str) -> None:
        """Delete a trigger."""
        self._call("DELETE", _trigger(name))

    def test_trigger(self, name: str, event: bytes) -> dict[str, Any]:
        """What a trigger would do with an event."""
        headers = {"Content-Type": "application/json"}
        return self._call("POST", f"{_trigger(name)}/test", content=event, headers=headers)

    def send_events(self, source: bytes, *, content_type: str) -> dict[str, Any]:
        """Send events; what became of each."""
        headers = {"Content-Type": content_type}
        return self._call("POST", "/v1/events", content=source, headers=headers, timeout=SLOW)

    # --- plumbing ---------------------------------------------------------------------------------

    def _collect(self, path: str, filters: Mapping[str, str], limit: int | None) -> dict[str, Any]:
        """Pages put together until `limit` or the end."""
        items: list[Any] = []
        cursor: str | None = None
        for page in self._pages(path, filters, limit):
            items.extend(page["items"])
            cursor = page.get("nextCursor")
            if limit is not None and len(items) >= limit:
                break
        return {"items": items, "nextCursor": cursor}

    def _pages(
        self, path: str, filters: Mapping[str, str], limit: int | None
    ) -> Iterator[dict[str, Any]]:
        left = limit
        params = dict(filters)
        while True:
            params["limit"] = str(PAGE_SIZE if left is None else min(PAGE_SIZE, left))
            page = self._call("GET", path, params=params)
            if not isinstance(page.get("items"), list):
                raise self._stranger()
            yield page
            if left is not None:
                left -= len(page["items"])
            if not page.get("nextCursor"):
                return
            params["cursor"] = page["nextCursor"]

    def _answer(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        try:
            return self._request(method, path, **kwargs)
        except httpx.TimeoutException as error:
            raise Fault(
                "TIMEOUT", f"{self.url} did not answer in time.", exit_code=UNREACHABLE
            ) from error
        except httpx.HTTPError as error:
            raise Fault(
                "UNREACHABLE",
                f"No server answers at {self.url} ({error}). Start one with `weft up`, or name "
                "another with --url or WEFT_URL.",
                exit_code=UNREACHABLE,
            ) from error

    def _call(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        response = self._answer(method, path, **kwargs)
        if response.status_code == NO_CONTENT:
            return {}
        try:
            body = response.json()
        except ValueError as error:
            raise self._stranger(response.status_code) from error
        if response.is_success and isinstance(body, dict):
            return body
        raise self._refusal(response, body)

    def _request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        """A read whose connection breaks is asked again: of several workers one may have died, and
        the next one answers. A write is not, its outcome is unknown."""
        for _ in range(BROKEN_READS if method == "GET" else 0):
            try:
                return self._http.request(method, path, **kwargs)
            except (httpx.RemoteProtocolError, httpx.ReadError):
                continue
        return self._http.request(method, path, **kwargs)

    def _refusal(self, response: httpx.Response, body: Any) -> Fault:
        error = body.get("error") if isinstance(body, dict) else None
        if not isinstance(error, dict) or "code" not in error:
            return self._stranger(response.status_code)
        status = response.status_code
        if status == 404:
            exit_code = NOT_FOUND
        elif status == 429 or status >= 500:
            exit_code = UNREACHABLE
        else:
            exit_code = USAGE
        details = error.get("details") or []
        return Fault(
            str(error["code"]),
            str(error.get("message", "")),
            exit_code=exit_code,
            details=[detail for detail in details if isinstance(detail, dict)],
            trace_id=error.get("traceId"),
        )

    def _stranger(self, status: int | None = None) -> Fault:
        seen = f" (status {status})" if status is not None else ""
        return Fault(
            "NOT_WEFT",
            f"{self.url} answers, but not like a Weft server{seen}. Check --url or WEFT_URL.",
            exit_code=UNREACHABLE,
        )


def _trigger(name: str) -> str:
    return f"/v1/triggers/{segment(name, 'trigger name')}"


def segment(value: str, what: str) -> str:
    """`value` as one part of a path. Dots alone would climb it."""
    if not value or set(value) == {"."}:
        raise usage(f"{value!r} is not a valid {what}.")
    try:
        return quote(value, safe="")
    except UnicodeEncodeError as error:
        raise usage(f"{value!r} is not a valid {what}: it is not valid UTF-8.") from error


def header(value: str) -> bytes:
    """`value` as a header, in UTF-8. A line break would end the header and begin another."""
    if not value.strip() or any(char < " " or char == "\x7f" for char in value):
        raise usage("--key must not be empty or hold control characters.")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise usage("--key is not valid UTF-8.") from error
