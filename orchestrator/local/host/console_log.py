"""The log of the embedded mode: one line per record on stderr, with the ids that are its extras.

Without this, a terminal would show "activity attempt failed" and not of which execution.
"""

from __future__ import annotations

import logging
from typing import Final

from orchestrator import logs

NO_SOCKETS: Final = "socket.accept() out of system resource"
NO_SOCKETS_EVERY_S: Final = 10.0


def start(who: str = "", form: logs.Form = "text") -> None:
    """Write warnings and errors of this process to stderr; whatever logs already stays. `who`: see
    `LineFormatter`."""
    handler = logging.StreamHandler()
    handler.setFormatter(logs.formatter(form, who))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("asyncio").addFilter(SeldomNoSockets())


class SeldomNoSockets(logging.Filter):
    """While a process has no file descriptors left, asyncio says so once per place in the queue of
    connections, 4,000 times a second: that would fill the disk, too."""

    def __init__(self) -> None:
        super().__init__()
        self._last = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be logged."""
        if not record.getMessage().startswith(NO_SOCKETS):
            return True
        # abs: the clock may be set back.
        if abs(record.created - self._last) < NO_SOCKETS_EVERY_S:
            return False
        self._last = record.created
        return True
