"""Approval of an expense by a person: a signal against the clock, with a reminder in between.

While it waits nothing runs. An answer that comes early is kept; one that comes after the last
limit finds nobody.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from pydantic import BaseModel, Field

from activities import CodeContext, Context, Retry, TaskFailed, activity, code_workflow

ANSWER: Final = "2d"
ANSWER_REMINDED: Final = "3d"
AGAIN: Final = Retry(max_attempts=5)


class Expense(BaseModel):
    """What somebody wants back."""

    id: str
    who: str
    cents: int = Field(gt=0)


class Decision(BaseModel):
    """The payload of the signal `decision`."""

    approved: bool
    by: str


class Verdict(BaseModel):
    """`by`: None if nobody has answered, which means no."""

    expense: str
    approved: bool
    by: str | None
    reminders: int


@activity("expenses.ask")
def ask(expense: Expense) -> None:
    """Stands for a message to the approver, with the execution's id in it."""


@activity("expenses.remind")
def remind(expense: Expense) -> None:
    """Stands for a second message."""


@activity("expenses.pay")
def pay(expense: Expense, ctx: Context) -> str:
    """Stands for a bank's API: paid once per idempotency key, however often it is called."""
    return f"paid-{expense.id}-{ctx.idempotency_key}"


@code_workflow("expense", input=Expense, output=Verdict)
def expense(ctx: CodeContext, expense: Expense) -> Generator[Any, Any, Verdict]:
    """Ask, wait, remind, wait, pay."""
    yield ctx.call_activity("expenses.ask", expense, retry=AGAIN)
    decision: Decision | None = None
    reminders = 0
    for patience in (ANSWER, ANSWER_REMINDED):
        ctx.set_status({"waitsFor": "decision", "reminders": reminders})
        try:
            said = yield ctx.wait_for_signal("decision", timeout=patience)
        except TaskFailed as failed:
            if failed.type != "SIGNAL_TIMEOUT":
                raise
        else:
            decision = Decision.model_validate(said)
            break
        if patience == ANSWER:
            reminders += 1
            yield ctx.call_activity("expenses.remind", expense)
    approved = decision is not None and decision.approved
    if approved:
        yield ctx.call_activity("expenses.pay", expense, retry=AGAIN)
    by = None if decision is None else decision.by
    return Verdict(expense=expense.id, approved=approved, by=by, reminders=reminders)
