"""Reads a function's signature once, at registration: what it takes and what it gives.

A wrong signature found at run time would be found in the middle of somebody's order. Everything
that can be refused is refused here, with the way out in the message.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter

from activities.context import Context
from activities.errors import RegistrationError
from orchestrator.domain.jsontypes import Json

CONTEXT_NAMES: Final = frozenset({"ctx", "context"})
"""An only parameter without annotation is the context if it is called so, the input otherwise."""

_SHAPE: Final = "an activity looks like `def f(input: Model, ctx: Context) -> Result`"
_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How to call the function. An adapter of None means: JSON as it is, not validated."""

    takes_input: bool
    takes_context: bool
    input: TypeAdapter[Any] | None
    output: TypeAdapter[Any] | None


def read_signature(fn: Callable[..., Any], local_names: Mapping[str, Any]) -> Signature:
    """The signature of `fn`; `local_names` help to resolve annotations of nested functions.

    Raises `RegistrationError` for anything that cannot be called as `fn(input, ctx)`, `fn(input)`,
    `fn(ctx)` or `fn()`, and for annotations that pydantic cannot validate.
    """
    if not (inspect.isfunction(fn) or inspect.ismethod(fn)):
        raise RegistrationError(f"{fn!r} is not a function; {_SHAPE}")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise RegistrationError("a generator cannot be an activity: return a list instead")
    hints = _hints(fn, local_names)
    parameters = _positional(fn)
    has_context = bool(parameters) and _is_context(parameters[-1], hints, len(parameters))
    inputs = parameters[:-1] if has_context else parameters
    if len(inputs) > 1:
        raise RegistrationError(
            f"parameter `{inputs[1].name}` is one too many: one input, then the Context; {_SHAPE}"
        )
    if inputs and hints.get(inputs[0].name) is Context:
        raise RegistrationError(f"the input comes first, then the Context; {_SHAPE}")
    return Signature(
        takes_input=bool(inputs),
        takes_context=has_context,
        input=_adapter(hints.get(inputs[0].name, Any), "input") if inputs else None,
        output=_adapter(hints.get("return", Any), "return value"),
    )


def _positional(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters that Weft fills; keyword-only ones with a default are the author's own."""
    found: list[inspect.Parameter] = []
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in _POSITIONAL:
            found.append(parameter)
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RegistrationError(f"`*{parameter.name}` cannot be filled; {_SHAPE}")
        elif parameter.default is parameter.empty:
            raise RegistrationError(f"keyword `{parameter.name}` cannot be filled; {_SHAPE}")
    return found


def _is_context(parameter: inspect.Parameter, hints: Mapping[str, Any], count: int) -> bool:
    """Whether the last parameter is the context. A second parameter must be."""
    if parameter.name in hints:
        if hints[parameter.name] in (Context, Context | None):
            return True
        if count == 2:
            raise RegistrationError(
                f"the second parameter `{parameter.name}` must be the Context; {_SHAPE}"
            )
        return False
    return count == 2 or (count == 1 and parameter.name in CONTEXT_NAMES)


def _hints(fn: Callable[..., Any], local_names: Mapping[str, Any]) -> dict[str, Any]:
    try:
        # Not `get_type_hints`: it unrolls `Json`, so that it can no longer be recognised.
        return inspect.get_annotations(fn, locals=dict(local_names), eval_str=True)
    except NameError as exc:
        raise RegistrationError(
            f"an annotation cannot be resolved ({exc}); import the type at run time, "
            "not under TYPE_CHECKING"
        ) from exc
    except Exception as exc:  # annotations are code; anything may come out
        raise RegistrationError(f"an annotation is not a type: {exc}") from exc


def _adapter(annotation: Any, role: str) -> TypeAdapter[Any] | None:
    if annotation in (Any, object, Json):
        return None
    if isinstance(annotation, str):
        raise RegistrationError(
            f"the {role} type {annotation!r} is quoted although `from __future__ import "
            "annotations` does that already; remove the quotes"
        )
    try:
        adapter = TypeAdapter(annotation)
    except RecursionError:
        raise RegistrationError(
            f"the {role} type refers to itself without a name, as `Json` inside another type does; "
            "use pydantic's `JsonValue` there"
        ) from None
    except Exception as exc:  # pydantic raises several kinds
        text = str(exc).partition("\n")[0]
        raise RegistrationError(
            f"the {role} type {annotation!r} cannot be validated ({type(exc).__name__}: {text}); "
            "use a pydantic model, a dataclass, a TypedDict or a plain type, or leave it "
            "unannotated"
        ) from exc
    if not adapter.pydantic_complete:
        raise RegistrationError(
            f"the {role} type {annotation!r} names a type that is not known here; define or import "
            "it first, at run time"
        )
    return adapter
