"""A regular expression has a size, repetitions written out, before it is compiled or matched."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.cel_patterns import MAX_SIZE, BadPattern, found, size


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("", 1, 1),
        ("abc", 3, 5),
        ("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", 30, 100),
        ("(a|b{3})*", 4, 10),
        ("(?:a{10}){10}", 100, 150),
        ("((a{0,30}){0,30}){0,10}", 9_000, 10_000),
        (r"\(\)\{5\}a{2}", 5, 15),
        ("[)({3}]{2}", 2, 10),
        ("[]{3}]a", 2, 10),
        ("(?i)a{20}", 20, 40),
        ("a{,5}", 1, 10),  # no repetition: five characters
        (r"\pL{100}", 5_000, 5_100),
        (r"\p{Lu}{100}\x{41}", 5_000, 5_100),
        (r"[\p{Lu}a]{100}", 5_000, 5_300),
        ("[^a]{100}", 800, 900),
    ],
)
def test_size_of_a_pattern(pattern: str, least: int, most: int) -> None:
    assert least <= size(pattern) <= most


@pytest.mark.parametrize(
    "pattern",
    [
        "((a{30}){30}){30}",
        "(a{1000}){0,11}",
        "a{1000}{1000}",
        r"(\w{100}){3}",
        "((((a{20}){20}){20}){20}",  # an open group, too
        "a" * (MAX_SIZE + 1),
        "(?x) a # )",
    ],
)
def test_patterns_that_are_too_large_are_refused_unread(pattern: str) -> None:
    with pytest.raises(BadPattern):
        found(pattern, "")


@given(st.text(alphabet="ab(){}[]^\\|*+?,-0129pLx:", max_size=40))
@settings(max_examples=150, deadline=None)
def test_any_text_has_a_size_or_is_refused(pattern: str) -> None:
    with suppress(BadPattern):
        assert size(pattern) >= 1
        found(pattern, "ab")
