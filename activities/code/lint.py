"""Finds what would make a code workflow decide otherwise in a replay, by reading its source; and
what its context does not have, or would not begin.

Looks at functions under `@code_workflow` and at those of the same module that they call. What they
do through other modules, or on objects whose type is not written down, is not seen: a clean report
is no proof. A line with `# weft: allow` is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from activities.code.context import CodeContext
from activities.code.lint_rules import (
    CHANGES,
    DURABLE,
    FILE_METHODS,
    LOG,
    OUTSIDE,
    PARALLEL,
    STEPS,
    rule_of,
)
from orchestrator.domain.nearest import Nearest

ALLOW: Final = "# weft: allow"
DECORATOR: Final = "code_workflow"
ORDER: Final = "sort it first (`sorted(…)`): the order of a set differs from process to process"
STATE: Final = "keep it in a local variable, or in the input of the next generation"
CONTEXT: Final = frozenset({name for name in dir(CodeContext) if name[0] != "_"} | {"log"})
"""What a code workflow's context has."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place, what is wrong there, and the mend."""

    path: str
    line: int
    column: int
    code: str
    message: str
    mend: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.code}: {self.message}; {self.mend}"


def lint_paths(paths: Iterable[Path]) -> list[Finding]:
    """Findings in files and in all `*.py` below folders, in order. Raises `OSError`, `SyntaxError`
    for what cannot be read."""
    found: set[Finding] = set()
    for path in paths:
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for file in files:
            found.update(lint(file.read_text(encoding="utf-8"), str(file)))
    return sorted(found)


def lint(source: str, path: str = "<source>") -> list[Finding]:
    """Findings in one module. Raises `SyntaxError`."""
    if DECORATOR not in source:
        return []
    module = _Module(ast.parse(source, path), path)
    lines = source.splitlines()
    found: set[Finding] = set()
    for function in module.reached():
        for node, code, message, mend in _Reader(module, function).findings():
            end = getattr(node, "end_lineno", node.lineno)
            if not any(ALLOW in line for line in lines[node.lineno - 1 : end]):
                place = (path, node.lineno, node.col_offset + 1)
                found.add(Finding(*place, code, message, mend))
    return sorted(found)


class _Module:
    """Names of a module: its functions, its imports, its variables."""

    def __init__(self, tree: ast.Module, path: str) -> None:
        self.path = path
        self.functions: dict[str, Function] = {}
        self.imports = _imports(tree.body)
        self.variables: set[str] = set()
        self.workflows = [
            node
            for node in ast.walk(tree)
            if isinstance(node, Function) and any(map(self._marks, node.decorator_list))
        ]
        for node in tree.body:
            if isinstance(node, Function):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.variables |= {name.id for one in targets for name in _names(one)}

    def _marks(self, decorator: ast.expr) -> bool:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        return (dotted(called, self.imports) or "").rpartition(".")[2] == DECORATOR

    def reached(self) -> Iterator[Function]:
        """The workflows, and what they call by name."""
        seen: list[Function] = []
        waiting: list[Function] = list(self.workflows)
        while waiting:
            function = waiting.pop()
            if function in seen:
                continue
            seen.append(function)
            yield function
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    called = self.functions.get(node.func.id)
                    if called is not None:
                        waiting.append(called)


class _Reader:
    """One function."""

    def __init__(self, module: _Module, function: Function) -> None:
        self.module = module
        self.function = function
        inner = [node for node in ast.walk(function) if node is not function]
        self.nodes = [node for one in function.body for node in ast.walk(one)]
        self.imports = {**module.imports, **_imports(inner)}
        given = [node.arg for node in ast.walk(function) if isinstance(node, ast.arg)]
        stored = {
            node.id
            for node in inner
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self.contexts = {
            one.arg
            for place, one in enumerate(function.args.posonlyargs + function.args.args)
            if (place == 0 and function in module.workflows) or _is_context(one.annotation)
        }
        shared = {name for node in inner if isinstance(node, ast.Global) for name in node.names}
        self.locals = (set(given) | stored) - shared
        self.sets = {
            name.id
            for node in inner
            if isinstance(node, ast.Assign) and self._is_set(node.value)
            for target in node.targets
            for name in _names(target)
        }

    def findings(self) -> Iterator[tuple[Any, str, str, str]]:
        """Node, code, message, mend."""
        if isinstance(self.function, ast.AsyncFunctionDef):
            name = self.function.name
            yield self.function, "async", f"{name} is `async def`", "use `def` and `yield`"
        within = {id(node.value) for node in self.nodes if isinstance(node, ast.Attribute)}
        for node in self.nodes:
            if isinstance(node, ast.Attribute | ast.Name) and id(node) not in within:
                yield from self._name(node)
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                yield node, "async", "nothing is awaited in a code workflow", PARALLEL
            elif isinstance(node, ast.Global):
                yield node, "state", f"`global {', '.join(node.names)}`", STATE
            yield from self._context(node)
            yield from self._order(node)
            yield from self._state(node)

    def _context(self, node: ast.AST) -> Iterator[tuple[Any, str, str, str]]:
        """Names that the context does not have, and steps that nobody yields."""
        called = node.value if isinstance(node, ast.Expr) else node
        asked = called.func if isinstance(called, ast.Call) else called
        if not isinstance(asked, ast.Attribute) or not isinstance(asked.value, ast.Name):
            return
        name, context = asked.attr, asked.value.id
        if context not in self.contexts:
            return
        if isinstance(node, ast.Attribute) and name not in CONTEXT and name[0] != "_":
            mend = DURABLE.get(name) or Nearest().hint(name, CONTEXT) or "see the list in the docs"
            yield node, "context", f"{context} has no {name}", mend
        elif isinstance(node, ast.Expr) and isinstance(called, ast.Call) and name in STEPS:
            yield node, "yield", f"{context}.{name}(…) never begins", "yield it, or what holds it"

    def _name(self, node: ast.Attribute | ast.Name) -> Iterator[tuple[Any, str, str, str]]:
        if isinstance(node.ctx, ast.Load):
            name = dotted(node, self.imports, self.locals | set(self.module.functions))
            rule = rule_of(name) if name else None
            if rule is not None:
                yield node, rule[0], f"{name}", rule[1]
            elif isinstance(node, ast.Attribute) and node.attr in FILE_METHODS:
                yield node, "io", f".{node.attr}()", OUTSIDE
            elif _is_logger(node, self.locals):
                yield node, "log", f"{ast.unparse(node)}", LOG

    def _order(self, node: ast.AST) -> Iterator[tuple[Any, str, str, str]]:
        looped: ast.expr | None = None
        if isinstance(node, ast.For | ast.comprehension):
            looped = node.iter
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            if node.func.id in {"list", "tuple", "enumerate", "iter", "next"}:
                looped = node.args[0]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "pop"
            and not node.args
        ):
            looped = node.func.value
        if looped is not None and self._is_set(looped):
            yield looped, "order", f"the elements of {ast.unparse(looped)} come in any order", ORDER

    def _is_set(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in {"set", "frozenset"}
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor
        ):
            return self._is_set(node.left) or self._is_set(node.right)
        return isinstance(node, ast.Name) and node.id in getattr(self, "sets", ())

    def _state(self, node: ast.AST) -> Iterator[tuple[Any, str, str, str]]:
        changed: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            changed = [one for one in targets if isinstance(one, ast.Subscript | ast.Attribute)]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in CHANGES
        ):
            changed = [node.func]
        for target in changed:
            root: Any = target
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            if (
                isinstance(root, ast.Name)
                and root.id in self.module.variables
                and root.id not in self.locals
            ):
                yield node, "state", f"{root.id} belongs to the module", STATE


def dotted(node: ast.expr, imports: dict[str, str], shadowed: Iterable[str] = ()) -> str | None:
    """`datetime.datetime.now` of whatever it was imported as; None for what is no dotted name, or
    begins with a name of the function's own."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id in shadowed:
        return None
    head = imports.get(node.id)
    if head is None and parts:
        return None  # a variable of the module
    return ".".join([head or node.id, *reversed(parts)])


def _imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Local name -> what it stands for."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for name in node.names:
                top = name.name.partition(".")[0]
                found[name.asname or top] = name.name if name.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in node.names:
                found[name.asname or name.name] = f"{node.module}.{name.name}"
    return found


def _names(node: ast.expr) -> Iterator[ast.Name]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Name))


def _is_context(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).strip("'\"").endswith("CodeContext")


def _is_logger(node: ast.Attribute | ast.Name, own: set[str]) -> bool:
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    levels = {"debug", "info", "warning", "error", "exception", "critical"}
    return node.value.id in {"log", "logger", "_log"} - own and node.attr in levels
