"""Three months on trial: durable timers that outlive every process, deployment and machine."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, Field

from activities import CodeContext, activity, code_workflow


class Trial(BaseModel):
    """Who tries what. `day_seconds`: shorter than a day to watch it end today."""

    customer: str
    days: int = Field(default=90, ge=14, le=365)
    day_seconds: float = Field(default=86_400, gt=0)


class Mail(BaseModel):
    """A mail to be sent."""

    customer: str
    template: str


class Ended(BaseModel):
    """How it ended."""

    customer: str
    bought: bool
    mails: list[str]


@activity("trials.mail")
def mail(mail: Mail) -> None:
    """Stands for a mail service."""


@activity("trials.bought")
def bought(customer: str) -> bool:
    """Stands for a look into the shop: customers with an even number of letters have bought."""
    return len(customer) % 2 == 0


@code_workflow("trial-period", input=Trial, output=Ended)
def trial_period(ctx: CodeContext, trial: Trial) -> Generator[Any, Any, Ended]:
    """Mails on their days; the offer only to those who have not bought by then."""
    day = timedelta(seconds=trial.day_seconds)
    began = ctx.now
    mails: list[str] = []
    has_bought = False
    for after, template in ((0, "welcome"), (7, "tips"), (trial.days - 7, "offer")):
        if after:
            yield ctx.sleep(until=began + after * day)
            has_bought = yield ctx.call_activity("trials.bought", trial.customer)
        if has_bought:
            break
        mails.append(template)
        yield ctx.call_activity("trials.mail", Mail(customer=trial.customer, template=template))
    if not has_bought:
        yield ctx.sleep(until=began + trial.days * day)
        has_bought = yield ctx.call_activity("trials.bought", trial.customer)
    return Ended(customer=trial.customer, bought=has_bought, mails=mails)
