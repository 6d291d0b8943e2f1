"""`--token` and `--tenant` of every command that talks to a server, and `weft token`, which makes
tokens for a platform on this machine.

The two options are added to each command that has `--url`, so that no command can forget them. A
token is sent and never shown: not in help, errors or output.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from orchestrator.domain.authz import ROLES, Scope
from orchestrator.domain.durations import DurationError, parse_duration
from orchestrator.domain.identity import is_tenant
from orchestrator.local import cli_credentials
from orchestrator.local.cli_faults import DONE, WeftGroup, print_json, usage
from orchestrator.local.cli_options import AsJson

MAX_TTL_MS: Final = 365 * 24 * 3_600_000


class AuthGroup(WeftGroup):
    """The command group; see the module."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run one command line and leave with its exit code (`SystemExit`)."""
        cli_credentials.forget()
        _add_options(self)
        return super().main(*args, **extra)


def _keep_token(value: str | None) -> None:
    cli_credentials.keep(cli_credentials.TOKEN, value)


def _keep_tenant(value: str | None) -> None:
    cli_credentials.keep(cli_credentials.TENANT, value)


def _carrier(
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="WEFT_TOKEN",
            callback=_keep_token,
            expose_value=False,
            help="Bearer token. Better in WEFT_TOKEN: other users see command lines.",
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            envvar="WEFT_TENANT",
            callback=_keep_tenant,
            expose_value=False,
            help="Which tenant, if the token is for several.",
        ),
    ] = None,
) -> None:
    """Has the options that other commands are given."""


@cache
def _options() -> list[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(_carrier)
    return [param for param in get_command(app).params if param.name in ("token", "tenant")]


def _add_options(command: Any) -> None:
    for inner in getattr(command, "commands", {}).values():
        _add_options(inner)
    names = {param.name for param in command.params}
    if "url" in names and "token" not in names:
        command.params.extend(_options())


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("token")(token)


def token(
    role: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(ROLES)}, or TENANT/ROLE. May be given more than once."),
    ] = None,
    scope: Annotated[
        list[Scope] | None, typer.Option(help="Instead of a role, or to lend less of it.")
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="Whose member it is; `default` if left out.")
    ] = None,
    subject: Annotated[str, typer.Option(help="Who it is; stands in the audit.")] = "local",
    group: Annotated[list[str] | None, typer.Option(help="Group of a stored grant.")] = None,
    ttl: Annotated[str, typer.Option(metavar="DURATION", help="How long it is valid.")] = "1h",
    data: Annotated[Path, typer.Option(help="Data folder of the platform.")] = Path(".weft"),
    as_json: AsJson = False,
) -> int:
    """Make a token for a platform on this machine, to try roles."""
    # Imported here: cryptography is slow to import, and no other command needs it.
    from orchestrator.adapters.auth.local_keys import LocalKeyError, sign

    tenants = tenant or ["default"]
    claims: dict[str, Any] = {"sub": subject, "tenants": tenants}
    claims["roles"] = [_role(one) for one in role or ()]
    claims["scp"] = " ".join(scope or ())
    claims["groups"] = group or []
    for name in tenants:
        if not is_tenant(name):
            raise usage(f"--tenant {name!r} must be 1 to 63 of a-z, 0-9 and -.")
    if not subject.strip() or not subject.isprintable():
        raise usage("--subject must be printable and not empty.")
    try:
        lasts = parse_duration(ttl)
    except DurationError as error:
        raise usage(f"--ttl: {error.message}.") from error
    if not 1_000 <= lasts <= MAX_TTL_MS:
        raise usage("--ttl must be from 1s to 365d.")
    try:
        text = sign(data, claims, now_s=int(time.time()), ttl_s=lasts // 1000)
    except LocalKeyError as error:
        raise usage(f"{error}.") from error
    except OSError as error:
        raise usage(f"Cannot use the key in {str(data)!r}: {error.strerror}.") from error
    if as_json:
        print_json({"token": text, "tenants": tenants, "expiresIn": lasts // 1000})
    else:
        typer.echo(text)
    return DONE


def _role(text: str) -> str:
    where, slash, name = text.rpartition("/")
    if name not in ROLES or (slash and not is_tenant(where)):
        raise usage(f"--role {text!r} is not known; use {', '.join(ROLES)}, or TENANT/ROLE.")
    return text
