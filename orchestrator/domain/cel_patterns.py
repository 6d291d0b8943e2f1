"""Regular expressions, in RE2 syntax: matched in linear time, and at a cost that is known before.

Linear in the text, but also in the pattern, whose repetitions multiply: `((a{30}){30}){30}` is one
of 27,000 characters, and against a megabyte of text takes minutes. So a pattern has a size, and a
match costs its size times the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from orchestrator.domain.cel_library import cel, is_library_error

MAX_SIZE: Final = 10_000
"""Of a pattern, repetitions written out: about two milliseconds to compile."""
WORK_PER_STEP: Final = 1000  # size times characters, of an expression's step

_MATCHES: Final = cel.compile("text.matches(pattern)")
_CLASS: Final = 8  # a class of characters; one of a property is ranges of bytes by the hundred
_PROPERTY: Final = 50
_REPEAT: Final = re.compile(r"\{(\d{1,6})(?:,(\d{0,6}))?\}")
_ESCAPE: Final = re.compile(r"\\(?:[pPxuU]\{[^}]*\}|[pP].|.)", re.DOTALL)
_FLAGS: Final = re.compile(r"\(\?[a-zA-Z-]*[:)]")


class BadPattern(Exception):
    """Not a regular expression that can be matched in linear time, at a bearable cost."""


def found(pattern: str, text: str) -> bool:
    """Whether `pattern` is found in `text`; `cost` tells what that takes. Raises `BadPattern`."""
    size(pattern)
    try:
        return bool(_MATCHES.execute({"text": text, "pattern": pattern}))
    except BaseException as error:
        if not is_library_error(error):
            raise
        told = " ".join(str(error).split())
        reason = re.search(r"not a valid regex: (?:.* error: )?(.+?)[. ]*Check function", told)
        detail = reason.group(1) if reason else "it cannot be read"
        raise BadPattern(f"not a regular expression in RE2 syntax: {detail}") from None


def cost(pattern: str, text: str) -> int:
    """Size times characters; compiling, which every match does, as fifty characters. Raises
    `BadPattern`."""
    return size(pattern) * (len(text) + 50)


@lru_cache(maxsize=1024)
def size(pattern: str) -> int:
    """Its length with repetitions written out, at least; a text that is no pattern has a size, too.

    Raises `BadPattern` over `MAX_SIZE`.
    """
    if len(pattern) > MAX_SIZE:
        raise _too_large()
    outer: list[int] = []  # what stands before each open group
    total = last = 0  # of this group, and the part of it that a repetition would repeat
    at = 0
    while at < len(pattern):
        char = pattern[at]
        step, repeated = 1, 1
        if char == "\\":
            step, last = _escape(pattern, at)
        elif char == "[":
            step, last = _class(pattern, at)
        elif char == "(":
            flags = _FLAGS.match(pattern, at)
            if flags and "x" in flags[0]:
                raise BadPattern("not a regular expression in RE2 syntax: there is no flag x")
            if flags and flags[0].endswith(")"):
                step, last = len(flags[0]), 1
            else:
                outer.append(total)
                total = last = 0
                at += 1
                continue
        elif char == ")":
            last = total + 1
            total = outer.pop() if outer else 0
        elif char == "{" and (count := _REPEAT.match(pattern, at)):
            step = len(count[0])
            repeated = max(int(count[1]), int(count[2] or 0), 1)
            total, last = total - last, last * repeated
        else:
            last = _CLASS if char == "." else 1
        total += last
        if total > MAX_SIZE:
            raise _too_large()
        at += step
    total += sum(outer)
    if total > MAX_SIZE:
        raise _too_large()
    return total + 1


def _escape(pattern: str, start: int) -> tuple[int, int]:
    """How many characters an escape at `start` has, and its size."""
    read = _ESCAPE.match(pattern, start)
    return (len(read[0]), _PROPERTY if read[0][1] in "pPwWdDsSbB" else 1) if read else (1, 1)


def _class(pattern: str, start: int) -> tuple[int, int]:
    """How many characters a class `[…]` at `start` has, and its size."""
    depth, at = 0, start
    size = _CLASS if pattern.startswith("[^", start) else 2
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            step, one = _escape(pattern, at)
            size += one if one > 1 else 0
            at += step - 1
        elif char == "[":
            size += _PROPERTY if depth else 0  # classes in classes, `[:alpha:]`
            depth += 1
        elif char == "]" and pattern[start + 1 : at] not in ("", "^"):
            depth -= 1
            if not depth:
                return at - start + 1, size
        elif not char.isascii():
            size += _CLASS
        at += 1
    return len(pattern) - start, size


def _too_large() -> BadPattern:
    return BadPattern(
        f"the pattern is too large: over {MAX_SIZE} characters with its repetitions written out"
    )
