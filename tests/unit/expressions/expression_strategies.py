"""Random JSON, and random paths into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

KEYS = ["a", "b", "map", "size", "as", "true", "x y", "é", "", "'", '"', "\\", "0", "${a}", "n\n"]

scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["${input}", "$${x}", "}", "'", '"""', "\\", "\u0000", "😀", "NaN", "null"])
)


def jsons(max_leaves: int = 15) -> st.SearchStrategy[Any]:
    """Any JSON value that Weft takes."""
    keys = st.sampled_from(KEYS) | st.text(max_size=4)
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=max_leaves,
    )


@st.composite
def paths_into(draw: st.DrawFn, value: Any) -> list[str | int]:
    """Keys that mostly exist: one wrong turn now and then."""
    keys: list[str | int] = []
    while draw(st.integers(0, 4)):
        if draw(st.integers(0, 7)) == 0:
            key: str | int = draw(st.sampled_from(KEYS) | st.integers(0, 3))
        elif isinstance(value, dict) and value:
            key = draw(st.sampled_from(sorted(value)))
        elif isinstance(value, list) and value:
            key = draw(st.integers(0, len(value) - 1))
        else:
            break
        keys.append(key)
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            value = None
    return keys


def shape(value: Any) -> str:
    """A text that is equal for equal JSON of equal types, whatever the order of keys."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{shape(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(shape, value)) + "]"
    return repr(value)


def outcome(function: Callable[[], Any], *errors: type[BaseException]) -> str:
    """The shape of what `function` gives, or `error` for one of `errors`."""
    try:
        return shape(function())
    except errors:
        return "error"
