"""Log records that are made while an attempt runs hold none of the secrets that it was given.

Not only Weft's own records: an HTTP client logs the addresses that it calls, with their queries,
and the author of an activity may log anything. So the records of all loggers are masked where they
are made. `logging` adds a record's extras later; those of an activity's own logger are masked
there.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any, Final

from orchestrator.domain.redaction import Redactor, current

_MARK: Final = "weft_redacts"


def install() -> None:
    """For this process, once; the factory that was there makes the records."""
    inner = logging.getLogRecordFactory()
    if not hasattr(inner, _MARK):
        logging.setLogRecordFactory(_redacting(inner))


def _redacting(inner: Callable[..., logging.LogRecord]) -> Callable[..., logging.LogRecord]:
    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = inner(*args, **kwargs)
        redactor = current()
        if redactor:
            _clean(record, redactor)
        return record

    setattr(make, _MARK, True)
    return make


def _clean(record: logging.LogRecord, redactor: Redactor) -> None:
    try:
        message = record.getMessage()
    except Exception:
        return  # the handler complains of it, and shows nothing but types and the format
    clean = redactor.text(message)
    if clean != message:
        record.msg, record.args = clean, ()
    if record.exc_info and record.exc_info[1] is not None:
        told = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        clean = redactor.text(told)
        if clean != told:
            record.exc_info, record.exc_text = None, clean
