"""Log lines of the embedded platform, for people: the message, then what it is about.

The structured extras of a record (action, execution, task, …) are what tells one line from the
next; without them "activity attempt failed" says nothing. They hold ids and names of types, never
payloads.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

MAX_VALUE_CHARS: Final = 200
_OWN: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
)


class Formatter(logging.Formatter):
    """`worker 1 WARNING orchestrator.engine.sweep: message  action=… execution=…`."""

    def __init__(self, worker: int | None = None) -> None:
        process = "" if worker is None else f"worker {worker} "
        super().__init__(f"{process}%(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without a traceback."""
        extras = {
            name: value
            for name, value in vars(record).items()
            if name not in _OWN and isinstance(value, str | int | float) and value != ""
        }
        about = " ".join(f"{name}={_shown(value)}" for name, value in extras.items())
        line = super().formatMessage(record)
        return f"{line}  {about}" if about else line


def configure(worker: int | None = None) -> None:
    """Warnings and worse to the standard error stream. `worker`: which process of several."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter(worker))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _shown(value: Any) -> str:
    """One word, or quoted: a value must not look like a line or a field of its own."""
    text = str(value)
    if len(text) > MAX_VALUE_CHARS:
        text = f"{text[:MAX_VALUE_CHARS]}…"
    plain = text.isprintable() and not set(text) & set(' "=')
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
