"""Registration: names, duplicates, signatures, discovery."""

from __future__ import annotations

import asyncio
import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from activities_support import failure_from, make_call
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from activities import Context, activity
from activities.errors import RegistrationError
from activities.registry import Registry, default_registry, discover
from activities.runner import Runner, default_runner
from orchestrator.domain.jsontypes import Json


class Model(BaseModel):
    n: int


@dataclass
class Data:
    n: int


class Typed(TypedDict):
    n: int


def nothing() -> None: ...


@pytest.mark.parametrize("name", ["orders", "orders.validate", "a1_b.c.d_2"])
def test_name_is_accepted(name: str) -> None:
    registry = Registry()
    registry.register(name, nothing)
    assert registry.names() == {name}


@pytest.mark.parametrize(
    "name",
    ["", "Orders", "orders.", ".orders", "a..b", "1a", "a-b", "a b", "ä", "a\n", "a." + "b" * 200],
)
def test_name_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match="is not valid"):
        Registry().register(name, nothing)


@pytest.mark.parametrize("name", ["weft", "weft.http", "weft.mine"])
def test_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match="kept for Weft itself"):
        Registry().register(name, nothing)


def test_duplicate_name_names_both_places() -> None:
    registry = Registry()

    @activity("orders.pack", registry=registry)
    def first() -> None: ...

    with pytest.raises(RegistrationError) as caught:

        @activity("orders.pack", registry=registry)
        def second() -> None: ...

    text = str(caught.value)
    assert "first (" in text
    assert "second (" in text
    assert text.count("test_activity_registry.py:") == 2


def test_decorator_returns_the_function_and_keeps_the_dependency() -> None:
    registry = Registry()

    def double(input: int) -> int:
        return 2 * input

    assert activity("double", dependency="math", registry=registry)(double) is double
    found = registry.get("double")
    assert found is not None
    assert found.dependency == "math"
    assert not found.is_async
    assert "double" not in default_registry().names()


def test_empty_dependency_is_refused() -> None:
    with pytest.raises(RegistrationError, match="dependency"):
        Registry().register("a", nothing, dependency=" ")


async def test_every_accepted_signature_is_called_with_what_it_takes() -> None:
    class Local(BaseModel):
        n: int

    def model(input: Model, ctx: Context) -> int:
        return input.n * ctx.attempt

    def model_only(input: Model) -> int:
        return input.n

    def local_model(input: Local) -> int:
        return input.n

    def data(input: Data) -> int:
        return input.n

    def typed(input: Typed) -> int:
        return input["n"]

    def plain(input: dict[str, int]) -> int:
        return input["n"]

    def raw(input, ctx):  # type: ignore[no-untyped-def]
        return input["n"] * ctx.attempt

    def json_alias(input: Json) -> Json:
        assert isinstance(input, dict)
        return input["n"]

    def anything(input: Any) -> Any:
        return input["n"]

    def optional_context(input: Model, ctx: Context | None = None) -> int:
        assert ctx is not None
        return input.n

    def own_keyword(input: Model, *, factor: int = 1) -> int:
        return input.n * factor

    async def coroutine(input: Model, ctx: Context) -> int:
        await asyncio.sleep(0)
        return input.n

    @functools.wraps(model)
    def wrapped(*args: Any) -> Any:
        return model(*args)

    def context_only(ctx: Context) -> int:
        return 7 * ctx.attempt

    def context_by_name(ctx) -> int:  # type: ignore[no-untyped-def]
        return 7 * ctx.attempt

    def none_at_all() -> int:
        return 7

    functions = [
        model, model_only, local_model, data, typed, plain, raw, json_alias, anything,
        optional_context, own_keyword, coroutine, wrapped, context_only, context_by_name,
        none_at_all,
    ]  # fmt: skip
    registry = Registry()
    for number, function in enumerate(functions):
        activity(f"f{number}", registry=registry)(function)
    runner = Runner(registry)
    for number, function in enumerate(functions):
        assert await runner.run(make_call(f"f{number}", {"n": 7})) == 7, function.__name__


def test_wrong_signatures_are_refused_with_a_reason() -> None:
    class Unknown:
        pass

    def three(a: int, b: Context, c: int) -> None: ...
    def not_context(a: int, b: int) -> None: ...
    def swapped(ctx: Context, a: int) -> None: ...
    def two_contexts(a: Context, b: Context) -> None: ...
    def stars(*args: int) -> None: ...
    def double_stars(**options: int) -> None: ...
    def keyword(a: int, *, needed: int) -> None: ...
    def unknown_input(a: Unknown) -> None: ...
    def unknown_output() -> Unknown: ...
    def unresolved(a: Nowhere) -> None: ...  # noqa: F821  # pyright: ignore
    def quoted(a: "Model") -> None: ...  # noqa: UP037
    def unresolved_inside(a: list["Nowhere"]) -> None: ...  # noqa: F821, UP037  # pyright: ignore
    def nested_json(a: dict[str, Json]) -> None: ...
    def generator():  # type: ignore[no-untyped-def]
        yield 1

    async def async_generator():  # type: ignore[no-untyped-def]
        yield 1

    for function, reason in [
        (three, "`b` is one too many"),
        (not_context, "must be the Context"),
        (swapped, "must be the Context"),
        (two_contexts, "input comes first"),
        (stars, r"`\*args` cannot be filled"),
        (double_stars, r"`\*options` cannot be filled"),
        (keyword, "`needed` cannot be filled"),
        (unknown_input, "input type .* cannot be validated"),
        (unknown_output, "return value type .* cannot be validated"),
        (unresolved, "Nowhere.* import the type at run time"),
        (nested_json, "JsonValue"),
        (generator, "generator"),
        (async_generator, "generator"),
        (len, "not a function"),
        (Model, "not a function"),
        (functools.partial(nothing), "not a function"),
    ]:
        with pytest.raises(RegistrationError, match=reason) as caught:
            activity("bad.one", registry=Registry())(function)
        assert "bad.one" in str(caught.value)


def test_copy_is_independent() -> None:
    registry = Registry()
    registry.register("a", nothing)
    registry.copy().register("b", nothing)
    assert registry.names() == {"a"}


def _package(folder: Path, name: str, files: dict[str, str]) -> None:
    for path, text in files.items():
        target = folder / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def test_discover_imports_every_module_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(
        tmp_path,
        "found_activities",
        {
            "__init__.py": "loaded = []\n",
            "one.py": "from found_activities import loaded\nloaded.append('one')\n",
            "__main__.py": "raise AssertionError('a script is not imported')\n",
            "deep/__init__.py": "",
            "deep/two.py": "from found_activities import loaded\nloaded.append('two')\n",
        },
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    discover("found_activities")
    discover("found_activities")
    assert sorted(sys.modules["found_activities"].loaded) == ["one", "two"]


def test_discover_names_every_module_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(
        tmp_path,
        "broken_activities",
        {
            "__init__.py": "",
            "typo.py": "def f(:\n",
            "script.py": "import sys\nsys.exit(0)\n",
            "deep/__init__.py": "raise ValueError('no')\n",
            "fine.py": "",
        },
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RegistrationError) as caught:
        discover("broken_activities")
    text = str(caught.value)
    for name in ("broken_activities.typo", "broken_activities.script", "broken_activities.deep"):
        assert text.count(f"{name}: ") == 1, text
    assert "fine" not in text


async def test_default_runner_has_samples_and_built_ins_but_lists_only_what_may_be_named() -> None:
    runner = default_runner(egress_allow=())
    assert {"orders.validate", "census.count_file"} <= runner.names()
    assert not any(name.startswith("weft") for name in runner.names())
    assert await runner.run(make_call("weft.transform", {"a": [1, None]})) == {"a": [1, None]}
    await runner.close()


async def test_unknown_activity_is_retryable_and_names_the_nearest() -> None:
    failure = await failure_from(default_runner(egress_allow=()).run(make_call("orders.validat")))
    assert failure.type == "UNKNOWN_ACTIVITY"
    assert failure.retryable
    assert "orders.validate" in failure.message


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
))  # fmt: skip
def test_transform_gives_back_any_json_exactly(value: Any) -> None:
    result = asyncio.run(default_runner(egress_allow=()).run(make_call("weft.transform", value)))
    assert result == value
    assert repr(result) == repr(value)  # 1 and 1.0 and True are equal for Python, not for CEL
