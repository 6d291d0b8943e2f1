"""What a user hands to the command line: files, JSON, tags. Mistakes become `Fault`s (exit 2).

JSON is read by the same strict reader as the server's, so that a duplicate key or a number that
JSON cannot hold is told at once, and nothing is changed silently on the way.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from orchestrator.domain.errors import WeftError
from orchestrator.domain.jsontypes import Json
from orchestrator.local.cli_faults import Fault, usage


def fault_of(error: WeftError, message: str = "") -> Fault:
    """A domain error as a fault, with all its findings; `message` stands before its own."""
    text = f"{message}: {error.message}" if message else error.message
    return Fault(error.code, text, details=[asdict(detail) for detail in error.details])


def read_file(name: str) -> bytes:
    """The bytes of a file, or of stdin for `-`. Raises `Fault` (usage)."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise usage(f"Cannot read {name!r}: {reason}.") from error


def kind(name: str, source: bytes) -> Literal["json", "yaml"]:
    """The language of a definition: by the file's ending, else by how it begins."""
    ending = Path(name).suffix.lower()
    if ending == ".json":
        return "json"
    if ending in (".yaml", ".yml"):
        return "yaml"
    return "json" if source.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "yaml"


def media_type(name: str, source: bytes) -> str:
    """The content type of a definition."""
    return f"application/{kind(name, source)}"


def start_request(
    given: str | None, version: int | None, tag: Sequence[str], priority: str | None = None
) -> dict[str, Json]:
    """The body of a start. What was not given is left out: the server knows the defaults."""
    request: dict[str, Json] = {}
    if given is not None:
        request["input"] = json_value(given)
    if version is not None:
        request["version"] = version
    if priority is not None:
        request["priority"] = str(priority)
    if tag:
        request["tags"] = {**tags(tag)}
    return request


def json_value(given: str, option: str = "--input") -> Json:
    """The value of an option: JSON, `@FILE`, or `-` for stdin.

    Raises `Fault` (usage) with the place of a mistake.
    """
    from orchestrator.domain.parsing import parse_json

    if given == "-" or given.startswith("@"):
        source = read_file(given.removeprefix("@"))
        where = "stdin" if given == "-" else given
    else:
        source = given.encode("utf-8", "surrogateescape")
        where = option
    try:
        return parse_json(source)
    except WeftError as error:
        raise fault_of(error, where) from error


def tags(given: Sequence[str]) -> dict[str, str]:
    """`key=value` pairs. Raises `Fault` (usage) for another shape or a key given twice."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise usage(f"--tag {text!r} is not of the form KEY=VALUE.")
        if key in found:
            raise usage(f"--tag {key!r} is given twice.")
        found[key] = value
    return found
