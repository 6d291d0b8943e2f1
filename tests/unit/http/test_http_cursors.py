"""Cursors: what goes in comes out, for the same list only, and not with a byte altered."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.domain.errors import MalformedError
from orchestrator.functions import cursors

SCOPES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=4).map(
    tuple
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(1 - 2**63, 2**63 - 1)
AFTERS = st.tuples(st.one_of(NUMBERS, TEXTS), TEXTS)


@given(SCOPES, AFTERS)
def test_round_trip(scope: tuple[str, ...], after: tuple[object, ...]) -> None:
    text = cursors.encode(scope, after)
    assert text is not None
    assert cursors.decode(scope, text) == after
    assert text.isascii()
    assert all(char.isalnum() or char in "-_" for char in text)


@given(SCOPES, st.recursive(st.none() | st.booleans() | NUMBERS | TEXTS, st.lists, max_leaves=4))
def test_what_somebody_made_up_is_of_the_lists_types_or_refused(
    scope: tuple[str, ...], inside: object
) -> None:
    """The checksum is no secret."""
    text = cursors.encode(scope, inside) or ""  # type: ignore[arg-type]
    try:
        first, second = cursors.decode(scope, text)
    except MalformedError as error:
        assert error.code == "INVALID_CURSOR"  # noqa: PT017 - either is right
    else:
        assert type(first) in (int, str)
        assert type(second) is str
    with pytest.raises(MalformedError):
        cursors.decode(scope, cursors.encode(scope, (True,)) or "", (int,))
    assert cursors.decode(scope, cursors.encode(scope, (1, 2)) or "", (int, int)) == (1, 2)


@given(SCOPES, SCOPES, AFTERS)
def test_another_scope_is_refused(
    scope: tuple[str, ...], other: tuple[str, ...], after: tuple[object, ...]
) -> None:
    assume(scope != other)
    with pytest.raises(MalformedError) as caught:
        cursors.decode(other, cursors.encode(scope, after) or "")
    assert caught.value.code == "INVALID_CURSOR"


def test_any_altered_added_or_missing_character_is_refused() -> None:
    scope = ("default", "list_executions", "status=FAILED")
    text = cursors.encode(scope, (1_767_225_600_123, "e-1")) or ""
    altered = [
        text[:place] + char + text[place + 1 :]
        for place in range(len(text))
        for char in "ABab01-_=+/. \u00e9"
        if char != text[place]
    ]
    altered += [text[:place] + text[place + 1 :] for place in range(len(text))]
    altered += [
        text[:place] + char + text[place:] for place in range(len(text) + 1) for char in "A="
    ]
    assert text not in altered
    for one in altered:
        with pytest.raises(MalformedError):
            cursors.decode(scope, one)


def test_end_of_the_list_has_no_cursor() -> None:
    assert cursors.encode(("default",), None) is None
