"""Texts that others wrote, as they may reach a terminal."""

from __future__ import annotations

import unicodedata


def printable(text: object) -> str:
    """`text` with control characters shown, not obeyed: an activity's error message could
    otherwise repaint the terminal. Lone surrogates become U+FFFD."""
    clean = str(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(
        char
        if char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs"
        else repr(char)[1:-1]
        for char in clean
    )
