"""The CEL library's errors in words for the author of a workflow.

The library's texts name Rust types and repeat operands (`Arithmetic overflow … on 922… and 1`). A
value in an error text is a leak: it may be a secret, and failures are stored and shown. So texts
are never passed on; only names that stand in the expression itself are repeated.
"""

from __future__ import annotations

import re
from typing import Final

from orchestrator.domain.cel_functions import MATCHES, SIZE
from orchestrator.domain.cel_scan import Token

_PARSE: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_UNEXPECTED: Final = re.compile(
    r"Syntax error: (?:mismatched|extraneous) input '(.*)' expecting|"
    r"Syntax error: no viable alternative at input '(.*)'"
)
_FUNCTION: Final = re.compile(r"^Function '([A-Za-z_.0-9]+)' error")
_UNDEFINED: Final = re.compile(r"^Undefined variable or function: '([A-Za-z_.0-9]+)'")
_WANT: Final = re.compile(r"^Unexpected type: got '([a-z_|]+)', want '([a-z_|]+)'")
_DETAIL: Final = re.compile(r": (?=[A-Z{])")  # from here on it is about Rust types
_WORDS: Final = {"and": "&&", "or": "||", "not": "!"}

_NO_OVERLOAD: Final = (
    "an operation is not defined for the types of its values "
    "(int and double do not mix in arithmetic: write double(x) or int(x))"
)


def compile_reason(error: BaseException, tokens: list[Token]) -> str:
    """Why the source did not compile, with the place if the library told one."""
    for token in tokens:
        if token.kind == "name" and token.text in _WORDS:
            return f"the expression cannot be read: for '{token.text}' write {_WORDS[token.text]}"
    found = _PARSE.search(str(error))
    if found is None:
        return "the expression cannot be read"
    line, column, message = found.groups()
    place = f"column {column}" if line == "1" else f"line {line}, column {column}"
    unexpected = _UNEXPECTED.match(message)
    if unexpected:
        text = unexpected.group(1) or unexpected.group(2) or ""
        if text == "<EOF>":
            return "the expression ends too early"
        return f"unexpected '{text}' at {place}"
    if message.startswith(("invalid", "argument", "reserved", "unsupported")):
        return f"{_DETAIL.split(message)[0]} at {place}"
    return f"the expression cannot be read at {place}"


def run_reason(error: BaseException, source: str, in_loop: str = "") -> str:
    """Why evaluation failed. Holds no value of the data. `in_loop`: why the last loop failed."""
    text = str(error).replace(SIZE, "size").replace(MATCHES, "matches")
    if isinstance(error, KeyError):
        key = str(error.args[0]).strip("'") if error.args else ""
        named = key and re.search(rf"(?<![A-Za-z0-9_]){re.escape(key)}(?![A-Za-z0-9_])", source)
        return f"no such key '{key}'" if named else "no such key"
    if isinstance(error, IndexError):
        return "an index is outside of its list"
    if isinstance(error, ZeroDivisionError):
        return "division by zero"
    function = _FUNCTION.match(text)
    if function and function.group(1).startswith("loop"):
        return in_loop or "a comprehension failed"
    if function:
        return f"{function.group(1)}() cannot use the values it was given"
    if isinstance(error, OverflowError):
        return "an integer does not fit in 64 bits"
    undefined = _UNDEFINED.match(text)
    if undefined:
        name = undefined.group(1)
        if re.search(rf"\b{re.escape(name)}\s*\(", source):
            return f"{name}() is not defined for the type of its argument"
        return f"there is no '{name}'"
    want = _WANT.match(text)
    if want:
        return f"a value of type {want.group(1)} stands where {want.group(2)} is needed"
    if isinstance(error, TypeError):
        return _NO_OVERLOAD
    if isinstance(error, RecursionError | MemoryError):
        return "the expression is too large to evaluate"
    return "the expression cannot be evaluated"
