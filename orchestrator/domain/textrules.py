"""What JSON and YAML texts have in common: their limits, and how a fault in one is reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.domain.errors import ErrorDetail, InvalidError, MalformedError, TooLargeError

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1
MAX_FAULTS: Final = 100  # of the text itself; a file with more is not read further


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one value of a text. `malformed`: the text is not valid at all (400);
    else it is, but holds something that Weft cannot keep (422)."""

    code: str
    message: str
    malformed: bool = True


def decode(data: bytes, max_bytes: int, language: str) -> str:
    """UTF-8 text of a body. Raises `TooLargeError`, `MalformedError`."""
    if len(data) > max_bytes:
        raise TooLargeError(f"the body has {len(data):,} bytes, at most {max_bytes:,} are read")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise malformed(
            f"the {language} text is not UTF-8: byte {error.start} is not part of a character",
            "NOT_UTF8",
        ) from None


def malformed(message: str, code: str, path: str = "$", hint: str = "") -> MalformedError:
    """An error with this one finding."""
    return MalformedError(message, details=[ErrorDetail(path, message, code, hint)])


def too_deep(max_depth: int, path: str) -> InvalidError:
    """The error for nesting beyond the limit."""
    message = f"lists and objects are nested deeper than {max_depth} levels"
    return InvalidError(message, details=[ErrorDetail(path, message, "TOO_DEEP")])


def raise_faults(faults: Sequence[tuple[str, Fault]], language: str) -> None:
    """Raise one error with all `faults` (path, fault); nothing if there are none."""
    if not faults:
        return
    details = [ErrorDetail(path, fault.message, fault.code) for path, fault in faults]
    path, first = faults[0]
    message = f"{path}: {first.message}"
    if len(faults) > 1:
        message = f"the {language} text has {len(faults)} faults, the first: {message}"
    kind = MalformedError if any(fault.malformed for _, fault in faults) else InvalidError
    raise kind(message, details=details)


def read_int(text: str) -> int | Fault:
    """A decimal integer of at most 64 bits, or what is wrong with it."""
    # The length first: Python itself refuses to convert thousands of digits.
    if len(text) <= 20:
        value = int(text)
        if MIN_INT <= value <= MAX_INT:
            return value
    return Fault(
        "NUMBER_OUT_OF_RANGE",
        f"the integer {_short(text)} does not fit 64 bits; write it as text",
        malformed=False,
    )


def read_float(text: str) -> float | Fault:
    """A finite double, or what is wrong with it."""
    value = float(text)
    if math.isfinite(value):
        return value
    return Fault(
        "NUMBER_OUT_OF_RANGE",
        f"the number {_short(text)} is beyond the range of a double; write it as text",
        malformed=False,
    )


def not_finite(text: str) -> Fault:
    """The fault of NaN and the infinities."""
    return Fault("NOT_A_NUMBER", f"{text} is not a JSON number; leave it out or write it as text")


def duplicate_key(key: str) -> Fault:
    """The fault of a key that occurs twice."""
    return Fault("DUPLICATE_KEY", f"the key {_short(key)!r} occurs twice in the same object")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"
