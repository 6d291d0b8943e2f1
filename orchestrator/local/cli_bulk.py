"""`weft bulk`: one action on many executions; the server does it by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from orchestrator.local.cli_client import Client, header
from orchestrator.local.cli_control import Reason
from orchestrator.local.cli_faults import DONE, FAILED, console, print_json, printable
from orchestrator.local.cli_options import (
    DEFAULT_URL,
    AsJson,
    CreatedAfter,
    CreatedBefore,
    Status,
    Url,
)
from orchestrator.local.cli_render import emit, status_text

WAIT_MS: Final = 2_000  # between two lines
ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
SHOWN_REFUSALS: Final = 50

bulk = typer.Typer(
    name="bulk",
    help="One action on all executions that the filters find; the server does it by itself.",
    no_args_is_help=True,
)

Wait = Annotated[
    bool, typer.Option("--wait", help="Follow it to its end; exit code 1 if any was refused.")
]
Key = Annotated[
    str | None, typer.Option(help="Idempotency key: the same call again starts nothing new.")
]
Workflow = Annotated[str | None, typer.Option(help="Only of this workflow.")]
Tag = Annotated[str | None, typer.Option(metavar="KEY=VALUE", help="Only with this tag.")]
Owner = Annotated[str | None, typer.Option(help="Only those that this person or program started.")]
Limit = Annotated[int | None, typer.Option(min=1, max=1_000_000, help="How many at most.")]


class BulkClient(Client):
    """A `Client` that also knows bulk operations."""

    def on_executions(self, body: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Submit one about executions; the execution that does it."""
        return self._submit("/v1/executions/bulk", body, key, {})

    def on_letters(self, body: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Submit one about dead letters; the execution that does it."""
        return self._submit("/v1/deadletters/bulk", body, key, {b"Prefer": b"respond-async"})

    def _submit(
        self, path: str, body: Mapping[str, Any], key: str | None, headers: dict[bytes, bytes]
    ) -> dict[str, Any]:
        if key is not None:
            headers[b"Idempotency-Key"] = header(key)
        return self._call("POST", path, json=dict(body), headers=headers)


def _command(action: str, text: str) -> Callable[..., int]:
    def command(
        workflow: Workflow = None,
        status: Status = None,
        tag: Tag = None,
        owner: Owner = None,
        created_after: CreatedAfter = None,
        created_before: CreatedBefore = None,
        reason: Reason = "",
        limit: Limit = None,
        key: Key = None,
        wait: Wait = False,
        url: Url = DEFAULT_URL,
        as_json: AsJson = False,
    ) -> int:
        found = {
            "workflow": workflow,
            "status": None if status is None else str(status).upper(),
            "tag": tag,
            "owner": owner,
            "createdAfter": created_after,
            "createdBefore": created_before,
        }
        filter = {name: value for name, value in found.items() if value is not None}
        body: dict[str, Any] = {"action": action, "filter": filter, "reason": reason}
        if limit is not None:
            body["limit"] = limit
        with BulkClient(url) as client:
            started = client.on_executions(body, key=key)
            return follow(client, started, wait=wait, as_json=as_json)

    command.__doc__ = text
    return command


for _action, _text in (
    ("cancel", "End them; what still runs does not count any more."),
    ("pause", "Start nothing new of them until they are resumed."),
    ("resume", "Let paused ones go on."),
    ("retry", "Retry all that is dead in failed ones."),
    ("terminate", "End them now, whatever they are doing, also undoing."),
):
    bulk.command(_action)(_command(_action, _text))


def follow(client: Client, started: Mapping[str, Any], *, wait: bool, as_json: bool) -> int:
    """Say what was started; with `wait`, how far it is until it has ended. The exit code."""
    id = started["id"]
    if not wait:
        if as_json:
            print_json(started)
        else:
            emit(console(), Text(printable(f"{id}  accepted; weft watch {id}")))
        return DONE
    told = ""
    while True:
        view = client.execution(id, wait_ms=WAIT_MS)
        if view["status"] in ENDED:
            break
        line = _progress(view)
        if line != told and not as_json:
            emit(console(), Text(line))
        told = line
    if as_json:
        print_json(view)
    else:
        _show(view)
    return FAILED if view["status"] != "COMPLETED" or view["output"]["refused"] else DONE


def _progress(view: Mapping[str, Any]) -> str:
    shown = (view.get("orchestration") or {}).get("customStatus")
    if not isinstance(shown, dict):
        return f"{view['status']}"
    return f"{shown['done']} done, {shown['refused']} refused, goes on"


def _show(view: Mapping[str, Any]) -> None:
    out = console()
    result = view["output"]
    if not isinstance(result, dict):
        line = Text(printable(f"{view['id']}  ")).append_text(status_text(view["status"]))
        message = (view.get("error") or {}).get("message", "")
        emit(out, line.append(printable(f"  {message}" if message else "")))
        return
    more = "; there is more" if result["more"] else ""
    emit(out, Text(f"{result['done']} done, {result['refused']} refused{more}"))
    for one in result["refusals"][:SHOWN_REFUSALS]:
        emit(out, Text(printable(f"  {one['id']}: {one['code']} {one['message']}")))
    if result["refused"] > SHOWN_REFUSALS:
        emit(out, Text(printable(f"  … see weft show {view['id']} --json"), "dim"))


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(bulk)
