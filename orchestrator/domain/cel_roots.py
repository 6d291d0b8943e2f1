"""References that can never be right are refused when a workflow is published.

`tasks.my-task.output` is a subtraction for CEL, `tasks.a.outputs` a missing key: both would only
fail when the task runs. Everything about `tasks`, `secrets` and `execution` that the text alone
tells is checked here; whether a task exists and is upstream is validation's.
"""

from __future__ import annotations

import re
from typing import Final

from orchestrator.domain.cel_functions import nearest
from orchestrator.domain.cel_tokens import Tokens

ROOTS: Final = frozenset(
    {"input", "tasks", "execution", "item", "index", "secrets", "event", "schedule", "tick"}
)
TASK_FIELDS: Final = ("output", "status", "error")
EXECUTION_FIELDS: Final = ("id", "startedAt", "tags")

_HYPHENATED: Final = re.compile(r"[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)+")
_NUMERIC: Final = re.compile(r"\s*\.\s*([0-9][A-Za-z0-9_-]*)")


def task_of(tokens: Tokens, i: int) -> str | None:
    """The id of the task that `tasks` at token `i` selects; None: chosen at run time.

    Raises `ExpressionError` unless `output`, `status` or `error` of it is read.
    """
    _refuse_hyphens(tokens, i, ".output")
    number = _NUMERIC.match(tokens.source, tokens.all[i].end)
    if number:
        raise tokens.error(f"write tasks['{number.group(1)}'].output")
    task, after = tokens.selector(i + 1)
    if task is None:
        if _is_literal_index(tokens, i + 1):
            raise tokens.error("write the id of a task without escapes")
        return None
    field, _ = tokens.selector(after)
    shown = tokens.source[tokens.all[i].start : tokens.all[after - 1].end]
    if field is None:
        raise tokens.error(f"write {shown}.output, .status or .error")
    if field not in TASK_FIELDS:
        raise tokens.error(_no_such(shown, field, TASK_FIELDS))
    return task


def secret_of(tokens: Tokens, i: int) -> str:
    """The name of the secret that `secrets` at token `i` selects. It must be known without
    evaluating: a worker resolves no secret that the definition does not name."""
    _refuse_hyphens(tokens, i, "")
    name, _ = tokens.selector(i + 1)
    if name is None:
        raise tokens.error("a secret is named in full: secrets.NAME or secrets['NAME']")
    return name


def check_execution(tokens: Tokens, i: int) -> None:
    """Refuses fields that an execution does not have."""
    field, _ = tokens.selector(i + 1)
    if field is not None and field not in EXECUTION_FIELDS:
        raise tokens.error(_no_such("execution", field, EXECUTION_FIELDS))


def refuse_unknown_hyphen(tokens: Tokens, i: int) -> None:
    """`input.order-id`: there is no name `id` that could be subtracted, so a key is meant."""
    name = tokens.text(i)
    if name in ROOTS or not (tokens.is_op(i - 1, "-") and tokens.is_op(i - 3, ".")):
        return
    before, minus, token = tokens.all[i - 2], tokens.all[i - 1], tokens.all[i]
    if before.kind == "name" and before.end == minus.start and minus.end == token.start:
        key = f"{before.text}-{name}"
        raise tokens.error(f"'{key}' would be a subtraction: write ['{key}'] instead of .{key}")


def _refuse_hyphens(tokens: Tokens, i: int, suffix: str) -> None:
    """`tasks.my-task` without spaces: nobody means a subtraction."""
    if not (tokens.is_op(i + 1, ".") and tokens.kind(i + 2) == "name"):
        return
    found = _HYPHENATED.match(tokens.source, tokens.all[i + 2].start)
    if found:
        root, name = tokens.text(i), found.group()
        raise tokens.error(
            f"'{root}.{name}' would be a subtraction: write {root}['{name}']{suffix}"
        )


def _is_literal_index(tokens: Tokens, i: int) -> bool:
    return tokens.is_op(i, "[") and tokens.kind(i + 1) == "string" and tokens.is_op(i + 2, "]")


def _no_such(owner: str, key: str, known: tuple[str, ...]) -> str:
    return f"{owner} has no '{key}', only {', '.join(known)}{nearest(key, known)}"
