"""Text in URLs."""

from __future__ import annotations

import string
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.urls import encode_part

UNRESERVED = string.ascii_letters + string.digits + "-._~"


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        (UNRESERVED, UNRESERVED),
        ("a/b c", "a%2Fb%20c"),
        ("../admin?x=1#y", "..%2Fadmin%3Fx%3D1%23y"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
        ('"}], "x": "y', "%22%7D%5D%2C%20%22x%22%3A%20%22y"),
        ("{{x}}\r\n", "%7B%7Bx%7D%7D%0D%0A"),
        ("ü€😀", "%C3%BC%E2%82%AC%F0%9F%98%80"),
        ("\ud800", "%EF%BF%BD"),
        ("%2F+", "%252F%2B"),
        ("\x00\x7f\\@:", "%00%7F%5C%40%3A"),
    ],
)
def test_url_parts_are_percent_encoded(text: str, encoded: str) -> None:
    assert encode_part(text) == encoded


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_encoded_text_is_one_segment_and_comes_back(text: str) -> None:
    encoded = encode_part(text)
    assert set(encoded) <= set(UNRESERVED + "%")
    assert unquote(encoded) == text
    parts = urlsplit(f"https://pay.example/charges/{encoded}/refund?a={encoded}")
    assert parts.netloc == "pay.example"
    assert parts.path == f"/charges/{encoded}/refund"
    assert not parts.fragment
    assert encoded not in (".", "..")


def test_an_empty_part_is_refused_because_it_would_name_the_collection() -> None:
    with pytest.raises(ValueError, match="something else"):
        encode_part("")
