"""What an expression refers to: root names, tasks, secrets, functions. Found without evaluating.

Publishing checks that every name exists and every referenced task is upstream, and a worker fetches
only the secrets and outputs that are named. Macro variables (`x` in `list.map(x, x + 1)`) are not
names, and may hide one.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from orchestrator.domain import cel_functions as functions
from orchestrator.domain.cel_scan import KEYWORDS, ExpressionError, Token

MAX_COMPREHENSIONS: Final = 3  # nested; the cost of each is the length of its list
ROOTS: Final = frozenset({"input", "tasks", "execution", "item", "index", "secrets"})
TASK_FIELDS: Final = ("output", "status", "error")
EXECUTION_FIELDS: Final = ("id", "startedAt", "tags")

_HYPHENATED: Final = re.compile(r"[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)+")
_NUMERIC: Final = re.compile(r"\s*\.\s*([0-9][A-Za-z0-9_-]*)")


@dataclass(slots=True)
class References:
    """The findings. `dynamic_tasks`: some task is chosen at run time (`tasks[input.which]`)."""

    names: set[str] = field(default_factory=set[str])
    tasks: set[str] = field(default_factory=set[str])
    dynamic_tasks: bool = False
    secrets: set[str] = field(default_factory=set[str])
    functions: set[str] = field(default_factory=set[str])
    paths: dict[str, list[tuple[str, ...]]] = field(
        default_factory=dict[str, list[tuple[str, ...]]]
    )
    """Per root name, the literal keys that follow it where it is used."""
    sizes: list[int] = field(default_factory=list[int])
    """Offsets of the calls of `size`."""


@dataclass(slots=True)
class _Bracket:
    """An open bracket; `variable` is set for a comprehension's parentheses."""

    variable: str = ""
    bound: bool = False  # the variable is visible: its comma has been passed
    call: str = ""  # the function's name, as written
    limits: tuple[int, int] | None = None
    receiver: int = 0
    commas: int = 0
    empty: bool = True


class _Walk:
    def __init__(self, source: str, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.found = References()
        self.open: list[_Bracket] = []
        self.bound: Counter[str] = Counter()
        self.skip = -1  # the token that declares a macro variable

    def run(self) -> References:
        pending: _Bracket | None = None
        for i, token in enumerate(self.tokens):
            text = token.text
            if self.open and not (token.kind == "op" and text in ")]}"):
                self.open[-1].empty = False
            if token.kind == "name":
                pending = self._name(i, text)
            elif token.kind == "op":
                if text in "([{":
                    self._check_brace(i, text)
                    self.open.append(pending if text == "(" and pending else _Bracket())
                elif text in ")]}" and self.open:
                    self._close(i, self.open.pop())
                elif text == "," and self.open:
                    self._comma(self.open[-1])
                elif text == "." and not self._ends_value(i - 1):
                    raise self._error("a '.' stands where a name or value is needed")
                pending = None
        return self.found

    # --- brackets ---

    def _check_brace(self, i: int, text: str) -> None:
        if text == "{" and i and self._kind(i - 1) == "name" and self._text(i - 1) != "in":
            raise self._error(
                f"'{self._text(i - 1)}{{…}}': messages are not supported; write a map"
            )

    def _comma(self, bracket: _Bracket) -> None:
        bracket.commas += 1
        if bracket.variable and not bracket.bound:
            bracket.bound = True
            self.bound[bracket.variable] += 1

    def _close(self, i: int, bracket: _Bracket) -> None:
        if bracket.bound:
            self.bound[bracket.variable] -= 1
        if bracket.limits is None:
            return
        trailing = self._text(i - 1) == ","
        count = bracket.receiver + (0 if bracket.empty else bracket.commas + (not trailing))
        least, most = bracket.limits
        if not least <= count <= most:
            least, given = least - bracket.receiver, count - bracket.receiver
            wanted = f"{least}"
            if most != bracket.receiver + least:
                wanted = (
                    f"at least {least}" if most > 9 else f"{least} to {most - bracket.receiver}"
                )
            noun = "argument" if wanted == "1" else "arguments"
            raise self._error(f"{bracket.call}() takes {wanted} {noun} here, not {given}")

    # --- names ---

    def _name(self, i: int, text: str) -> _Bracket | None:
        """Records a name; for a function's name gives the bracket that comes next."""
        if i == self.skip or (text in KEYWORDS and not self._is(i - 1, ".")):
            return None
        called = self._is(i + 1, "(")
        if self._is(i - 1, "."):
            if text in KEYWORDS:
                raise self._error(f"'{text}' cannot follow a dot: write ['{text}']")
            return self._method(i, text) if called else None
        if called:
            return self._call(i, text, functions.GLOBAL_ONLY | functions.EITHER, 0)
        if self.bound[text] or text in functions.TYPE_NAMES:
            return None
        if text in functions.NAMESPACES and self._is(i + 1, ".") and self._is(i + 3, "("):
            return None  # the call itself is found at the name after the dot
        self._refuse_unknown_hyphen(i, text)
        self.found.names.add(text)
        self.found.paths.setdefault(text, []).append(self._keys(i + 1))
        if text == "tasks":
            self._task(i)
        elif text == "secrets":
            self._secret(i)
        elif text == "execution":
            key, _ = self._selector(i + 1)
            if key is not None and key not in EXECUTION_FIELDS:
                raise self._error(_no_such("execution", key, EXECUTION_FIELDS))
        return None

    def _method(self, i: int, text: str) -> _Bracket:
        owner = self._text(i - 2)
        is_root = self._kind(i - 2) == "name" and not self._is(i - 3, ".")
        if is_root and owner in functions.NAMESPACES and not self.bound[owner]:
            return self._call(i, f"{owner}.{text}", functions.QUALIFIED, 0)
        if text in functions.MACROS:
            return self._macro(i, text)
        return self._call(i, text, functions.METHOD_ONLY | functions.EITHER, 1)

    def _macro(self, i: int, text: str) -> _Bracket:
        if self._kind(i + 2) != "name" or not self._is(i + 3, ","):
            raise self._error(f"{text}() needs a variable first: {text}(x, …)")
        depth = sum(1 for bracket in self.open if bracket.variable) + 1
        if depth > MAX_COMPREHENSIONS:
            raise self._error(f"more than {MAX_COMPREHENSIONS} comprehensions are nested")
        self.skip = i + 2
        return _Bracket(
            variable=self._text(i + 2), call=text, limits=functions.MACROS[text], receiver=0
        )

    def _call(
        self, i: int, name: str, known: dict[str, functions.Arity], receiver: int
    ) -> _Bracket:
        limits = known.get(name)
        if limits is None:
            raise self._error(functions.unknown(name, receiver))
        self.found.functions.add(name)
        if name == "size":
            self.found.sizes.append(self.tokens[i].start)
        return _Bracket(call=name, limits=limits, receiver=receiver)

    # --- references ---

    def _task(self, i: int) -> None:
        self._refuse_hyphens("tasks", i, ".output")
        number = _NUMERIC.match(self.source, self.tokens[i].end)
        if number:
            raise self._error(f"write tasks['{number.group(1)}'].output")
        key, after = self._selector(i + 1)
        if key is None:
            if self._is(i + 1, "[") and self._kind(i + 2) == "string" and self._is(i + 3, "]"):
                raise self._error("write the id of a task without escapes")
            self.found.dynamic_tasks = True
            return
        self.found.tasks.add(key)
        name, _ = self._selector(after)
        shown = self.source[self.tokens[i].start : self.tokens[after - 1].end]
        if name is None:
            raise self._error(f"write {shown}.output, .status or .error")
        if name not in TASK_FIELDS:
            raise self._error(_no_such(shown, name, TASK_FIELDS))

    def _secret(self, i: int) -> None:
        self._refuse_hyphens("secrets", i, "")
        key, _ = self._selector(i + 1)
        if key is None:
            raise self._error("a secret is named in full: secrets.NAME or secrets['NAME']")
        self.found.secrets.add(key)

    def _refuse_hyphens(self, root: str, i: int, suffix: str) -> None:
        """`tasks.my-task` is a subtraction for CEL; without spaces nobody means one."""
        if not (self._is(i + 1, ".") and self._kind(i + 2) == "name"):
            return
        found = _HYPHENATED.match(self.source, self.tokens[i + 2].start)
        if found:
            raise self._error(
                f"'{root}.{found.group()}' would be a subtraction: "
                f"write {root}['{found.group()}']{suffix}"
            )

    def _refuse_unknown_hyphen(self, i: int, text: str) -> None:
        """`input.order-id`: `id` is no name that could be subtracted, so a key is meant."""
        if text in ROOTS or not (self._is(i - 1, "-") and self._is(i - 3, ".")):
            return
        before, minus, token = self.tokens[i - 2], self.tokens[i - 1], self.tokens[i]
        if before.kind == "name" and before.end == minus.start and minus.end == token.start:
            key = f"{before.text}-{text}"
            raise self._error(f"'{key}' would be a subtraction: write ['{key}'] instead of .{key}")

    def _keys(self, i: int) -> tuple[str, ...]:
        keys: list[str] = []
        key, i = self._selector(i)
        while key is not None:
            keys.append(key)
            key, i = self._selector(i)
        return tuple(keys)

    def _selector(self, i: int) -> tuple[str | None, int]:
        """The literal key selected at token `i` (`.name` or `['name']`) and the index of the
        token after it; no key if it is none, or only known at run time."""
        if self._is(i, ".") and self._kind(i + 1) == "name" and not self._is(i + 2, "("):
            return self._text(i + 1), i + 2
        if self._is(i, "[") and self._kind(i + 1) == "string" and self._is(i + 2, "]"):
            return string_value(self._text(i + 1)), i + 3
        return None, i

    # --- tokens ---

    def _ends_value(self, i: int) -> bool:
        kind, text = self._kind(i), self._text(i)
        return text in (")", "]", "}") if kind == "op" else kind != "" and text != "in"

    def _kind(self, i: int) -> str:
        return self.tokens[i].kind if 0 <= i < len(self.tokens) else ""

    def _text(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def _is(self, i: int, op: str) -> bool:
        return 0 <= i < len(self.tokens) and self.tokens[i].text == op

    def _error(self, reason: str) -> ExpressionError:
        return ExpressionError(reason, source=self.source)


def references(source: str, tokens: list[Token]) -> References:
    """What the expression refers to.

    Raises `ExpressionError` for unknown functions or a wrong number of arguments, too many nested
    comprehensions, and references that can never be right (`tasks.a.outputs`, `secrets[x]`).
    """
    return _Walk(source, tokens).run()


def string_value(literal: str) -> str | None:
    """The value of a string literal without escapes; None if it has any."""
    raw = literal[0] in "rR"
    body = literal[1:] if raw else literal
    if not raw and "\\" in body:
        return None
    width = 3 if len(body) >= 6 and body[:3] in ("'''", '"""') else 1
    return body[width:-width]


def _no_such(owner: str, key: str, known: tuple[str, ...]) -> str:
    return f"{owner} has no '{key}', only {', '.join(known)}{functions.nearest(key, known)}"
