"""What may go wrong for a user of the command line, and how it is told.

One exception for every expected trouble, one place that prints it, one table of exit codes.
Without it, each command would end a user's mistake with a traceback and the exit code 1, and a
script could not tell a failed execution from a typing error.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

DONE: Final = 0
FAILED: Final = 1  # the execution failed; validate or verify found problems
USAGE: Final = 2  # wrong command line, or a request that the server refuses
NOT_FOUND: Final = 3
UNREACHABLE: Final = 4  # no server there, or one that cannot answer (429, 5xx)
INTERRUPTED: Final = 130  # Ctrl-C; what shells expect

UNBOUNDED_WIDTH: Final = 100_000
"""Columns of a pipe: nothing may be cut there. Rich would assume 80."""


class Fault(Exception):
    """An expected trouble, shaped like the API's error envelope.

    `details` are mappings with `field`, `message` and perhaps `code` and `hint`.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        exit_code: int = USAGE,
        details: Sequence[Mapping[str, Any]] = (),
        trace_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.exit_code = exit_code
        self.details = tuple(details)
        self.trace_id = trace_id

    def envelope(self) -> dict[str, Any]:
        """The error as the API shapes it."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "details": [dict(detail) for detail in self.details],
                "traceId": self.trace_id,
            }
        }


def usage(message: str, **kwargs: Any) -> Fault:
    """A mistake on the command line, found before anything was sent."""
    return Fault("USAGE", message, exit_code=USAGE, **kwargs)


def console(stream: TextIO | None = None, *, stderr: bool = False) -> Console:
    """A console on today's stdout or stderr: colours on a terminal only, and no folding at 80
    columns in a pipe."""
    file = stream or (sys.stderr if stderr else sys.stdout)
    width = None if file.isatty() else UNBOUNDED_WIDTH
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """`value` as JSON on stdout. Escaped to ASCII: it must survive every encoding, and lone
    surrogates in user data."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def printable(text: object) -> str:
    """`text` with control characters shown, not obeyed: an activity's error message could
    otherwise repaint the terminal. Lone surrogates become U+FFFD."""
    clean = str(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(
        char
        if char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs"
        else repr(char)[1:-1]
        for char in clean
    )


def finding_lines(details: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Each finding with its path, message, code and hint, one or two lines each."""
    lines: list[Text] = []
    for detail in details:
        line = Text("  ")
        if detail.get("field"):
            line.append(printable(detail["field"]), "bold").append(": ")
        line.append(printable(detail.get("message", "")))
        if detail.get("code"):
            line.append(f"  [{printable(detail['code'])}]", "dim")
        lines.append(line)
        if detail.get("hint"):
            lines.append(Text(f"    hint: {printable(detail['hint'])}", "cyan"))
    return lines


def _said_once(fault: Fault) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """Message and findings without what would be read twice: a message mostly quotes the first
    finding, for those who see nothing else of an error."""
    message, details = fault.message, fault.details
    first = details[0] if details else {}
    place, text = str(first.get("field") or "$"), str(first.get("message") or "")
    if not text or text not in message:
        return message, details
    if len(details) > 1:
        quote = min(at for at in (message.find(place), message.find(text)) if at >= 0)
        short = message[:quote].rstrip(" :").removesuffix(", the first")
        return short or message, details
    if place != "$" and place not in message:
        return message, [{key: first.get(key) for key in ("field", "hint")} | {"message": "here"}]
    hint, code = str(first.get("hint") or ""), str(first.get("code") or fault.code)
    if code != fault.code:
        message += f"  [{code}]"
    return (f"{message}\n    hint: {hint}" if hint and hint not in message else message), ()


def report(fault: Fault, *, as_json: bool) -> None:
    """Tell the user: the envelope on stdout with `--json`, readable text on stderr otherwise."""
    if as_json:
        print_json(fault.envelope())
        return
    out = console(stderr=True)
    message, details = _said_once(fault)
    head = Text("error", "bold red")
    head.append(f" {fault.code}", "bold").append(f": {printable(message)}", "not bold")
    out.print(head, soft_wrap=True)
    for line in finding_lines(details):
        out.print(line, soft_wrap=True)
    if fault.trace_id:
        out.print(Text(f"  trace id: {printable(fault.trace_id)}", "dim"), soft_wrap=True)


class WeftGroup(TyperGroup):
    """The command group; commands return their exit code, and faults end here."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line and leave with its exit code (`SystemExit`)."""
        argv = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in argv
        try:
            code = super().main(
                argv, prog_name or "weft", complete_var, standalone_mode=False, **extra
            )
        except Fault as fault:
            report(fault, as_json=as_json)
            code = fault.exit_code
        except typer.TyperException as error:
            if as_json:
                print_json(usage(error.format_message()).envelope())
            else:
                _show_usage_error(error)
            code = USAGE
        except typer.Abort:
            code = INTERRUPTED
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EIO):
                raise
            where = "" if error.filename is None else f": {error.filename}"
            sys.stderr.write(f"error: {error.strerror}{where}\n")
            # What is still buffered cannot be written either; Python would try when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = FAILED
        sys.exit(code if isinstance(code, int) else DONE)


def _show_usage_error(error: typer.TyperException) -> None:
    show = getattr(error, "show", None)
    if callable(show):
        show()
    else:
        report(usage(error.format_message()), as_json=False)
