"""What a person sees first: the help, a list on a narrow terminal, one task of an execution."""

from __future__ import annotations

import io
from typing import Any

import cli_shapes as shapes
import pytest
from cli_fake_api import FakeApi, Weft
from rich.console import Console
from typer.main import get_command

from orchestrator.local import cli
from orchestrator.local.cli_help import PANELS
from orchestrator.local.cli_render import execution_list, table

NOON, LATER = "2026-11-30T12:00:00.000Z", "2026-11-30T12:00:00.003Z"
LONG = "k837873e861316ebab5d51bb116c688d"


def test_every_command_has_its_place_in_the_help() -> None:
    commands: dict[str, Any] = vars(get_command(cli.app))["commands"]
    known = [name for name, command in commands.items() if not command.hidden]
    assert sorted(known) == sorted(name for names in PANELS.values() for name in names)


def test_the_help_begins_with_what_comes_first(offline: Weft) -> None:
    said = offline("--help").stdout
    places = [said.index(f"{panel} ─") for panel in PANELS]
    assert places == sorted(places)
    assert said.index("│ up ") < said.index("│ publish ") < said.index("│ reconcile ")


@pytest.mark.parametrize("command", [["start"], ["bulk", "cancel"], ["deadletters", "retry"]])
def test_a_flag_does_not_look_as_if_it_took_a_value(offline: Weft, command: list[str]) -> None:
    lines = [line for line in offline(*command, "--help").stdout.splitlines() if "--json" in line]
    assert len(lines) == 1
    assert "bool" not in lines[0]


def test_both_lists_take_the_same_times_and_statuses(api: FakeApi, weft: Weft) -> None:
    at = "2026-11-30T12:00:00Z"
    api.on("GET", "/v1/executions", shapes.page())
    api.on("POST", "/v1/executions/bulk", {"id": "b1", "links": {}}, status=202)
    assert weft("list", "--status", "Failed", "--after", at, "--created-before", at).exit_code == 0
    listed = api.requests[-1].query
    assert (listed["status"], listed["createdAfter"], listed["createdBefore"]) == ("FAILED", at, at)
    weft("bulk", "cancel", "--status", "Failed", "--created-after", at, "--before", at)
    found = api.last("POST").json()["filter"]
    assert found == {"status": "FAILED", "createdAfter": at, "createdBefore": at}
    assert weft("bulk", "cancel", "--status", "done").exit_code == 2


def narrow(renderable: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=False).print(renderable)
    return out.getvalue()


def test_a_narrow_terminal_folds_no_id_and_no_status() -> None:
    """What is copied into the next command must be in one piece."""
    text = narrow(execution_list([shapes.execution(LONG, "COMPLETED")]))
    assert LONG in text
    assert "COMPLETED" in text
    assert "pending" in " ".join(text.split())  # and nothing is cut


def test_what_does_not_fit_a_narrow_terminal_is_folded_and_not_cut() -> None:
    wide = "".join(chr(ord("a") + at % 26) for at in range(150))
    text = narrow(table(("id", "more"), [(wide, "z")]))
    assert "".join(text.split("more")[1].replace("z ", "").split()).startswith(wide[:70])
    assert sum(text.count(letter) for letter in "jkq") == sum(wide.count(one) for one in "jkq")


# --- one task -------------------------------------------------------------------------------------

RETRY = {"maxAttempts": 4, "initialIntervalMs": 1, "backoffCoefficient": 2, "maxIntervalMs": 1,
         "jitter": "full"}  # fmt: skip


def one(**more: Any) -> dict[str, Any]:
    attempts = [
        {"attempt": 1, "worker": "w", "startedAt": NOON, "error": shapes.failure()},
        {"attempt": 2, "worker": "w", "startedAt": NOON, "endedAt": LATER, "error": None},
    ]
    view = {"timeoutMs": 1500, "retry": RETRY, "attempts": attempts, "item": None, **more}
    return {**shapes.task("pack"), **view}


def test_one_task_is_shown_with_output_and_attempts(api: FakeApi, weft: Weft) -> None:
    api.on("GET", "/v1/executions/e1/tasks/pack", one(output={"box": 7}))
    lines = [" ".join(line.split()) for line in weft("show", "e1", "pack").stdout.splitlines()]
    assert 'output {"box": 7}' in lines
    assert "retry up to 4 attempts, each at most 1.5 s" in lines
    assert "1 2026-11-30 12:00:00 w charge: ConnectionError: refused" in lines
    assert "2 2026-11-30 12:00:00 3 ms w" in lines


def test_one_item_of_a_map_is_named_with_brackets(api: FakeApi, weft: Weft) -> None:
    api.on("GET", "/v1/executions/e1/tasks/pack", one(item=3))
    assert "pack[3]" in weft("show", "e1", "pack[3]").stdout
    assert api.requests[-1].query["item"] == "3"
    assert '"item": 3' in weft("show", "e1", "pack[3]", "--json").stdout
    assert weft("show", "e1", "nope").exit_code == 3


def test_a_map_does_not_claim_the_time_of_its_last_step(api: FakeApi, weft: Weft) -> None:
    """Its `startedAt` is when the results were put together, long after the first item."""
    progress = {"count": 9, "queued": 0, "completed": 9, "failed": 0}
    api.on("GET", "/v1/executions/e1", shapes.execution())
    api.on("GET", "/v1/executions/e1/tasks", shapes.page(shapes.task("a", map=progress)))
    assert weft("show", "e1").stdout.splitlines()[-1].split() == [
        "a", "activity", "COMPLETED", "1", "9/9", "items"
    ]  # fmt: skip


# --- errors ---------------------------------------------------------------------------------------


def refused(api: FakeApi, weft: Weft, message: str, *details: dict[str, str]) -> list[str]:
    answer = {"error": {"code": "INVALID", "message": message, "details": list(details)}}
    api.on("GET", "/v1/executions/e1/history", answer, status=422)
    return weft("history", "e1").stderr.splitlines()


def test_an_error_says_nothing_twice(api: FakeApi, weft: Weft) -> None:
    cron = {"field": "$.cron", "message": "61 is no minute", "code": "BAD_CRON", "hint": "0 to 59"}
    zone = {"field": "$.zone", "message": "no zone", "code": "BAD_ZONE", "hint": ""}
    one = refused(api, weft, "1 problem: $.cron: 61 is no minute", cron)
    assert one == [
        "error INVALID: 1 problem: $.cron: 61 is no minute  [BAD_CRON]",
        "    hint: 0 to 59",
    ]
    two = refused(api, weft, "2 problems, the first: $.cron: 61 is no minute", cron, zone)
    assert two[0] == "error INVALID: 2 problems"
    assert [line for line in two if "61 is no minute" in line] == [
        "  $.cron: 61 is no minute  [BAD_CRON]"
    ]
    assert "  $.zone: no zone  [BAD_ZONE]" in two


def test_an_error_keeps_a_place_that_its_message_does_not_name(api: FakeApi, weft: Weft) -> None:
    lines = refused(api, weft, "no workflow", {"field": "$.workflow", "message": "no workflow"})
    assert lines == ["error INVALID: no workflow", "  $.workflow: here"]
    near = {"field": "$.name", "message": "no x", "hint": "did you mean y?"}
    assert refused(api, weft, "no x at $.name (did you mean y?)", near) == [
        "error INVALID: no x at $.name (did you mean y?)"
    ]
