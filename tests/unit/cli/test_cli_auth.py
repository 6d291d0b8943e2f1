"""Tokens on the command line: sent by every command, shown by none; `weft token`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_fake_api import FakeApi, Weft
from typer.main import get_command
from typer.testing import CliRunner

from orchestrator.adapters.auth.local_keys import LOCAL, LocalKeys
from orchestrator.adapters.auth.tokens import TokenVerifier, Trusted
from orchestrator.adapters.local.system import SystemClock
from orchestrator.domain.authz import ROLES, Principal, Scope
from orchestrator.local.cli import app
from orchestrator.local.cli_auth import _add_options

SECRET = "eyJ.secret.token"


def run(api: FakeApi | None, *args: str, **env: str) -> Any:
    url = {} if api is None else {"WEFT_URL": api.url}
    return CliRunner(env={**url, **env}).invoke(app, list(args))


@pytest.fixture(autouse=True)
def listing(api: FakeApi) -> None:
    api.on("GET", "/v1/executions", {"items": [], "nextCursor": None})


def test_without_a_token_none_is_sent(api: FakeApi, weft: Weft) -> None:
    assert weft("list").exit_code == 0
    assert not {"Authorization", "X-Weft-Tenant"} & set(api.last("GET").headers)


def test_the_token_is_sent_from_the_option_or_the_environment(api: FakeApi) -> None:
    assert run(api, "list", "--token", SECRET, "--tenant", "acme").exit_code == 0
    assert api.last("GET").headers["Authorization"] == f"Bearer {SECRET}"
    assert api.last("GET").headers["X-Weft-Tenant"] == "acme"
    assert run(api, "list", WEFT_TOKEN=SECRET, WEFT_TENANT="beta").exit_code == 0
    assert api.last("GET").headers["Authorization"] == f"Bearer {SECRET}"
    assert api.last("GET").headers["X-Weft-Tenant"] == "beta"
    assert run(api, "list").exit_code == 0  # and is forgotten after the command
    assert "Authorization" not in api.last("GET").headers


def test_why_goes_along_if_it_is_said(api: FakeApi) -> None:
    api.on("GET", "/v1/executions", {"items": [], "nextCursor": None})
    run(api, "list", WEFT_REASON=" ticket 4711: nötig\n")
    assert api.last("GET").headers["X-Weft-Reason"] == "ticket 4711: n%C3%B6tig"
    run(api, "list")
    assert "X-Weft-Reason" not in api.last("GET").headers


def test_every_command_with_a_url_takes_a_token() -> None:
    root: Any = get_command(app)
    _add_options(root)
    _add_options(root)
    found = 0
    stack = list(root.commands.values())
    while stack:
        command = stack.pop()
        stack += getattr(command, "commands", {}).values()
        names = [param.name for param in command.params if param.param_type_name == "option"]
        if "url" in names:
            found += 1
            assert names.count("token") == names.count("tenant") == 1, command.name
    assert found > 20


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_token_is_never_shown(api: FakeApi, more: list[str]) -> None:
    for args, env in (
        (["list", "--help"], {"WEFT_TOKEN": SECRET}),
        (["list", *more], {"WEFT_TOKEN": SECRET}),
        (["show", "missing", *more], {"WEFT_TOKEN": SECRET}),
        (["list", "--limit", "x", *more], {"WEFT_TOKEN": SECRET}),
        (["list", "--token", f"{SECRET} x", *more], {}),
        (["list", "--token", f"{SECRET}\n", "--url", "http://127.0.0.1:1", *more], {}),
        (["list", "--url", "http://weft.test", *more], {"WEFT_TOKEN": SECRET}),
    ):
        assert SECRET not in run(api, *args, **env).output


@pytest.mark.parametrize("bad", ["", " ", "a b", "a\nb", "é"])
def test_what_is_no_token(api: FakeApi, bad: str) -> None:
    assert run(api, "list", "--token", bad).exit_code == 2
    assert not api.requests


def test_a_token_is_not_sent_where_others_can_read_it(api: FakeApi) -> None:
    got = run(api, "list", "--url", "http://weft.test", "--token", SECRET)
    assert (got.exit_code, "https only" in got.output) == (2, True)


# --- weft token -----------------------------------------------------------------------------------


async def principal(folder: Path, text: str) -> Principal:
    return await TokenVerifier([Trusted(LOCAL, LocalKeys(folder))], clock=SystemClock()).verify(
        text
    )


async def test_token_of_a_role(tmp_path: Path) -> None:
    got = run(None, "token", "--role", "operator", "--tenant", "acme", "--data", str(tmp_path))
    assert got.exit_code == 0
    found = await principal(tmp_path, got.output.strip())
    assert (found.subject, found.tenants) == ("local", ("acme",))
    assert [grant.scopes for grant in found.grants] == [ROLES["operator"]]


async def test_token_of_everything(tmp_path: Path) -> None:
    got = run(
        None, "token", "--role", "viewer", "--role", "beta/admin", "--tenant", "acme",
        "--tenant", "beta", "--subject", "eve", "--group", "team", "--ttl", "30m",
        "--data", str(tmp_path), "--json",
    )  # fmt: skip
    shown = json.loads(got.output)
    assert (shown["tenants"], shown["expiresIn"]) == (["acme", "beta"], 1800)
    found = await principal(tmp_path, shown["token"])
    assert (found.subject, found.groups) == ("eve", {"team"})
    assert {grant.tenant for grant in found.grants if Scope.ADMIN in grant.scopes} == {"beta"}


async def test_token_of_scopes(tmp_path: Path) -> None:
    got = run(None, "token", "--scope", "workflow:read", "--data", str(tmp_path))
    found = await principal(tmp_path, got.output.strip())
    assert found.tenants == ("default",)
    assert [grant.scopes for grant in found.grants] == [{Scope.READ}]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--role", "owner"], "is not known"),
        (["--role", "A/admin"], "is not known"),
        (["--tenant", "A"], "1 to 63"),
        (["--ttl", "soon"], "--ttl"),
        (["--ttl", "0s"], "--ttl"),
        (["--ttl", "366d"], "--ttl"),
        (["--subject", " "], "--subject"),
        (["--scope", "all"], "--scope"),
    ],
)
def test_token_that_cannot_be_made(tmp_path: Path, args: list[str], expected: str) -> None:
    got = run(None, "token", "--data", str(tmp_path), *args)
    assert (got.exit_code, expected in got.output) == (2, True), got.output
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    assert run(None, "token", "--data", str(tmp_path)).exit_code == 0
    (key,) = (tmp_path / "auth").iterdir()
    key.chmod(0o640)
    got = run(None, "token", "--data", str(tmp_path))
    assert (got.exit_code, "chmod 600" in got.output) == (2, True)
