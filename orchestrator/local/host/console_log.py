"""The log of the embedded mode: one line per record on stderr, with the ids that are its extras.

On Azure the extras become dimensions of Application Insights. Without this, a terminal would show
"activity attempt failed" and not of which execution.
"""

from __future__ import annotations

import json
import logging
import re
import time
from typing import Any, Final

from orchestrator.local.printable import printable

_ORDINARY: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN: Final = re.compile(r"[\w.:/~@+-]+", re.ASCII)


class LineFormatter(logging.Formatter):
    """`2026-11-30 12:00:00 UTC WARNING activity attempt failed activity=http task_id=fetch`."""

    converter = time.gmtime

    def __init__(self, who: str = "") -> None:
        """`who` wrote it, such as `worker 1`; nothing if there is only one process."""
        super().__init__(datefmt="%Y-%m-%d %H:%M:%S UTC")
        self._who = f"{who} " if who else ""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line; a traceback, if there is one, follows it."""
        extras = [
            f"{key}={_shown(value)}"
            for key, value in vars(record).items()
            if key not in _ORDINARY and value is not None
        ]
        at = self.formatTime(record, self.datefmt)
        head = f"{at} {self._who}{record.levelname} {record.getMessage()}"
        return " ".join((head, *extras))

    def format(self, record: logging.LogRecord) -> str:
        """What follows the first line is indented, and no control character is obeyed: whatever a
        text says that an activity or a library logs, it is no line of the log's own."""
        return printable(super().format(record)).replace("\n", "\n    ")

    def usesTime(self) -> bool:
        """The line writes its own time."""
        return False


def start(who: str = "") -> None:
    """Write warnings and errors of this process to stderr; whatever logs already stays."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(who))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _shown(value: Any) -> str:
    """Bare if it is a word, else JSON in ASCII: no control character reaches the terminal."""
    text = value if isinstance(value, str) else None
    if text is not None and _PLAIN.fullmatch(text):
        return text
    return json.dumps(value, default=str)
