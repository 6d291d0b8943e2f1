"""Code workflows by name and version, and the decorator that puts them there.

Everything that can be refused is refused when the module is imported: what is found later is found
by an execution that has begun.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from activities.errors import RegistrationError
from activities.registry import place_of
from orchestrator.domain.built_in import PREFIX
from orchestrator.domain.definition_types import NAME_PATTERN
from orchestrator.domain.orchestration import function_name

NAME: Final = re.compile(NAME_PATTERN)
F = TypeVar("F", bound=Callable[..., Any])
_SHAPE: Final = "write `def flow(ctx: CodeContext, input: Model)`, with `yield` inside"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeWorkflow:
    """One version of a code workflow. An adapter of None means: any JSON."""

    name: str
    version: int
    fn: Callable[..., Generator[Any, Any, Any]]
    takes_input: bool
    input: TypeAdapter[Any] | None
    output: TypeAdapter[Any] | None
    description: str
    place: str

    @property
    def function(self) -> str:
        """Name of its Azure function."""
        return function_name(self.name, self.version)


class CodeRegistry:
    """A set of code workflows (`ports_durable.CodeWorkflows`). The app has one; tests make their
    own."""

    def __init__(self) -> None:
        self._all: dict[str, dict[int, CodeWorkflow]] = {}

    def __iter__(self) -> Iterator[CodeWorkflow]:
        return (self._all[name][version] for name in self._all for version in self.versions(name))

    def names(self) -> frozenset[str]:
        """All that are registered."""
        return frozenset(self._all)

    def versions(self, name: str) -> tuple[int, ...]:
        """Its versions, ascending."""
        return tuple(sorted(self._all.get(name, ())))

    def get(self, name: str, version: int) -> CodeWorkflow:
        """Raises `KeyError`, with what there is."""
        try:
            return self._all[name][version]
        except KeyError:
            there = ", ".join(str(one) for one in self.versions(name)) or "none"
            raise KeyError(
                f"code workflow {name} version {version} is not deployed; deployed: {there}"
            ) from None

    def function(self, name: str, version: int) -> str:
        """The Azure function of a version. Raises `KeyError`."""
        return self.get(name, version).function

    def description(self, name: str, version: int) -> str:
        """First line of its docstring, or what the decorator was given. Raises `KeyError`."""
        return self.get(name, version).description

    def input_schema(self, name: str, version: int) -> dict[str, Any] | None:
        """JSON Schema of its input; None: anything. Raises `KeyError`."""
        adapter = self.get(name, version).input
        return None if adapter is None else adapter.json_schema()

    def output_schema(self, name: str, version: int) -> dict[str, Any] | None:
        """JSON Schema of its output; None: anything. Raises `KeyError`."""
        adapter = self.get(name, version).output
        return None if adapter is None else adapter.json_schema(mode="serialization")

    def register(
        self,
        name: str,
        version: int,
        fn: Callable[..., Any],
        *,
        input: Any = None,
        output: Any = None,
        description: str = "",
        built_in: bool = False,
    ) -> CodeWorkflow:
        """Add `fn`. `built_in`: it is Weft's own. Raises `RegistrationError`: bad name or version,
        taken, no generator, wrong signature, a type that pydantic cannot validate."""
        where = place_of(fn)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise RegistrationError(
                f"{where}: the workflow name {name!r} is not valid; use lower-case letters, digits "
                "and hyphens, a letter first, at most 63 characters"
            )
        if name.startswith(PREFIX) and not built_in:
            raise RegistrationError(
                f"{where}: names that begin with {PREFIX!r} are Weft's own; choose another for "
                f"{name!r}"
            )
        if type(version) is not int or not 1 <= version <= MAX_VERSION:
            raise RegistrationError(
                f"{where}: the version {version!r} of {name} must be a whole number from 1"
            )
        if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
            raise RegistrationError(
                f"{where}: {name} is `async def`, which cannot be replayed; use a plain `def` and "
                "`yield` instead of `await`"
            )
        if not inspect.isgeneratorfunction(fn):
            raise RegistrationError(
                f"{where}: {name} never yields, so it would run no step; {_SHAPE}"
            )
        taken = self._all.get(name, {}).get(version)
        if taken is not None:
            raise RegistrationError(
                f"code workflow {name} version {version} is registered twice: by {taken.place} and "
                f"by {where}; give the changed one the next version"
            )
        found = CodeWorkflow(
            name=name,
            version=version,
            fn=fn,
            takes_input=_takes_input(fn, f"{where}: {name}"),
            input=_adapter(input, f"{where}: the input type of {name}"),
            output=_adapter(output, f"{where}: the output type of {name}"),
            description=description or (inspect.getdoc(fn) or "").partition("\n")[0],
            place=where,
        )
        self._all.setdefault(name, {})[version] = found
        return found


MAX_VERSION: Final = 1_000_000

_DEFAULT: Final = CodeRegistry()


def default_code_registry() -> CodeRegistry:
    """The registry that `@code_workflow` fills unless told otherwise."""
    return _DEFAULT


def code_workflow(
    name: str,
    version: int = 1,
    *,
    input: Any = None,
    output: Any = None,
    description: str = "",
    registry: CodeRegistry | None = None,
) -> Callable[[F], F]:
    """Register the decorated generator function as a version of the code workflow `name`.

    `input`, `output`: pydantic models or other types, checked at start and end; None: any JSON.
    `description`: shown in lists; the first line of the docstring unless given.
    Versions stand side by side: leave the old function where it is until nothing runs on it. The
    function is returned unchanged. Raises `RegistrationError`.
    """

    def register(fn: F) -> F:
        target = registry if registry is not None else _DEFAULT
        target.register(name, version, fn, input=input, output=output, description=description)
        return fn

    return register


def _takes_input(fn: Callable[..., Any], where: str) -> bool:
    parameters = list(inspect.signature(fn).parameters.values())
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not 1 <= len(parameters) <= 2 or any(one.kind not in plain for one in parameters):
        raise RegistrationError(f"{where} takes the context, then its input; {_SHAPE}")
    return len(parameters) == 2


def _adapter(type_: Any, what: str) -> TypeAdapter[Any] | None:
    if type_ is None or type_ is Any:
        return None
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(type_)
        adapter.json_schema()
    except Exception as error:  # pydantic raises several kinds
        text = str(error).partition("\n")[0]
        raise RegistrationError(
            f"{what} cannot be validated ({type(error).__name__}: {text}); use a pydantic model, a "
            "dataclass or a plain type, or leave it out"
        ) from error
    return adapter
