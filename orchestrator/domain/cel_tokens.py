"""A view on the tokens of one expression: what stands where, and which literal keys follow."""

from __future__ import annotations

from orchestrator.domain.cel_scan import ExpressionError, Token


class Tokens:
    """The tokens of `source`. Positions outside of the list are empty, never an error."""

    def __init__(self, source: str, tokens: list[Token]) -> None:
        self.source = source
        self.all = tokens

    def kind(self, i: int) -> str:
        """The kind of token `i`, `""` outside."""
        return self.all[i].kind if 0 <= i < len(self.all) else ""

    def text(self, i: int) -> str:
        """The text of token `i`, `""` outside."""
        return self.all[i].text if 0 <= i < len(self.all) else ""

    def is_op(self, i: int, op: str) -> bool:
        """Whether token `i` is this operator."""
        return 0 <= i < len(self.all) and self.all[i].text == op

    def ends_value(self, i: int) -> bool:
        """Whether a value may end with token `i`, so that a selector may follow."""
        kind, text = self.kind(i), self.text(i)
        return text in (")", "]", "}") if kind == "op" else kind != "" and text != "in"

    def selector(self, i: int) -> tuple[str | None, int]:
        """The literal key selected at token `i` (`.name` or `['name']`) and the index of the
        token after it; no key if it is none, or only known at run time."""
        if self.is_op(i, ".") and self.kind(i + 1) == "name" and not self.is_op(i + 2, "("):
            return self.text(i + 1), i + 2
        if self.is_op(i, "[") and self.kind(i + 1) == "string" and self.is_op(i + 2, "]"):
            return string_value(self.text(i + 1)), i + 3
        return None, i

    def keys(self, i: int) -> tuple[str, ...]:
        """All literal keys selected one after the other from token `i`."""
        keys: list[str] = []
        key, i = self.selector(i)
        while key is not None:
            keys.append(key)
            key, i = self.selector(i)
        return tuple(keys)

    def error(self, reason: str) -> ExpressionError:
        """An error of this expression."""
        return ExpressionError(reason, source=self.source)


def string_value(literal: str) -> str | None:
    """The value of a string literal without escapes; None if it has any."""
    raw = literal[0] in "rR"
    body = literal[1:] if raw else literal
    if not raw and "\\" in body:
        return None
    width = 3 if len(body) >= 6 and body[:3] in ("'''", '"""') else 1
    return body[width:-width]
