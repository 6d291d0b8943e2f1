"""JSON with `${…}` in its strings.

- A string that is exactly one `${…}` keeps the type of the value; inside other text the value is
  turned into text (`cel_values.to_text`).
- `$${` is a literal `${`. A `$` before anything else is itself.
- Keys of objects are not templates: they are names, and names are fixed when a workflow is
  published.
- Data is never compiled. Only the strings of the definition are read for `${`; what evaluation
  gives is a plain value, whatever it contains. Otherwise a customer called `${secrets.API_KEY}`
  would be told the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, cast

from orchestrator.domain.cel_budget import budgeted
from orchestrator.domain.cel_program import Expression
from orchestrator.domain.cel_scan import ExpressionError, find_end
from orchestrator.domain.cel_scope import Scope
from orchestrator.domain.cel_values import to_text
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import MAX_DEPTH, child_path

Evaluate: TypeAlias = Callable[[Scope], Json]
ToText: TypeAlias = Callable[[str], str]
Problem: TypeAlias = tuple[str, str, str]


class TemplateError(Exception):
    """A template does not compile. `problems`: every fault as (path, source, reason); the path is
    relative to the template (`""` for itself, `.body.amount`, `[0]`)."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{path}: {reason}" for path, _, reason in problems))
        self.problems = problems


class Template:
    """A compiled template. Immutable, usable from any thread.

    `expressions`: (path relative to the template, expression) in order. `names`, `tasks`,
    `secrets`, `dynamic_tasks`: the unions over them. `constant`: there is none. `single`: the
    expression, if the template is exactly one. `source`: as it was written. `heavy`: evaluating it
    may take long.
    """

    __slots__ = (
        "_evaluate",
        "_value",
        "constant",
        "dynamic_tasks",
        "expressions",
        "heavy",
        "names",
        "secrets",
        "single",
        "source",
        "tasks",
    )

    def __init__(self, value: Json, texts: Mapping[str, ToText]) -> None:
        """Use `compile`."""
        self.source = value
        compiler = _Compiler(texts)
        evaluate = compiler.node(value, "", 0)
        if compiler.problems:
            raise TemplateError(compiler.problems)
        self.expressions = tuple(compiler.expressions)
        found = [expression for _, expression in self.expressions]
        self.names = frozenset[str]().union(*(e.names for e in found))
        self.tasks = frozenset[str]().union(*(e.tasks for e in found))
        self.secrets = frozenset[str]().union(*(e.secrets for e in found))
        self.dynamic_tasks = any(e.dynamic_tasks for e in found)
        self.heavy = any(e.heavy for e in found)
        self.constant = not callable(evaluate)
        self.single = found[0] if isinstance(value, str) and compiler.whole else None
        self._evaluate = evaluate if callable(evaluate) else None
        self._value: Json = None if callable(evaluate) else evaluate

    @classmethod
    def compile(cls, value: Json, *, texts: Mapping[str, ToText] | None = None) -> Template:
        """The template of `value`. `texts`: path -> how a value inside the text there is written
        (default: as it is). It may raise `ValueError` with a reason. Raises `TemplateError` with
        all faults."""
        return cls(value, texts or {})

    def evaluate(self, scope: Scope) -> Json:
        """The value in `scope`; it may share parts with it and with the template, so none must
        be changed. Raises `ExpressionError` with the path relative to the template."""
        if self._evaluate is None:
            return self._value
        with budgeted():  # else as many expressions as fit into a definition had one each
            return self._evaluate(scope)


class _Compiler:
    """Turns values into functions of the scope; what holds no expression stays a value."""

    def __init__(self, texts: Mapping[str, ToText]) -> None:
        self.texts = texts
        self.expressions: list[tuple[str, Expression]] = []
        self.problems: list[Problem] = []
        self.whole = False  # the last string was exactly one expression

    def node(self, value: Json, path: str, depth: int) -> Json | Evaluate:
        if isinstance(value, str):
            return self._string(value, path) if "${" in value else value
        if not isinstance(value, dict | list):
            return value
        if depth >= MAX_DEPTH:
            self.problems.append((path, "", f"values are nested more than {MAX_DEPTH} deep"))
            return None
        if isinstance(value, dict):
            fields = [(k, self.node(v, child_path(path, k), depth + 1)) for k, v in value.items()]
            if any(callable(v) for _, v in fields):
                return _object(fields)
            return {k: cast(Json, v) for k, v in fields}
        items = [self.node(v, child_path(path, i), depth + 1) for i, v in enumerate(value)]
        return _array(items) if any(callable(v) for v in items) else cast(Json, items)

    def _string(self, text: str, path: str) -> Json | Evaluate:
        parts: list[str | Evaluate] = []
        write = self.texts.get(path)
        self.whole = False
        try:
            for literal, source in _pieces(text):
                if source is None:
                    parts.append(literal)
                    continue
                evaluate = self._expression(source, path)
                if len(source) + 3 == len(text):
                    self.whole = True
                    return evaluate
                parts.append(_written(evaluate, source, path, write) if write else evaluate)
        except ExpressionError as error:
            self.problems.append((path, error.source, error.reason))
        if not any(callable(part) for part in parts):
            return "".join(cast("list[str]", parts))
        return lambda scope: "".join(
            [part if isinstance(part, str) else to_text(part(scope)) for part in parts]
        )

    def _expression(self, source: str, path: str) -> Evaluate:
        try:
            expression = Expression.compile(source)
        except ExpressionError as error:
            self.problems.append((path, error.source, error.reason))
            return lambda scope: None
        self.expressions.append((path, expression))

        def evaluate(scope: Scope) -> Json:
            try:
                return expression.evaluate(scope)
            except ExpressionError as error:
                raise error.at(path) from None

        return evaluate


def _written(evaluate: Evaluate, source: str, path: str, write: ToText) -> Evaluate:
    def written(scope: Scope) -> Json:
        try:
            return write(to_text(evaluate(scope)))
        except ValueError as error:
            raise ExpressionError(str(error), source=source, path=path) from None

    return written


def _pieces(text: str) -> Iterator[tuple[str, str | None]]:
    """Literal text, as (text, None), and expressions, as ("", source), in order."""
    position = 0
    while True:
        found = text.find("${", position)
        if found < 0:
            break
        if found > position and text[found - 1] == "$":
            yield text[position : found - 1] + "${", None
            position = found + 2
            continue
        if found > position:
            yield text[position:found], None
        end = find_end(text, found + 2)
        yield "", text[found + 2 : end]
        position = end + 1
    if position < len(text):
        yield text[position:], None


def _object(fields: list[tuple[str, Json | Evaluate]]) -> Evaluate:
    return lambda scope: {k: v(scope) if callable(v) else v for k, v in fields}


def _array(items: list[Json | Evaluate]) -> Evaluate:
    return lambda scope: [v(scope) if callable(v) else v for v in items]
