"""Commands that need no server: `up` is one, `schema` and `validate` use the domain directly."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.text import Text

from orchestrator.local.cli_faults import DONE, console, print_json, usage
from orchestrator.local.cli_render import emit


def up(*, data: Path, port: int, workers: int, as_json: bool) -> int:
    """Run the platform until it is told to stop; the exit code. With `as_json`, one line
    `{"url": …, "data": …}` on stdout says that it is ready; logs go to stderr."""
    from orchestrator.local import host

    def ready(url: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"url": url, "data": str(data)}) + "\n")
        else:
            out = console()
            emit(out, Text("Weft is up at ").append(url, "bold"))
            emit(out, Text(f"API description {url}/docs, data in {data}; Ctrl-C stops it.", "dim"))
        sys.stdout.flush()

    return host.up(data, port, workers, ready)


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
