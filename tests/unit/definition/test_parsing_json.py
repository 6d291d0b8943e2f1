"""JSON as read from a request: exact, strict, and never an error that is not ours."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.errors import InvalidError, MalformedError, TooLargeError, WeftError
from orchestrator.domain.parsing import parse_json

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def fails(data: bytes, kind: type[WeftError], **options: int) -> list[tuple[str, str]]:
    """(path, code) of each finding."""
    with pytest.raises(kind) as caught:
        parse_json(data, **options)
    assert type(caught.value) is kind
    return [(item.field, item.code) for item in caught.value.details]


@given(VALUES)
def test_reads_what_json_writes(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(
    st.binary(max_size=200) | st.text(alphabet='{}[]",:0123456789eE+-.NaInfty\\u d8', max_size=60)
)
def test_any_bytes_give_a_value_or_our_error(data: bytes | str) -> None:
    with contextlib.suppress(WeftError):
        parse_json(data if isinstance(data, bytes) else data.encode())


def test_duplicate_keys_are_named_by_path() -> None:
    assert fails(b'{"a": 1, "b": [{"c": 1, "c": 2, "c": 3}], "a": 2}', MalformedError) == [
        ("$.a", "DUPLICATE_KEY"),
        ("$.b[0].c", "DUPLICATE_KEY"),
    ]


def test_nan_and_infinity_are_refused_but_not_in_text() -> None:
    assert fails(b'{"x": NaN, "y": [Infinity, -Infinity]}', MalformedError) == [
        ("$.x", "NOT_A_NUMBER"),
        ("$.y[0]", "NOT_A_NUMBER"),
        ("$.y[1]", "NOT_A_NUMBER"),
    ]
    assert parse_json(b'{"note": "NaN: fine"}') == {"note": "NaN: fine"}


def test_integers_are_exact_through_64_bits_and_refused_beyond() -> None:
    assert parse_json(b"[9223372036854775807, -9223372036854775808, 9007199254740993]") == [
        2**63 - 1,
        -(2**63),
        2**53 + 1,
    ]
    assert fails(b'{"a": [1, 9223372036854775808]}', InvalidError) == [
        ("$.a[1]", "NUMBER_OUT_OF_RANGE")
    ]
    assert fails(b"-9223372036854775809", InvalidError) == [("$", "NUMBER_OUT_OF_RANGE")]
    assert fails(b"1" * 10_000, InvalidError) == [("$", "NUMBER_OUT_OF_RANGE")]


def test_numbers_beyond_a_double_are_refused() -> None:
    assert fails(b'{"x": 1e999}', InvalidError) == [("$.x", "NUMBER_OUT_OF_RANGE")]


def test_nesting_stops_at_128() -> None:
    assert parse_json(b"[" * 128 + b"]" * 128)
    ((path, code),) = fails(b"[" * 129 + b"]" * 129, InvalidError)
    assert (path, code) == ("$" + "[0]" * 128, "TOO_DEEP")
    assert fails(b'{"a":' * 200 + b"1" + b"}" * 200, InvalidError)[0][1] == "TOO_DEEP"
    assert fails(b"[" * 500_000, InvalidError)[0][1] == "TOO_DEEP"
    assert fails(b"[[1]]", InvalidError, max_depth=1) == [("$[0]", "TOO_DEEP")]


def test_lone_surrogates_become_replacement_characters() -> None:
    assert parse_json(b'{"s": ["a\\u0000b\\ud800"], "\\udc00": "\\ud83d\\ude00"}') == {
        "s": ["a\0b\ufffd"],
        "\ufffd": "\U0001f600",
    }
    assert fails(b'{"\\ud800": 1, "\\ud801": 2}', MalformedError)[0][1] == "DUPLICATE_KEY"


@pytest.mark.parametrize("data", [b"", b"{", b"[1,]", b"{'a': 1}", b"1 2", b'"a\nb"', b"nul"])
def test_what_is_not_json_says_where(data: bytes) -> None:
    with pytest.raises(MalformedError, match=r"line \d+, column \d+") as caught:
        parse_json(data)
    assert caught.value.code == "MALFORMED"
    assert caught.value.details[0].code == "NOT_JSON"


def test_encoding() -> None:
    assert fails(b'"\xff"', MalformedError) == [("$", "NOT_UTF8")]
    assert fails(b'"\xed\xa0\x80"', MalformedError) == [("$", "NOT_UTF8")]
    assert parse_json(b"\xef\xbb\xbf[1]") == [1]


def test_size_is_checked_before_anything_is_read() -> None:
    assert fails(b"x" * 1_048_577, TooLargeError) == []
    assert parse_json(b'"' + b"x" * 1_048_574 + b'"')
    assert fails(b"[1, 2]", TooLargeError, max_bytes=5) == []


def test_a_text_full_of_faults_is_not_read_to_the_end() -> None:
    assert len(fails(b"[" + b"NaN," * 5_000 + b"1]", MalformedError)) == 100
