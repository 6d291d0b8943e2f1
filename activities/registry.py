"""Activities by name, and the decorator that puts them there.

Names are checked when a module is imported, so that a clash or a typo stops the start of the app
and not an execution in the night.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeVar

from activities.errors import RegistrationError
from activities.signature import Signature, read_signature
from orchestrator.domain.dependencies import NAME_RULE, is_name

NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\Z")
MAX_NAME_CHARS: Final = 128
RESERVED: Final = "weft"  # first part of the names of the built-in activities

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A registered activity."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    place: str  # where it was defined, for messages
    dependency: str | None  # what it calls; activities of one dependency share a circuit breaker
    signature: Signature

    @property
    def built_in(self) -> bool:
        """Whether it belongs to a task type of its own and cannot be named by a definition."""
        return self.name.partition(".")[0] == RESERVED


class Registry:
    """A set of activities. The app has one; tests make their own."""

    def __init__(self) -> None:
        self._activities: dict[str, Activity] = {}

    def __iter__(self) -> Iterator[Activity]:
        return iter(self._activities.values())

    def get(self, name: str) -> Activity | None:
        """The activity of that name, or None."""
        return self._activities.get(name)

    def names(self) -> frozenset[str]:
        """Names that a definition may use: all but the built-in ones."""
        return frozenset(a.name for a in self._activities.values() if not a.built_in)

    def copy(self) -> Registry:
        """An independent registry with the same activities."""
        other = Registry()
        other._activities = dict(self._activities)
        return other

    def register(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        dependency: str | None = None,
        built_in: bool = False,
        local_names: Mapping[str, Any] | None = None,
    ) -> Activity:
        """Add `fn` under `name`. Raises `RegistrationError`: bad or reserved name, name taken
        (both places are named), signature that cannot be called."""
        place = place_of(fn)
        if not NAME.match(name) or len(name) > MAX_NAME_CHARS:
            raise RegistrationError(
                f"{place}: activity name {name!r} is not valid; use lower-case words joined by "
                f"dots, such as `orders.validate`, at most {MAX_NAME_CHARS} characters"
            )
        if (name.partition(".")[0] == RESERVED) is not built_in:
            raise RegistrationError(f"{place}: names under `{RESERVED}` are kept for Weft itself")
        if dependency is not None:
            dependency = dependency.strip().lower()  # as hosts are
            if not is_name(dependency):
                raise RegistrationError(
                    f"{place}: the dependency of {name!r} is not valid; use {NAME_RULE}"
                )
        taken = self._activities.get(name)
        if taken is not None:
            raise RegistrationError(
                f"activity {name!r} is registered twice: by {taken.place} and by {place}"
            )
        try:
            signature = read_signature(fn, local_names or {})
        except RegistrationError as exc:
            raise RegistrationError(f"activity {name!r} ({place}): {exc}") from exc
        found = Activity(
            name=name,
            fn=fn,
            is_async=inspect.iscoroutinefunction(fn),
            place=place,
            dependency=dependency,
            signature=signature,
        )
        self._activities[name] = found
        return found


_DEFAULT: Final = Registry()


def default_registry() -> Registry:
    """The registry that `@activity` fills unless told otherwise."""
    return _DEFAULT


def activity(
    name: str, *, dependency: str | None = None, registry: Registry | None = None
) -> Callable[[F], F]:
    """Register the decorated function, plain or `async def`, as the activity `name`.

    The function is returned unchanged, so that a test can call it directly. It takes its input,
    then a `Context`; both may be left out. Annotated types are validated by pydantic, both ways.
    `dependency` names the service it calls. Raises `RegistrationError`.
    """

    def register(fn: F) -> F:
        # The caller's locals resolve annotations of functions that are defined inside a function.
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        target = registry if registry is not None else _DEFAULT
        target.register(
            name, fn, dependency=dependency, local_names=caller.f_locals if caller else None
        )
        return fn

    return register


def discover(package: str = "activities") -> None:
    """Import every module below `package`, so that its decorators run.

    Raises `RegistrationError` that names every module which cannot be imported: an app that
    silently starts without some of its activities fails its executions instead.
    """
    faults: list[tuple[str, BaseException]] = []
    _import_below(importlib.import_module(package), faults)
    if faults:
        lines = [f"{name}: {type(exc).__name__}: {exc}" for name, exc in faults]
        raise RegistrationError(
            "modules of activities that cannot be imported:\n" + "\n".join(lines)
        ) from faults[0][1]


def _import_below(package: ModuleType, faults: list[tuple[str, BaseException]]) -> None:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if found.name.endswith(".__main__"):
            continue  # a script, not a module
        try:
            module = importlib.import_module(found.name)
        except (Exception, SystemExit) as exc:  # a script without a main guard exits here
            faults.append((found.name, exc))
        else:
            if found.ispkg:
                _import_below(module, faults)


def place_of(fn: Callable[..., Any]) -> str:
    """`module.function (file:line)`, as far as it is known."""
    inner = inspect.unwrap(fn)
    name = f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', repr(inner))}"
    code = getattr(inner, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
