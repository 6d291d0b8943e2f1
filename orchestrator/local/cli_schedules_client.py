"""The schedules' part of the API, for the command line."""

from __future__ import annotations

from typing import Any

from orchestrator.local.cli_client import Client, header, segment


class SchedulesClient(Client):
    """A `Client` that also knows schedules."""

    def schedules(self, *, limit: int) -> dict[str, Any]:
        """At most `limit` schedules, by name, as one page."""
        return self._collect("/v1/schedules", {}, limit)

    def schedule(self, name: str) -> dict[str, Any]:
        """One schedule."""
        return self._call("GET", _schedule(name))

    def put_schedule(
        self,
        source: bytes,
        *,
        content_type: str,
        name: str | None = None,
        revision: int | None = None,
    ) -> dict[str, Any]:
        """Create a schedule as it was written; with `name`, replace that one's definition (if it
        has this revision)."""
        headers = {"Content-Type": content_type}
        if revision is not None:
            headers["If-Match"] = f'"{revision}"'
        method, path = ("POST", "/v1/schedules") if name is None else ("PUT", _schedule(name))
        return self._call(method, path, content=source, headers=headers)

    def act_on_schedule(self, name: str, verb: str, *, key: str | None = None) -> dict[str, Any]:
        """Pause, resume or run; the schedule after it, or what was started."""
        headers = {} if key is None else {b"Idempotency-Key": header(key)}
        return self._call("POST", f"{_schedule(name)}/{verb}", headers=headers)

    def delete_schedule(self, name: str) -> None:
        """Remove a schedule."""
        self._call("DELETE", _schedule(name))

    def schedule_history(self, name: str) -> dict[str, Any]:
        """What happened to its last ticks, newest first, as one page."""
        return self._collect(f"{_schedule(name)}/history", {}, None)


def _schedule(name: str) -> str:
    return f"/v1/schedules/{segment(name, 'schedule name')}"
