"""What an expression refers to: root names, tasks, secrets, functions, loops.

Found by one walk over the tokens, without evaluating. Publishing checks that every name exists and
every referenced task is upstream, and a worker fetches only the secrets and outputs that are named.
Macro variables (`x` in `list.map(x, x + 1)`) are not names, and may hide one.

The walk also writes the source that is really run: loops are cut out of it (see `cel_loops`), and
`size` and `matches` are replaced by our own (see `cel_functions.RENAMED`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from orchestrator.domain import cel_functions as functions
from orchestrator.domain import cel_roots as roots
from orchestrator.domain.cel_scan import KEYWORDS, Token
from orchestrator.domain.cel_tokens import Tokens

MAX_LOOPS: Final = 3  # nested comprehensions

Paths: TypeAlias = dict[str, list[tuple[str, ...]]]
"""Per root name, the literal keys that follow it wherever it is used."""


@dataclass(slots=True)
class Loop:
    """One comprehension. In the source that is run, `receiver.name(x, …)` is replaced by
    `receiver.<function>(<outer variables>)`."""

    kind: str  # the macro: map, filter, all, …
    arguments: str  # its own arguments, rewritten likewise
    outer: tuple[str, ...]  # variables of enclosing loops that it reads
    paths: Paths
    root_uses: int  # how often it reads a root name, and
    variable_uses: int  # a macro variable: what it builds is at most so many times as large
    function: str


@dataclass(slots=True)
class References:
    """The findings. `dynamic_tasks`: some task is chosen at run time (`tasks[input.which]`)."""

    names: set[str] = field(default_factory=set[str])
    tasks: set[str] = field(default_factory=set[str])
    dynamic_tasks: bool = False
    secrets: set[str] = field(default_factory=set[str])
    functions: set[str] = field(default_factory=set[str])
    paths: Paths = field(default_factory=dict[str, list[tuple[str, ...]]])  # outside of loops
    root_uses: int = 0  # outside of loops
    loops: list[Loop] = field(default_factory=list[Loop])  # inner ones before outer ones
    rewritten: str = ""


Edit: TypeAlias = tuple[int, int, str]  # from, to, text


@dataclass(slots=True)
class _Part:
    """The expression itself, or the arguments of a loop: what is rewritten and run as one."""

    paths: Paths = field(default_factory=dict[str, list[tuple[str, ...]]])
    variables: set[str] = field(default_factory=set[str])  # macro variables that it reads
    edits: list[Edit] = field(default_factory=list[Edit])
    root_uses: int = 0
    variable_uses: int = 0


@dataclass(slots=True)
class _Bracket:
    """An open bracket; of a call if `call` is set, of a loop if `part` is."""

    call: str = ""
    limits: functions.Arity | None = None
    receiver: int = 0
    commas: int = 0
    empty: bool = True
    part: _Part | None = None
    variable: str = ""
    outer: frozenset[str] = frozenset()  # variables that are visible around the loop
    name: int = 0  # index of the macro's name


class _Walk:
    def __init__(self, source: str, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = Tokens(source, tokens)
        self.found = References()
        self.open: list[_Bracket] = []
        self.parts = [_Part()]
        self.bound: Counter[str] = Counter()
        self.declaration = -1  # the token that declares a macro variable

    def run(self) -> References:
        pending: _Bracket | None = None
        for i, token in enumerate(self.tokens.all):
            text = token.text
            if token.kind == "name":
                pending = self._name(i, text)
            closing = token.kind == "op" and text in ")]}"
            if self.open and not closing:
                self.open[-1].empty = False
            if token.kind != "op":
                continue
            if text in "([{":
                self._check_brace(i, text)
                self.open.append(pending if text == "(" and pending else _Bracket())
            elif closing and self.open:
                self._close(i, self.open.pop())
            elif text == "," and self.open:
                self._comma(self.open[-1])
            elif text == "." and not self.tokens.ends_value(i - 1):
                raise self.tokens.error("a '.' stands where a name or value is needed")
            pending = None
        self.found.paths = self.parts[0].paths
        self.found.root_uses = self.parts[0].root_uses
        self.found.rewritten = self._rewritten(0, len(self.source), self.parts[0].edits)
        return self.found

    # --- brackets ---

    def _check_brace(self, i: int, text: str) -> None:
        before = self.tokens.text(i - 1)
        if text == "{" and self.tokens.kind(i - 1) == "name" and before != "in":
            raise self.tokens.error(f"'{before}{{…}}': messages are not supported; write a map")

    def _comma(self, bracket: _Bracket) -> None:
        bracket.commas += 1
        if bracket.part and bracket.commas == 1:
            self.parts.append(bracket.part)
            self.bound[bracket.variable] += 1

    def _close(self, i: int, bracket: _Bracket) -> None:
        if bracket.limits is not None:
            self._check_count(i, bracket, *bracket.limits)
        if bracket.part:
            self.bound[bracket.variable] -= 1
            self._end_loop(i, bracket, self.parts.pop())

    def _check_count(self, i: int, bracket: _Bracket, least: int, most: int) -> None:
        trailing = self.tokens.is_op(i - 1, ",")
        given = 0 if bracket.empty else bracket.commas + (not trailing)
        least, most = least - bracket.receiver, most - bracket.receiver
        if not least <= given <= most:
            wanted = f"{least}"
            if most > least:
                wanted = f"at least {least}" if most > 9 else f"{least} to {most}"
            noun = "argument" if wanted.endswith(" 1") or wanted == "1" else "arguments"
            raise self.tokens.error(f"{bracket.call}() takes {wanted} {noun} here, not {given}")

    def _end_loop(self, i: int, bracket: _Bracket, part: _Part) -> None:
        start, end = self.tokens.all[bracket.name].start, self.tokens.all[i].end
        inside = self.tokens.all[bracket.name + 1].end
        loop = Loop(
            kind=bracket.call,
            arguments=self._rewritten(inside, self.tokens.all[i].start, part.edits),
            outer=tuple(sorted(part.variables & bracket.outer - {bracket.variable})),
            paths=part.paths,
            root_uses=part.root_uses,
            variable_uses=part.variable_uses,
            function=f"loop{len(self.found.loops)}_",
        )
        self.found.loops.append(loop)
        outside = self.parts[-1]
        outside.variables |= part.variables
        outside.edits.append((start, end, f"{loop.function}({', '.join(loop.outer)})"))

    def _rewritten(self, start: int, end: int, edits: list[Edit]) -> str:
        pieces: list[str] = []
        for at, until, text in edits:
            pieces += [self.source[start:at], text]
            start = until
        return "".join(pieces) + self.source[start:end]

    # --- names ---

    def _name(self, i: int, text: str) -> _Bracket | None:
        """Records a name; for a function's name gives the bracket that comes next."""
        tokens = self.tokens
        after_dot, called = tokens.is_op(i - 1, "."), tokens.is_op(i + 1, "(")
        if i == self.declaration or (text in KEYWORDS and not after_dot):
            return None
        if after_dot:
            if text in KEYWORDS:
                raise tokens.error(f"'{text}' cannot follow a dot: write ['{text}']")
            return self._method(i, text) if called else None
        if called:
            return self._call(i, text, functions.GLOBAL_ONLY | functions.EITHER, 0)
        if self.bound[text]:
            self.parts[-1].variables.add(text)
            self.parts[-1].variable_uses += 1
        elif text not in functions.TYPE_NAMES and not self._is_namespace(i, text):
            self._root(i, text)
        return None

    def _is_namespace(self, i: int, text: str) -> bool:
        tokens = self.tokens
        return (
            text in functions.NAMESPACES and tokens.is_op(i + 1, ".") and tokens.is_op(i + 3, "(")
        )

    def _root(self, i: int, text: str) -> None:
        roots.refuse_unknown_hyphen(self.tokens, i)
        self.found.names.add(text)
        self.parts[-1].root_uses += 1
        self.parts[-1].paths.setdefault(text, []).append(self.tokens.keys(i + 1))
        if text == "tasks":
            task = roots.task_of(self.tokens, i)
            if task is None:
                self.found.dynamic_tasks = True
            else:
                self.found.tasks.add(task)
        elif text == "secrets":
            self.found.secrets.add(roots.secret_of(self.tokens, i))
        elif text == "execution":
            roots.check_execution(self.tokens, i)

    def _method(self, i: int, text: str) -> _Bracket:
        tokens = self.tokens
        owner = tokens.text(i - 2)
        is_root = tokens.kind(i - 2) == "name" and not tokens.is_op(i - 3, ".")
        if is_root and owner in functions.NAMESPACES and not self.bound[owner]:
            return self._call(i, f"{owner}.{text}", functions.QUALIFIED, 0)
        if text in functions.MACROS:
            return self._loop(i, text)
        return self._call(i, text, functions.METHOD_ONLY | functions.EITHER, 1)

    def _loop(self, i: int, text: str) -> _Bracket:
        variable = self.tokens.text(i + 2)
        named = self.tokens.kind(i + 2) == "name" and variable not in KEYWORDS
        if not named or not self.tokens.is_op(i + 3, ","):
            raise self.tokens.error(f"{text}() needs a variable first: {text}(x, …)")
        if len(self.parts) > MAX_LOOPS:
            raise self.tokens.error(f"more than {MAX_LOOPS} comprehensions are nested")
        self.declaration = i + 2
        return _Bracket(
            call=text,
            limits=functions.MACROS[text],
            part=_Part(),
            variable=variable,
            outer=frozenset(name for name, count in self.bound.items() if count),
            name=i,
        )

    def _call(
        self, i: int, name: str, known: dict[str, functions.Arity], receiver: int
    ) -> _Bracket:
        limits = known.get(name)
        if limits is None:
            raise self.tokens.error(functions.unknown(name, receiver))
        self.found.functions.add(name)
        own = functions.RENAMED.get(name)
        if own is not None:
            self.found.functions.add(own)
            start, end = self.tokens.all[i].start, self.tokens.all[i].end
            self.parts[-1].edits.append((start, end, own))
        return _Bracket(call=name, limits=limits, receiver=receiver)


def references(source: str, tokens: list[Token]) -> References:
    """What the expression refers to.

    Raises `ExpressionError` for unknown functions or a wrong number of arguments, too many nested
    comprehensions, and references that can never be right (`tasks.a.outputs`, `secrets[x]`).
    """
    return _Walk(source, tokens).run()
