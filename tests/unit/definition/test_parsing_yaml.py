"""YAML as read from a request: 1.2 types, no tags, no bombs, every fault with its path."""

import contextlib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain import yamltext
from orchestrator.domain.errors import InvalidError, MalformedError, TooLargeError, WeftError
from orchestrator.domain.parsing import parse

from definition_helpers import problems, tasks  # isort: skip


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both scanners of PyYAML must give the same: a machine may lack libyaml."""
    if request.param == "python":
        monkeypatch.setattr(yamltext, "_LOADER", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML was built without libyaml")


def read(text: str) -> Any:
    return parse(text.encode(), "yaml")


def fails(text: str, kind: type[WeftError] = MalformedError) -> list[tuple[str, str]]:
    with pytest.raises(kind) as caught:
        read(text)
    assert type(caught.value) is kind
    return [(item.field, item.code) for item in caught.value.details]


@pytest.mark.parametrize(
    "plain",
    [
        *("2027-01-01", "2027-01-01T00:00:00Z", "08:30", "1_000", "0o17", "012", "0x1F", "0b1"),
        *("on", "off", "yes", "no", "y", "n", "On", "NO", "=", "1.2.3", "+", ".", "1e", "-."),
    ],
)
def test_yaml_1_1_types_stay_text(plain: str) -> None:
    assert read(f"value: {plain}\nlist: ['{plain}']") == {"value": plain, "list": [plain]}


@pytest.mark.parametrize(
    ("plain", "value"),
    [
        *[("true", True), ("False", False), ("null", None), ("~", None), ("", None)],
        *[("0", 0), ("-0", 0), ("17", 17), ("+5", 5), ("-5", -5), ("'5'", "5"), ("!!str 5", "5")],
        *[("1.0", 1.0), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("-1.5E-3", -0.0015)],
    ],
)
def test_yaml_1_2_core_types(plain: str, value: object) -> None:
    result = read(f"value: {plain}")["value"]
    assert result == value
    assert type(result) is type(value)


def test_case_yaml_1_1_task_ids_are_text_or_refused_by_name() -> None:
    """CASES: task ids `on`, `no`, `null`, `012`, `1.0` -> text or refused by name."""
    assert list(read("on: 1\nno: 2\n012: 3")) == ["on", "no", "012"]
    for key in ("null", "1.0", "true", "~", "5", ".inf"):
        assert fails(f"tasks: {{{key}: {{}}}}")[0][0].startswith("$.tasks")
        with pytest.raises(MalformedError, match=key.replace(".", r"\.")):
            read(f"tasks:\n  {key}: {{}}")
    wait = "{type: wait, duration: 1s}"
    assert problems(tasks(f"{{on: {wait}, no: {wait}, yes: {wait}}}")) == []
    (problem,) = problems(tasks(f"{{012: {wait}}}"))
    assert problem.code == "BAD_TASK_ID"
    assert "'012'" in problem.message


def test_duplicate_keys_are_refused_at_any_depth() -> None:
    text = "tasks:\n  a: {x: 1}\n  b: [{y: 1, y: 2}]\n  a: {x: 2}"
    assert fails(text) == [("$.tasks.b[0].y", "DUPLICATE_KEY"), ("$.tasks.a", "DUPLICATE_KEY")]


def test_keys_that_are_not_text_are_refused() -> None:
    for text in ("? [1]\n: 2", "? {a: 1}\n: 2", "a: &x 1\n? *x\n: 3"):
        assert fails(text)[0][1] == "BAD_KEY"


def test_nan_and_infinities_are_refused() -> None:
    assert fails("a: .nan\nb: [-.inf, .Inf]") == [
        ("$.a", "NOT_A_NUMBER"),
        ("$.b[0]", "NOT_A_NUMBER"),
        ("$.b[1]", "NOT_A_NUMBER"),
    ]


def test_numbers_out_of_range_are_refused() -> None:
    assert fails("a: 9223372036854775808\nb: 1e999", InvalidError) == [
        ("$.a", "NUMBER_OUT_OF_RANGE"),
        ("$.b", "NUMBER_OUT_OF_RANGE"),
    ]
    assert read("a: 9223372036854775807") == {"a": 2**63 - 1}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['true']",
        "a: !!python/name:os.system x",
        "a: !!binary aGk=",
        "a: !!set {x}",
        "a: !custom 1",
        "a: !!int '5'",
        "a: !!timestamp 2027-01-01",
    ],
)
def test_tags_are_refused_and_construct_nothing(text: str) -> None:
    assert fails(text) == [("$.a", "YAML_TAG")]


def test_aliases_are_expanded() -> None:
    assert read("a: &a {x: [1, 2]}\nb: *a\nc: [*a]") == {
        "a": {"x": [1, 2]},
        "b": {"x": [1, 2]},
        "c": [{"x": [1, 2]}],
    }
    assert fails("a: &a {x: 1}\nb:\n  <<: *a") == [("$.b['<<']", "MERGE_KEY")]


def test_alias_bombs_and_cycles_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert fails("\n".join(lines)) == [("$", "ALIAS_BOMB")]
    long = "x" * 400_000
    assert fails(f"a: &a {long}\nb: [*a, *a, *a]") == [("$", "ALIAS_BOMB")]
    assert fails("a: &a [*a]") == [("$", "ALIAS_CYCLE")]
    assert fails("a: &a {b: {c: *a}}") == [("$", "ALIAS_CYCLE")]
    assert fails("a: *nowhere")[0][1] == "NOT_YAML"


def test_aliases_cannot_hide_depth() -> None:
    inner = "a: &a " + "[" * 100 + "]" * 100
    assert read(f"{inner}\nb: " + "[" * 27 + "*a" + "]" * 27)
    assert fails(f"{inner}\nb: " + "[" * 28 + "*a" + "]" * 28, InvalidError)[0][1] == "TOO_DEEP"


def test_nesting_stops_at_128() -> None:
    assert read("[" * 128 + "]" * 128)
    assert fails("[" * 129 + "]" * 129, InvalidError)[0][1] == "TOO_DEEP"
    assert fails("[" * 3_000, InvalidError)[0][1] == "TOO_DEEP"


def test_one_document_only() -> None:
    assert fails("a: 1\n---\nb: 2") == [("$", "SEVERAL_DOCUMENTS")]
    assert fails("") == [("$", "NOT_YAML")]
    assert read("---\na: 1\n...") == {"a": 1}


@pytest.mark.parametrize(
    "text", ["a: [", "a: 1\n- b", "\tb", "a: 'x", "%YAML 1.1", "a: \0", "a: @"]
)
def test_what_is_not_yaml(text: str) -> None:
    assert fails(text)[0][1] == "NOT_YAML"


@pytest.mark.parametrize(
    ("text", "hint"), [("a:\n\tb: 1", True), ("a:\n  b: 1\n \tc: 2", True), ("a: [\tb", False)]
)
def test_a_tab_that_indents_is_named(text: str, hint: bool) -> None:
    """The parsers say "found character that cannot start any token"."""
    with pytest.raises(MalformedError) as caught:
        read(text)
    assert ("spaces" in caught.value.details[0].hint) is hint


def test_encoding_and_size() -> None:
    with pytest.raises(MalformedError, match="UTF-8"):
        parse(b"a: \xff", "yaml")
    assert parse(b"\xef\xbb\xbfa: 1", "yaml") == {"a": 1}
    with pytest.raises(TooLargeError):
        parse(b"#" * 1_048_577, "yaml")


def test_surrogates_never_come_through() -> None:
    try:
        value = read('a: "\\ud800"')
    except MalformedError:
        return
    assert value == {"a": "\ufffd"}


PRINTABLE = st.text(
    st.characters(
        exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff\u2028\u2029\x85"
    )
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | PRINTABLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PRINTABLE, inner, max_size=4),
    max_leaves=15,
)


@given(VALUES)
def test_json_text_read_as_yaml_is_the_same(value: Any) -> None:
    text = json.dumps({"value": value}, ensure_ascii=False)
    assert parse(text.encode(), "yaml") == parse(text.encode(), "json")


@given(st.binary(max_size=60) | st.text(alphabet="ab:-[]{}&*!?|>'\"#%@ \n\t,.~<0123", max_size=60))
def test_any_bytes_give_a_value_or_our_error(data: bytes | str) -> None:
    with contextlib.suppress(WeftError):
        parse(data if isinstance(data, bytes) else data.encode(), "yaml")
