"""One compiled expression.

A plain path is walked in Python (`cel_path`), anything else is run by the CEL library, which gets
the parts of the scope that the expression names and the Python functions that it calls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, cast

from orchestrator.domain.cel_budget import (
    FEW_USES,
    HANDED_PER_STEP,
    LOOKED_AT_PER_STEP,
    MAX_BYTES,
    TOO_MUCH,
    budgeted,
    looked_at,
    spend,
    spent,
    weigh,
)
from orchestrator.domain.cel_functions import implementations
from orchestrator.domain.cel_library import cel, is_library_error
from orchestrator.domain.cel_loops import CompiledLoop, LoopRun, compile_loop
from orchestrator.domain.cel_path import Path, PathError, as_path, walk
from orchestrator.domain.cel_reasons import compile_reason, run_reason
from orchestrator.domain.cel_refs import References, references
from orchestrator.domain.cel_roots import ROOTS
from orchestrator.domain.cel_scan import ExpressionError, tokenize
from orchestrator.domain.cel_scope import Scope, readable, tree
from orchestrator.domain.cel_values import ValueRefused, to_json
from orchestrator.domain.jsontypes import Json

_CACHED: Final = 16_384  # compiled expressions; a large workflow has 10,000 tasks


class Expression:
    """A compiled CEL expression. Immutable, cached by source, usable from any thread.

    `names`: root names it reads, without macro variables; unknown ones are listed too, refusing
    them is validation's. `tasks`, `secrets`: the ids and names referred to. `dynamic_tasks`: it
    may read any task, chosen at run time. `path`: root and keys, if it is nothing but a path.
    `reads`: each root name that it uses anywhere, with the literal keys that follow.
    """

    __slots__ = (
        "_functions",
        "_loops",
        "_program",
        "_reads",
        "_uses",
        "dynamic_tasks",
        "heavy",
        "names",
        "path",
        "reads",
        "secrets",
        "source",
        "tasks",
    )

    def __init__(
        self,
        source: str,
        found: References,
        path: Path | None,
        program: cel.Program | None = None,
        loops: tuple[CompiledLoop, ...] = (),
    ) -> None:
        """Use `compile`."""
        self.source = source
        self.names = frozenset(found.names)
        self.tasks = frozenset(found.tasks)
        self.dynamic_tasks = found.dynamic_tasks
        self.secrets = frozenset(found.secrets)
        self.path = path
        self.reads = tuple(
            (name, keys)
            for paths in (found.paths, *(loop.paths for loop in found.loops))
            for name, all_keys in paths.items()
            if name in ROOTS
            for keys in all_keys
        )
        self._program = program
        self._loops = loops
        self._uses = found.root_uses
        self._reads = [(name, tree(keys)) for name, keys in found.paths.items() if name in ROOTS]
        self._functions = implementations(found.functions)
        self.heavy = bool(loops or self._functions)

    @classmethod
    def compile(cls, source: str) -> Expression:
        """The expression of `source` (without `${` and `}`). Raises `ExpressionError`."""
        return _compiled(source)

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"

    def evaluate(self, scope: Scope) -> Json:
        """The value in `scope`; it may share parts with it, so neither must be changed.

        Raises `ExpressionError`.
        """
        if self.path is not None:
            root, keys = self.path
            try:
                return cast(Json, walk(root, keys, getattr(scope, root)))
            except PathError as error:
                raise ExpressionError(str(error), source=self.source) from None
        with budgeted():
            return self._run(scope)

    def _run(self, scope: Scope) -> Json:
        assert self._program is not None
        loops: LoopRun | None = None
        try:
            variables = {name: readable(scope, name, keys) for name, keys in self._reads}
            weight = weigh(variables)
            spend(weight // HANDED_PER_STEP)
            if self._uses > FEW_USES:
                if weight * self._uses > MAX_BYTES:
                    raise ValueRefused(TOO_MUCH)
                spend(looked_at(weight, self._uses) // LOOKED_AT_PER_STEP)
            if self._loops:
                loops = LoopRun(self._loops, self._functions, scope)
                context = cel.Context(variables, loops.functions)
            elif self._functions:
                context = cel.Context(variables, self._functions)
            else:
                context = variables
            return to_json(self._program.execute(context))
        except ValueRefused as error:
            reason = str(error)
        except BaseException as error:
            if not is_library_error(error):
                raise
            reason = run_reason(error, self.source, loops.failure if loops else "")
            if spent():
                reason = TOO_MUCH
        raise ExpressionError(reason, source=self.source)


@lru_cache(maxsize=_CACHED)
def _compiled(source: str) -> Expression:
    source = source.strip()
    tokens = tokenize(source)
    if not tokens:
        raise ExpressionError("the expression is empty", source=source)
    found = references(source, tokens)
    path = as_path(tokens)
    if path is not None:
        return Expression(source, found, path)
    try:
        program = cel.compile(source)
        if found.rewritten != source:  # after the source itself, whose faults have right columns
            program = cel.compile(found.rewritten)
        loops = tuple(compile_loop(loop, source, ROOTS) for loop in found.loops)
    except BaseException as error:
        if not is_library_error(error):
            raise
        reason = compile_reason(error, tokens)
    else:
        return Expression(source, found, None, program, loops)
    raise ExpressionError(reason, source=source)
