"""A value is found in every form that a service may give it back in, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
import quopri
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

SECRET = "s3cr3t-Ω/+="
UTF8 = SECRET.encode()
FORMS: dict[str, str] = {
    "raw": SECRET,
    "upper": SECRET.upper(),
    "percent": quote(SECRET),
    "percent all": quote(SECRET, safe=""),
    "percent lower": quote(SECRET, safe="").lower(),
    "percent twice": quote(quote(SECRET, safe=""), safe=""),
    "percent every byte": "".join(f"%{byte:02X}" for byte in UTF8),
    "form": quote_plus(SECRET),
    "json": json.dumps(SECRET),
    "json in json": json.dumps(json.dumps(SECRET)),
    "json of php": json.dumps(SECRET).replace("/", "\\/"),
    "html": html.escape(SECRET),
    "html numbers": "".join(f"&#{ord(char)};" for char in SECRET),
    "html hexadecimal": "".join(f"&#x{ord(char):X};" for char in SECRET),
    "html twice": html.escape("".join(f"&#{ord(char)};" for char in SECRET)),
    "hexadecimal": UTF8.hex(),
    "hexadecimal upper": UTF8.hex().upper(),
    "hexadecimal with colons": UTF8.hex(":"),
    "python repr": repr(UTF8),
    "wrong charset": UTF8.decode("latin-1"),
    "charset lost": UTF8.decode("ascii", "replace"),
    "question marks": SECRET.encode("ascii", "replace").decode(),
    "quoted printable": quopri.encodestring(UTF8).decode(),
    "base64 of utf-16": base64.b64encode(SECRET.encode("utf-16-le")).decode(),
    "basic": base64.b64encode(f"user:{SECRET}".encode()).decode(),
    "basic twice": base64.b64encode(base64.b64encode(UTF8)).decode(),
    "base64 in lines": base64.encodebytes(b"x" * 52 + UTF8 + b"y" * 60).decode(),
}
for before in range(3):
    for after in range(3):
        around = b"x" * before + UTF8 + b"y" * after
        FORMS[f"base64 {before} {after}"] = base64.b64encode(around).decode()
        FORMS[f"base64 url {before} {after}"] = base64.urlsafe_b64encode(around).decode()
        FORMS[f"base64 percent {before} {after}"] = quote(base64.b64encode(around), safe="")
LETTERS = [SECRET[:6], *(base64.b64encode(b"x" * n + UTF8).decode()[4:10] for n in range(3))]


@pytest.mark.parametrize("form", FORMS)
def test_a_value_is_found_in_every_encoding(form: str) -> None:
    text = f"before {FORMS[form]} after"
    clean = Redactor([SECRET]).text(text)
    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert MASK in clean
    assert not [part for part in LETTERS if part in clean]
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
    json.dumps,
    lambda text: json.dumps(text, ensure_ascii=False),
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
    text = around + encode(value).strip('"') + around
    clean = Redactor([value]).text(text)
    assert MASK in clean
    assert encode(value).strip('"') not in clean.replace(MASK, "")
