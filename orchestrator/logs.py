"""Log records as lines: for people, or as JSON for whoever collects them. Both with the ids of what
the record is about, its own extras and those of the work in progress (`engine/telemetry`).

Names in a message may come from outside. No control character of theirs reaches the line, so nobody
can write a record that was never logged, or repaint a terminal.
"""

from __future__ import annotations

import json
import logging
import re
import time
from typing import Any, Final, Literal, TypeAlias

from orchestrator.engine import telemetry

Form: TypeAlias = Literal["text", "json"]

_ORDINARY: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SDKS: Final = "azure.core.pipeline.policies.http_logging_policy"
_PLAIN: Final = re.compile(r"[\w.:/~@+-]+", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_BUT_LINES: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class LineFormatter(logging.Formatter):
    """`2026-11-30 12:00:00 UTC WARNING activity attempt failed activity=http task=fetch`."""

    converter = time.gmtime

    def __init__(self, who: str = "") -> None:
        """`who` wrote it, such as `worker 1`; nothing if there is only one process."""
        super().__init__(datefmt="%Y-%m-%d %H:%M:%S UTC")
        self._who = f"{who} " if who else ""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback, if there is one, follows it, indented: its text may have lines
        that look like records."""
        extras = [f"{key}={_shown(value)}" for key, value in _fields(record).items()]
        at = self.formatTime(record, self.datefmt)
        said = _escaped(_CONTROL, record.getMessage())
        line = " ".join((f"{at} {self._who}{record.levelname} {said}", *extras))
        trace = _escaped(_CONTROL_BUT_LINES, _traceback(self, record))
        return "\n  ".join((line, *trace.splitlines()))


class JsonFormatter(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`, the ids, and `exception` if there is
    one. In ASCII, so control characters are escaped by JSON itself."""

    def __init__(self, who: str = "") -> None:
        """`who` becomes `process`."""
        super().__init__()
        self._who = {"process": who} if who else {}

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{at}.{int(record.created * 1000) % 1000:03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._who,
        }
        line |= {key: value for key, value in _fields(record).items() if key not in line}
        if trace := _traceback(self, record):
            line["exception"] = trace
        return json.dumps(line, default=str)


def formatter(form: Form, who: str = "") -> logging.Formatter:
    """The formatter of this name."""
    return JsonFormatter(who) if form == "json" else LineFormatter(who)


def shape(form: Form) -> None:
    """Give the handlers that the root logger has this form: those of the Functions worker, which
    hand each line to the host. The SDKs' record of every request that they make stays out of it."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter(form))
    logging.getLogger(_SDKS).setLevel(logging.WARNING)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """As text; one that was made free of secrets (`engine/log_redaction`) is text already."""
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the work is about, then what the record says itself, which is nearer."""
    own = {
        key: value
        for key, value in vars(record).items()
        if key not in _ORDINARY and value is not None
    }
    return {**telemetry.ids(), **own}


def _escaped(found: re.Pattern[str], text: str) -> str:
    return found.sub(lambda sign: json.dumps(sign[0])[1:-1], text)


def _shown(value: Any) -> str:
    """Bare if it is a word, else JSON in ASCII: no control character reaches the terminal."""
    text = value if isinstance(value, str) else None
    if text is not None and _PLAIN.fullmatch(text):
        return text
    return json.dumps(value, default=str)
