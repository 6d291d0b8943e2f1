"""Timer triggers: the sweeper, which mends whatever a crash or a lost message left behind, and the
scheduler, which starts what schedules say.

Timers come late, twice or not at all, so nothing here counts calls: both look at what is due.
"""

from __future__ import annotations

from typing import Final

import azure.functions as func

from orchestrator.engine import levels, schedule, sweep
from orchestrator.functions.provider import EngineProvider

SWEEP_SCHEDULE: Final = "*/15 * * * * *"
"""Every 15 seconds: a quarter of the bound on the oldest unsent outbox (60 s)."""
SCHEDULER_SCHEDULE: Final = "*/5 * * * * *"
"""Every 5 seconds: how late a tick is started at most, if the timer comes in time."""


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The functions `sweeper` and `scheduler`, bound to `provider`'s engine."""
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

    return bp
