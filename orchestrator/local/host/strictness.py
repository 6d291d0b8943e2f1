"""The checks of the real Python worker on a function's parameters and annotations.

The worker refuses them when it indexes, that is at deployment; here they are refused at start, with
the same rules. Whether an annotation suits a binding is asked of the converters of
`azure.functions` themselves, as the worker does.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import azure.functions as func

RETURN = "$return"


def problems(
    name: str, function: Callable[..., Any], bindings: Sequence[Any], *, many: bool
) -> list[str]:
    """What the worker would refuse about `function`, each text naming it.

    `bindings`: the binding objects of the decorators. `many`: the trigger hands over a batch."""
    found: list[str] = []
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:
        return [f"cannot load the {name} function: its annotations do not evaluate: {error}"]
    bound = {b.name: b for b in bindings if b.name != RETURN}
    returned = next((b for b in bindings if b.name == RETURN), None)
    parameters = dict(inspect.signature(function).parameters)
    if "context" in parameters and "context" not in bound:
        del parameters["context"]
        if getattr(hints.get("context", func.Context), "__name__", "") != "Context":
            found.append('the "context" parameter must be annotated azure.functions.Context')
    if extra := sorted(set(parameters) - set(bound)):
        found.append(f"parameters that are no binding's: {', '.join(extra)}")
    if missing := sorted(set(bound) - set(parameters)):
        found.append(f"bindings without a parameter of their name: {', '.join(missing)}")
    for parameter in parameters:
        # Other bindings than the trigger are not served here, see `indexing`.
        if parameter in hints and parameter in bound and bound[parameter].type.endswith("Trigger"):
            found += _input_problems(parameter, hints[parameter], bound[parameter].type, many)
    if not any(returns_implicitly(b.type) for b in bindings):
        found += _return_problems(hints, returned)
    return [f"cannot load the {name} function: {text}" for text in found]


def returns_implicitly(binding: str) -> bool:
    """Whether a function with this trigger returns a value without an output binding, as those of
    Durable Functions do. Of their return annotations the worker asks nothing."""
    converter: Any = func.get_binding_registry().get(binding)
    return converter is not None and bool(
        getattr(converter, "has_implicit_output", lambda: False)()
    )


def _input_problems(parameter: str, annotation: Any, binding: str, many: bool) -> list[str]:
    if not (isinstance(annotation, type) or _is_typing_generic(annotation)) or isinstance(
        annotation, types.GenericAlias
    ):
        return [
            f"{parameter} has the annotation {_show(annotation)}, which the worker does not take "
            "(use typing.List[...] for a batch)"
        ]
    if not _accepts(binding, "check_input_type_annotation", annotation):
        return [f"{parameter}: the binding {binding} does not take {_show(annotation)}"]
    if binding == "serviceBusTrigger" and _is_typing_generic(annotation) != many:
        return [f"{parameter}: {_show(annotation)} does not fit the trigger's cardinality"]
    return []


def _return_problems(hints: Mapping[str, Any], returned: Any) -> list[str]:
    if "return" not in hints:
        return []
    annotation = hints["return"]
    if returned is None:
        if annotation is not type(None):
            return [f"returns {_show(annotation)} but has no output binding"]
        return []
    if not isinstance(annotation, type) or isinstance(annotation, types.GenericAlias):
        return [f"the return annotation {_show(annotation)} is not a plain type"]
    if not _accepts(returned.type, "check_output_type_annotation", annotation):
        return [f"the binding {returned.type} does not take a returned {_show(annotation)}"]
    return []


def _accepts(binding: str, check: str, annotation: Any) -> bool:
    converter: Any = func.get_binding_registry().get(binding)
    try:
        return converter is not None and bool(getattr(converter, check)(annotation))
    except TypeError:  # the converter asks issubclass() of something that is no class
        return False


def _is_typing_generic(annotation: Any) -> bool:
    origin = typing.get_origin(annotation)
    return (
        isinstance(origin, type)
        and origin is not types.UnionType
        and not isinstance(annotation, types.GenericAlias)
    )


def _show(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
