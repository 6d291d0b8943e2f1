"""The log of the embedded mode: one line per record on stderr, with the ids that are its extras.

Without this, a terminal would show "activity attempt failed" and not of which execution.
"""

from __future__ import annotations

import logging

from orchestrator import logs


def start(who: str = "", form: logs.Form = "text") -> None:
    """Write warnings and errors of this process to stderr; whatever logs already stays. `who`: see
    `LineFormatter`."""
    handler = logging.StreamHandler()
    handler.setFormatter(logs.formatter(form, who))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
