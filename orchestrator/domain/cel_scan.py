"""Lexer for CEL, as much as is needed to know where an expression ends and what it refers to.

The CEL library parses and evaluates, but it cannot say where `${…}` ends inside text (an expression
may hold strings and map literals with braces), and its list of variables mixes macro variables with
real names. Without this file, braces inside strings would cut expressions in two. It also refuses
what the parser must not be trusted with: sources over 4 KiB and trees that are too deep.

Token rules: the lexical grammar of the CEL specification (google/cel-spec, doc/langdef.md).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_SOURCE_BYTES: Final = 4096  # of one expression, UTF-8
MAX_BRACKET_DEPTH: Final = 64
MAX_CHAIN: Final = 256
"""Operations on one branch of the syntax tree (`1+1+1…`, `a.b.c…`). The library parses, evaluates
and frees trees recursively: 2,000 of them end the process on a thread with a stack of 1 MiB."""

KEYWORDS: Final = frozenset({"true", "false", "null", "in"})
"""Words that the grammar takes, so that they cannot be names, not even after a dot."""


class ExpressionError(Exception):
    """An expression cannot be compiled or evaluated.

    Attributes: `reason` (for a user; may name keys that stand in the expression itself, never a
    value of the data), `source` (the expression), `path` (where it stands; `""` if unknown).
    """

    def __init__(self, reason: str, *, source: str = "", path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.source = source
        self.path = path

    def at(self, path: str) -> ExpressionError:
        """The same error with `path` in front of its own path."""
        return ExpressionError(self.reason, source=self.source, path=path + self.path)

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}{self.reason} in ${{{self.source}}}" if self.source else where + self.reason


class Token(NamedTuple):
    """`kind` is `name`, `string`, `bytes`, `number` or `op`; `start` and `end` are offsets."""

    kind: str
    text: str
    start: int
    end: int


_STRING = r"""
    (?:[rR](?:'''[\s\S]*?'''|\"\"\"[\s\S]*?\"\"\"|'(?!'')[^'\r\n]*'|"(?!"")[^"\r\n]*"))
  | '''(?:\\[\s\S]|[^\\])*?'''
  | \"\"\"(?:\\[\s\S]|[^\\])*?\"\"\"
  | '(?!'')(?:\\[^\r\n]|[^\\'\r\n])*'
  | "(?!"")(?:\\[^\r\n]|[^\\"\r\n])*"
"""

_TOKEN: Final = re.compile(
    rf"""
    (?P<skip>[\t\n\f\r ]+ | //[^\n]*)
  | (?P<bytes>[bB](?:{_STRING}))
  | (?P<string>{_STRING})
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>0[xX][0-9a-fA-F]+[uU]? | (?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?[uU]?)
  | (?P<op>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:,.()\[\]{{}}])
    """,
    re.VERBOSE,
)

_CLOSER: Final = {"(": ")", "[": "]", "{": "}"}

_HINTS: Final = {
    "=": "to compare, write ==",
    "&": "write && for 'and'",
    "|": "write || for 'or'",
    "`": "for a key that is no plain name, write ['key']",
    "'": "this string is not closed",
    '"': "this string is not closed",
    "$": "inside ${ } names stand without $",
}


def tokenize(source: str) -> list[Token]:
    """The tokens of a whole expression, without spaces and comments.

    Raises `ExpressionError` for text that is no CEL token, unmatched or too deep brackets, and
    sources over `MAX_SOURCE_BYTES`.
    """
    if len(source) > MAX_SOURCE_BYTES or len(source.encode(errors="replace")) > MAX_SOURCE_BYTES:
        raise ExpressionError(
            f"the expression is longer than {MAX_SOURCE_BYTES} bytes; move work into a task",
            source=source[:80] + "…",
        )
    tokens, end = _scan(source, 0, inner=False)
    if end != len(source):
        raise ExpressionError("there is a '}' too many", source=source)
    return tokens


def find_end(text: str, start: int) -> int:
    """The offset of the `}` that closes the `${` whose expression begins at `start`.

    Raises `ExpressionError` if there is none.
    """
    return _scan(text, start, inner=True)[1]


def _scan(text: str, start: int, *, inner: bool) -> tuple[list[Token], int]:
    tokens: list[Token] = []
    open_brackets: list[str] = []
    chains = [0]  # per open bracket: operations since its start or its last comma
    chain = 0  # their sum: no branch of the syntax tree is deeper
    match = _TOKEN.match
    position, size = start, len(text)
    while position < size:
        found = match(text, position)
        if found is None:
            raise _unreadable(text, start, position)
        kind, word, end = found.lastgroup or "", found.group(), found.end()
        if kind == "op":
            if word == "}" and not open_brackets:
                return tokens, position
            if word == ",":
                chain -= chains[-1]
                chains[-1] = 0
            elif word not in ")]}":
                chain += 1
                chains[-1] += 1
            if word in _CLOSER:
                open_brackets.append(word)
                chains.append(0)
            elif word in ")]}":
                if not open_brackets:
                    raise _fault(
                        f"'{word}' at {_place(text, start, position)} closes nothing", text, start
                    )
                opener = open_brackets.pop()
                chain -= chains.pop()
                if _CLOSER[opener] != word:
                    place = _place(text, start, position)
                    raise _fault(
                        f"'{word}' at {place} comes before '{opener}' is closed", text, start
                    )
            if chain > MAX_CHAIN:
                raise _fault(
                    f"more than {MAX_CHAIN} operations in one chain; split it", text, start
                )
            if len(open_brackets) > MAX_BRACKET_DEPTH:
                raise _fault(f"brackets are nested more than {MAX_BRACKET_DEPTH} deep", text, start)
        if kind != "skip":
            tokens.append(Token(kind, word, position, end))
        position = end
    if open_brackets:
        raise _fault(f"'{open_brackets[-1]}' is never closed", text, start)
    if inner:
        raise _fault("'${' is never closed; write $${ for a literal ${", text, start)
    return tokens, size


def _unreadable(text: str, start: int, position: int) -> ExpressionError:
    char = text[position]
    hint = _HINTS.get(char)
    reason = f"{char!r} at {_place(text, start, position)} cannot be read"
    return _fault(f"{reason}: {hint}" if hint else reason, text, start)


def _place(text: str, start: int, position: int) -> str:
    line = text.count("\n", start, position) + 1
    column = position - max(text.rfind("\n", start, position) + 1, start) + 1
    return f"column {column}" if line == 1 else f"line {line}, column {column}"


def _fault(reason: str, text: str, start: int) -> ExpressionError:
    """With what stands from `start`, shortened: the end of a broken expression is not known."""
    rest = text[start : start + 201].strip()
    return ExpressionError(reason, source=rest if len(rest) <= 200 else rest[:200] + "…")
