"""`weft workflows` and `weft --version`."""

from __future__ import annotations

import json
from typing import Any

import cli_shapes as shapes
from cli_fake_api import FakeApi, Weft

from orchestrator.engine import views

PATH = "/v1/workflows/census"


def workflow(name: str = "census", **more: Any) -> dict[str, Any]:
    values = {"name": name, "latest_version": 2, "created_at": shapes.AT, "updated_at": shapes.AT}
    return shapes.dump(views.WorkflowSummary.model_validate({**values, **more}))


def version(number: int) -> dict[str, Any]:
    return shapes.dump(
        views.VersionSummary(
            name="census", version=number, hash=f"{number:064x}", published_at=shapes.AT,
            published_by="eve",
        )
    )  # fmt: skip


def test_list_shows_version_status_and_description(api: FakeApi, weft: Weft) -> None:
    items = [workflow(description="counts\n\x1b[2Jfiles"), workflow("old", archived=True)]
    api.on("GET", "/v1/workflows", shapes.page(*items, cursor="more"))
    result = weft("workflows", "list", "--limit", "2")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    _, first, second, more = result.stdout.splitlines()
    assert first.split()[:3] == ["census", "2", "active"]
    assert second.split()[:3] == ["old", "2", "archived"]
    assert "--limit" in more
    assert json.loads(weft("workflows", "list", "--limit", "2", "--json").stdout)["items"] == items
    api.on("GET", "/v1/workflows", shapes.page())
    assert "weft publish" in weft("workflows", "list").stdout


def test_show_lists_the_versions_newest_first(api: FakeApi, weft: Weft) -> None:
    api.on("GET", PATH, workflow())
    api.on("GET", f"{PATH}/versions", shapes.page(version(1), version(2)))
    lines = weft("workflows", "show", "census").stdout.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["2", "1"]
    assert "eve" in lines[-1]
    shown = json.loads(weft("workflows", "show", "census", "--json").stdout)
    assert shown == {**workflow(), "versions": [version(1), version(2)]}
    assert weft("workflows", "show", "nope").exit_code == 3


def test_show_of_a_version_prints_a_definition_that_can_be_published(
    api: FakeApi, weft: Weft
) -> None:
    definition = {"name": "census", "tasks": {"a": {"type": "wait", "duration": "1s"}}}
    view = {**version(1), "archived": False, "definition": definition}
    api.on("GET", f"{PATH}/versions/1", view)
    assert json.loads(weft("workflows", "show", "census", "--version", "1").stdout) == definition
    whole = weft("workflows", "show", "census", "--version", "1", "--json").stdout
    assert json.loads(whole) == view


def test_archive_says_so(api: FakeApi, weft: Weft) -> None:
    api.on("DELETE", PATH, {}, status=200)
    assert weft("workflows", "archive", "census").stdout == "archived census\n"
    assert api.last("DELETE").path == PATH
    said = json.loads(weft("workflows", "archive", "census", "--json").stdout)
    assert said == {"name": "census", "archived": True}


def test_version_is_that_of_the_package(offline: Weft) -> None:
    from importlib.metadata import version as installed

    result = offline("--version")
    assert (result.exit_code, result.stdout) == (0, f"weft {installed('weft')}\n")
