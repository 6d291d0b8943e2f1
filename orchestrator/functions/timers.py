"""Timer triggers: the sweeper, which mends whatever a crash or a lost message left behind, the
scheduler, which starts what schedules say, and retention, which removes what ended long ago.

Timers come late, twice or not at all, so nothing here counts calls: all look at what is due.
"""

from __future__ import annotations

from typing import Final

import azure.functions as func

from orchestrator.engine import levels, retain, schedule, sweep
from orchestrator.functions.durable_binding import client_bound
from orchestrator.functions.provider import EngineProvider

SWEEP_SCHEDULE: Final = "*/15 * * * * *"
"""Every 15 seconds: a quarter of the bound on the oldest unsent outbox (60 s)."""
SCHEDULER_SCHEDULE: Final = "*/5 * * * * *"
"""Every 5 seconds: how late a tick is started at most, if the timer comes in time."""

RETENTION_SCHEDULE: Final = "0 */10 * * * *"
"""Every 10 minutes: what is kept for days may be kept minutes longer."""


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The functions `sweeper`, `scheduler` and `retention`, bound to `provider`'s engine."""
    bp = func.Blueprint()

    # use_monitor False: the schedule's state in storage would only serve to make up a missed sweep,
    # and the next one is seconds away.
    @bp.function_name("sweeper")
    @bp.timer_trigger(
        arg_name="timer",
        schedule=SWEEP_SCHEDULE,
        run_on_startup=False,
        use_monitor=False,
    )
    async def sweeper(timer: func.TimerRequest) -> None:
        engine = await provider.get()
        await sweep.sweep(engine)
        await levels.refresh_if_possible(engine)

    @bp.function_name("scheduler")
    @bp.timer_trigger(
        arg_name="timer",
        schedule=SCHEDULER_SCHEDULE,
        run_on_startup=False,
        use_monitor=False,
    )
    async def scheduler(timer: func.TimerRequest) -> None:
        engine = await provider.get()
        await schedule.run_due(engine)

    @bp.function_name("retention")
    @bp.timer_trigger(
        arg_name="timer",
        schedule=RETENTION_SCHEDULE,
        run_on_startup=False,
        use_monitor=False,
    )
    @client_bound(bp, provider)  # it deletes what Durable Functions keeps
    async def retention(timer: func.TimerRequest) -> None:
        engine = await provider.get()
        await retain.run(engine)

    return bp
