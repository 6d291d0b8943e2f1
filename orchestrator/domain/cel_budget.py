"""What one evaluation of an expression may cost: counted, not timed, so that the same data always
gives the same.

An expression is evaluated while others wait: the library holds the interpreter. So everything that
grows with the data counts against one budget, and an expression that uses it up is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Final, cast

MAX_STEPS: Final = 200_000
"""Of all expressions of one template together: about a second. A step is an element that a loop
visits, four calls of a function, or an amount of data that takes as long (the constants below and
in `cel_loops`, `cel_patterns`)."""
MAX_BYTES: Final = 256 * 1024 * 1024
"""Data that one evaluation may build, by a rough measure (`weigh`)."""

TOO_MUCH: Final = (
    f"the expression takes more than {MAX_STEPS} steps or builds more than "
    f"{MAX_BYTES // 2**20} MiB; use an activity"
)

FEW_USES: Final = 8  # what is read more often could be repeated until memory or time ends
HANDED_PER_STEP: Final = 4_096  # bytes that an evaluation is handed
LOOKED_AT_PER_STEP: Final = 16_384  # bytes that names stand for where they are read

_CALL: Final = 0.25
_BYTES_PER_STEP: Final = 256  # of arguments: a function may look at each several times

_left: ContextVar[list[float] | None] = ContextVar("expression budget", default=None)


class UnusableError(Exception):
    """A function was given values that it cannot use. Its text, if any, is a reason for the user
    and holds no value."""


class budgeted:
    """`with budgeted():` one budget for all that is evaluated inside."""

    def __enter__(self) -> None:
        self._token = _left.set(_left.get() or [MAX_STEPS])

    def __exit__(self, *_: object) -> None:
        _left.reset(self._token)


def spend(steps: float) -> None:
    """Count `steps`. Raises `UnusableError` once the budget is used up."""
    left = _left.get()
    if left is not None:
        left[0] -= steps
        if left[0] < 0:
            raise UnusableError(TOO_MUCH)


def spent() -> bool:
    """Whether the budget is used up."""
    left = _left.get()
    return left is not None and left[0] < 0


def spend_call(arguments: tuple[Any, ...]) -> None:
    """Count one call of a function. Raises `UnusableError`."""
    spend_data(arguments, _CALL)


def spend_data(values: Iterable[Any], more: float = 0) -> None:
    """Count what a function is given, or gives, and `more` steps. Raises `UnusableError`."""
    size = 0
    for value in values:
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, list | dict):
            size += weigh(cast("Any", value))
    spend(more + size // _BYTES_PER_STEP)


def looked_at(weight: int, uses: int) -> int:
    """What reading data of this weight so often is, in bytes: a long chain of `+` copies at each
    sign all that it has so far."""
    return weight * uses * max(1, uses // FEW_USES)


def weigh(value: object) -> int:
    """Roughly how many bytes `value` takes: its characters, and 64 for every value in it."""
    size = 0
    stack: list[Any] = [value]
    while stack:
        node = stack.pop()
        size += 64
        if isinstance(node, str | bytes):
            size += len(node)
        elif isinstance(node, dict):
            stack += cast("dict[Any, Any]", node).values()
        elif isinstance(node, list):
            stack += cast("list[Any]", node)
    return size


def entries(value: object) -> int:
    """How many entries the maps in `value` have. The library needs a step's time for each."""
    count = 0
    stack: list[Any] = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            found = cast("dict[Any, Any]", node)
            count += len(found)
            stack += found.values()
        elif isinstance(node, list):
            stack += [one for one in cast("list[Any]", node) if isinstance(one, dict | list)]
    return count
