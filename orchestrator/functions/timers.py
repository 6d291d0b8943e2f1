"""Timer triggers: the sweeper, which mends whatever a crash or a lost message left behind.

Timers come late, twice or not at all, so nothing here counts ticks: a sweep looks at what is due.
"""

from __future__ import annotations

from typing import Final

import azure.functions as func

from orchestrator.engine import sweep
from orchestrator.functions.provider import EngineProvider

SWEEP_SCHEDULE: Final = "*/15 * * * * *"
"""Every 15 seconds: a quarter of the bound on the oldest unsent outbox (60 s)."""


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The function `sweeper`, bound to `provider`'s engine."""
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

    return bp
