"""Which functions an expression may call, with how many arguments, and the Python side of some.

An unknown function must be found when a workflow is published, not when a task runs at night; so
every call is checked against `FUNCTIONS`. All are pure: no clock, no random, no I/O.

The CEL core comes from the Rust library. The extensions are those of `cel.stdlib` (they mirror
cel-go's), wrapped: a Python error text would carry the user's values into logs and messages, and an
integer beyond 64 bits would come back as a double.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeAlias, cast

from orchestrator.domain.cel_budget import UnusableError, spend, spend_call, spend_data
from orchestrator.domain.cel_library import stdlib
from orchestrator.domain.cel_patterns import WORK_PER_STEP, BadPattern, cost, found

Arity: TypeAlias = tuple[int, int]

MAX_RANGE: Final = 10_000  # elements of lists.range
MAX_PIECES: Final = 200_000  # elements of split()
MAX_TEXT: Final = 16 * 1024 * 1024  # characters that replace() or join() may build

# The library logs a warning for each function that refuses its arguments. That is the author's
# mistake, reported as a task failure; as a log line it would be noise.
logging.getLogger("cel").setLevel(logging.ERROR)

_ANY: Final = 99  # as many arguments as one likes

_CONVERSIONS: Final = (
    *("string", "int", "uint", "double", "bytes", "bool"),
    *("dyn", "type", "timestamp", "duration"),
)
_GETTERS: Final = (
    *("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek"),
    *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
)
_ONE_ARGUMENT: Final = (
    *("size", "lowerAscii", "upperAscii", "trim", "reverse"),
    *("distinct", "sort", "first", "last"),
)
_MATH_ONE: Final = (
    *("abs", "sign", "ceil", "floor", "round", "trunc", "sqrt"),
    *("isNaN", "isInf", "isFinite", "bitNot"),
)
_MATH_TWO: Final = ("bitOr", "bitAnd", "bitXor", "bitShiftLeft", "bitShiftRight")
_QUALIFIED_ONE: Final = (
    *("base64.encode", "base64.decode", "strings.quote", "lists.range"),
    *("optional.of", "optional.ofNonZeroValue"),
)

GLOBAL_ONLY: Final[dict[str, Arity]] = {**dict.fromkeys(_CONVERSIONS, (1, 1)), "has": (1, 1)}
METHOD_ONLY: Final[dict[str, Arity]] = {
    **dict.fromkeys(("startsWith", "endsWith", "matches", "orValue"), (2, 2)),
    **dict.fromkeys((*_GETTERS, "hasValue", "value"), (1, 1)),
}
EITHER: Final[dict[str, Arity]] = {
    **dict.fromkeys(_ONE_ARGUMENT, (1, 1)),
    **dict.fromkeys(("contains", "charAt"), (2, 2)),
    **dict.fromkeys(("indexOf", "lastIndexOf", "substring", "split"), (2, 3)),
    **dict.fromkeys(("flatten", "join"), (1, 2)),
    **dict.fromkeys(("min", "max", "sum"), (1, _ANY)),
    "replace": (3, 4),
    "slice": (3, 3),
}
QUALIFIED: Final[dict[str, Arity]] = {
    **dict.fromkeys(("math.greatest", "math.least"), (1, _ANY)),
    **{f"math.{name}": (1, 1) for name in _MATH_ONE},
    **{f"math.{name}": (2, 2) for name in _MATH_TWO},
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), (2, 2)),
    **dict.fromkeys(_QUALIFIED_ONE, (1, 1)),
    "optional.none": (0, 0),
}
"""Minimum and maximum number of arguments; a receiver counts as the first."""

MACROS: Final[dict[str, Arity]] = {
    **dict.fromkeys(("all", "exists", "exists_one", "existsOne", "filter"), (2, 2)),
    "map": (2, 3),
}
"""Comprehensions: the first argument names a variable. The receiver is not counted."""

NAMESPACES: Final = frozenset(name.split(".")[0] for name in QUALIFIED)
TYPE_NAMES: Final = frozenset(
    (
        *("int", "uint", "double", "bool", "string", "bytes"),
        *("list", "map", "null_type", "type", "optional_type"),
    )
)
"""Types as values, for `type(x) == int`."""


MATCHES: Final = "matches_"
"""Name of our own `matches`: what a match costs is known before."""
SIZE: Final = "size_"
"""Name of our own `size`: the library counts the bytes of a string, the specification its code
points (and so do `substring`, `indexOf` and `charAt`)."""
RENAMED: Final = {"matches": MATCHES, "size": SIZE}


def implementations(names: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """The Python functions among `names`; the others are the library's own."""
    return {name: _IMPLEMENTED[name] for name in names if name in _IMPLEMENTED}


def unknown(name: str, receiver: int) -> str:
    """What to say about a call of a function that is not there (in this form)."""
    if receiver and name in GLOBAL_ONLY:
        return f"{name} is no method: write {name}(x)"
    if not receiver and (name in METHOD_ONLY or name in MACROS):
        return f"{name} is a method: write x.{name}(…)"
    known = [*GLOBAL_ONLY, *METHOD_ONLY, *EITHER, *QUALIFIED, *MACROS]
    return f"there is no function '{name}'{nearest(name, known)}"


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean 'x'?`, or nothing."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def _size(value: object) -> int:
    if isinstance(value, str | bytes | list | dict):
        return len(cast("list[Any]", value))
    raise UnusableError


def _string(value: object) -> str:
    """`string(bool)`, which the library lacks; all other types are its own."""
    if isinstance(value, bool):
        return "true" if value else "false"
    raise UnusableError


def _matches(text: str, pattern: str) -> bool:
    try:
        spend(cost(pattern, text) // WORK_PER_STEP)
        return found(pattern, text)
    except BadPattern as error:
        raise UnusableError(str(error)) from None


def _lower(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _upper(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").upper().decode("utf-8", "surrogatepass")


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    if len(text) + count * (len(new) - len(old)) > MAX_TEXT:
        raise UnusableError
    return stdlib.replace(text, old, new, limit)


def _split(text: str, separator: str, limit: int | None = None) -> list[str]:
    pieces = text.count(separator) + 1
    if pieces > MAX_PIECES and (limit is None or limit < 0 or limit > MAX_PIECES):
        raise UnusableError
    return stdlib.split(text, separator, limit)


def _join(items: list[str], separator: str = "") -> str:
    if sum(map(len, items)) + len(items) * len(separator) > MAX_TEXT:
        raise UnusableError
    return separator.join(items)


def _range(count: int) -> list[int]:
    if count > MAX_RANGE:
        raise UnusableError
    return list(range(count))


def _frozen(value: Any) -> Any:
    """A hashable stand-in that is equal where CEL is: 1 == 1.0, but true is not 1."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list | tuple):
        return ("list", tuple(_frozen(item) for item in cast("list[Any]", value)))
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return ("map", frozenset((_frozen(key), _frozen(item)) for key, item in pairs))
    return value


def _distinct(items: list[Any]) -> list[Any]:
    return list({_frozen(item): item for item in reversed(items)}.values())[::-1]


def _sets_contains(container: list[Any], part: list[Any]) -> bool:
    return {_frozen(item) for item in container} >= {_frozen(item) for item in part}


def _sets_equivalent(left: list[Any], right: list[Any]) -> bool:
    return {_frozen(item) for item in left} == {_frozen(item) for item in right}


def _sets_intersects(left: list[Any], right: list[Any]) -> bool:
    return not {_frozen(item) for item in left}.isdisjoint(_frozen(item) for item in right)


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        spend_call(arguments)
        try:
            result = function(*arguments)
        except Exception:
            raise UnusableError(name) from None
        spend_data((result,))
        if isinstance(result, int) and not -(2**63) <= result < 2**63:
            raise UnusableError(name)
        return result

    return call


_OWN: Final[Mapping[str, Callable[..., Any]]] = {
    MATCHES: _matches,
    SIZE: _size,
    "lowerAscii": _lower,
    "upperAscii": _upper,
    "string": _string,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "lists.range": _range,
    "distinct": _distinct,
    "sets.contains": _sets_contains,
    "sets.equivalent": _sets_equivalent,
    "sets.intersects": _sets_intersects,
}
_IMPLEMENTED: Final[Mapping[str, Callable[..., Any]]] = {
    name: _guarded(name, function)
    for name, function in {
        **{k: v for library in stdlib.EXTENSIONS.values() for k, v in library.items()},
        **_OWN,
    }.items()
    if name in RENAMED.values() or name in GLOBAL_ONLY or name in EITHER or name in QUALIFIED
}
