"""Commands that need no server: `up` is one, `schema` and `validate` use the domain directly."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from orchestrator.domain.errors import WeftError
from orchestrator.local import cli_input
from orchestrator.local.cli_faults import (
    DONE,
    FAILED,
    Fault,
    console,
    finding_lines,
    print_json,
    printable,
    usage,
)
from orchestrator.local.cli_render import emit


def up(*, data: Path, port: int, workers: int, address: str, as_json: bool) -> int:
    """Run the platform until it is told to stop; the exit code. With `as_json`, one line
    `{"url": …, "data": …}` on stdout says that it is ready; logs go to stderr."""
    from activities.errors import RegistrationError
    from orchestrator.local import host
    from orchestrator.ports import StoreError, TransportError
    from orchestrator.settings import SettingsError

    def ready(url: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"url": url, "data": str(data)}) + "\n")
        else:
            out = console()
            emit(out, Text("Weft is up at ").append(url, "bold"))
            emit(out, Text(f"API description {url}/docs, data in {data}; Ctrl-C stops it.", "dim"))
        sys.stdout.flush()

    try:
        return host.up(data, port, workers, ready, address=address)
    except host.PortInUse as error:
        raise usage(f"{error}; --port 0 takes any free one.") from error
    except SettingsError as error:
        raise usage(str(error)) from error
    except (host.HostError, RegistrationError, StoreError, TransportError) as error:
        raise Fault("NOT_STARTED", str(error), exit_code=FAILED) from error
    except OSError as error:
        raise usage(f"Cannot run with data in {str(data)!r}: {error}.") from error


def schema(output: Path | None, *, as_json: bool) -> int:
    """Write the JSON Schema of a definition to `output` or stdout. It is JSON either way."""
    from orchestrator.domain.schema import definition_schema

    text = json.dumps(definition_schema(), indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
        return DONE
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise usage(f"Cannot write {str(output)!r}: {error.strerror}.") from error
    if as_json:
        print_json({"output": str(output)})
    else:
        emit(console(), Text(f"wrote {output}"))
    return DONE


def validate(file: str, *, as_json: bool) -> int:
    """Check a definition with the rules of the server, and the activities and code workflows found
    here. FAILED and the list of all problems if there are any."""
    from activities.code.registry import default_code_registry
    from activities.errors import RegistrationError
    from activities.registry import default_registry, discover
    from orchestrator.domain import validation
    from orchestrator.domain.parsing import parse

    source = cli_input.read_file(file)
    try:
        discover()
    except RegistrationError as error:
        raise Fault("ACTIVITIES_NOT_LOADED", str(error), exit_code=FAILED) from error
    found: list[dict[str, Any]] = []
    name = None
    try:
        raw = parse(source, cli_input.kind(file, source))
        code = default_code_registry()
        valid = validation.validate(
            raw,
            activities=default_registry().names(),
            orchestrations={name: code.versions(name) for name in code.names()},
        )
        name = valid.definition.name
    except WeftError as error:
        found = [asdict(detail) for detail in error.details] or [
            {"field": "$", "message": error.message, "code": error.code, "hint": ""}
        ]
    if as_json:
        print_json({"valid": not found, "name": name, "problems": found})
    elif not found:
        emit(console(), Text("valid", "green").append(f": {printable(name)}", "default"))
    else:
        out = console()
        count = f"{len(found)} problem{'' if len(found) == 1 else 's'}"
        emit(out, Text(count, "bold red").append(f" in {printable(file)}", "not bold default"))
        for line in finding_lines(found):
            emit(out, line)
    return FAILED if found else DONE
