"""A value is found in every form that services give it back in, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.failure import Failure
from orchestrator.domain.redaction import (
    MASK,
    MIN_CHARS,
    NOTHING,
    Redactor,
    current,
    redacting,
)
from tests.support.planted import FORMS, PLANTED, found_in

SECRET = PLANTED


@pytest.mark.parametrize("form", FORMS)
def test_a_value_is_found_in_every_encoding(form: str) -> None:
    text = f"before {FORMS[form]} after"
    clean = Redactor([SECRET]).text(text)
    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert MASK in clean
    assert found_in(text)
    assert not found_in(clean)
    assert Redactor(["an0ther-value"]).text(text) == text


@pytest.mark.parametrize("short", ["a", "7", "on", "12345"])
def test_a_one_character_secret_does_not_turn_every_text_into_stars(short: str) -> None:
    value = {"a": ["a man, a plan 12345", 7, "on"], "on": True}
    redactor = Redactor([short])
    assert not redactor
    assert redactor.value(value) is value


def test_keys_numbers_and_depths_of_json_are_searched_and_the_rest_stays() -> None:
    redactor = Redactor([SECRET, "424242"])
    value = {SECRET: [{"n": 424242}, {"n": 4242421}, None, True], "t": f"a {SECRET}b", "u": 1.5}
    clean = {MASK: [{"n": MASK}, {"n": 4242421}, None, True], "t": f"a {MASK}b", "u": 1.5}
    assert redactor.value(value) == clean
    assert json.loads(redactor.data(json.dumps(value).encode())) == clean
    untouched = b'{"a":"s3cr3","b":[1e400]}'
    assert Redactor([SECRET]).data(untouched) is untouched


def test_parts_of_a_long_value_are_found_too() -> None:
    """A private key comes back line by line, or cut off."""
    lines = ["".join(chr(65 + (at * 7 + row) % 26) for at in range(64)) for row in range(20)]
    key = "\n".join(["-----BEGIN KEY-----", *lines, "-----END KEY-----"])
    redactor = Redactor([key])
    for text in (key, json.dumps(key), base64.b64encode(key.encode()).decode()):
        clean = redactor.text(f"({text})")
        assert MASK in clean
        assert not [line for line in lines if line in clean]
        assert len(clean) < 100


def test_failures_lose_it_in_all_their_texts_and_causes() -> None:
    inner = Failure(type="E", message=f"at {quote(SECRET)}")
    clean = Redactor([SECRET]).failure(Failure(type="E", message=SECRET, causes=(inner,)))
    assert (clean.message, clean.causes[0].message) == (MASK, f"at {MASK}")


def test_a_redactor_is_current_only_where_it_is_said() -> None:
    redactor = Redactor([SECRET])
    with redacting(redactor):
        assert current() is redactor
    assert current() is NOTHING
    assert SECRET not in repr(redactor)


ENCODERS: list[Callable[[str], str]] = [
    lambda text: quote(text, safe="", errors="replace"),
    lambda text: quote_plus(text, errors="replace"),
    # Without the quotes around, and them alone: the last character may be one, too.
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    html.escape,
    lambda text: text.encode(errors="replace").hex(),
    lambda text: base64.b64encode(text.encode(errors="replace")).decode(),
]


@settings(max_examples=60, deadline=None)
@given(
    st.text(st.characters(codec="utf-8"), min_size=MIN_CHARS, max_size=24),
    st.sampled_from(ENCODERS),
    st.text("abc .%&\\", max_size=6),
)
def test_any_value_is_found_in_any_common_encoding(
    value: str, encode: Callable[[str], str], around: str
) -> None:
    text = around + encode(value) + around
    clean = Redactor([value]).text(text)
    assert MASK in clean
    assert encode(value) not in clean.replace(MASK, "")
