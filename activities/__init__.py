"""Activities: the work that workflows do. Put your own modules into this folder.

    from activities import Context, activity

    @activity("parcels.weigh")
    def weigh(parcel: Parcel, ctx: Context) -> Weight: ...

Every module below this package is imported when the app starts. Plain functions run in threads,
`async def` ones on the event loop. An attempt may run more than once: pass `ctx.idempotency_key`
to whatever you call. Workflows in Python (`@code_workflow`, see `activities.code`) live here, too.
"""

from activities.code import CodeContext, Retry, TaskFailed, code_workflow
from activities.context import Context
from activities.errors import Cancelled, PermanentError, RetryableError
from activities.registry import activity

__all__ = [
    "Cancelled",
    "CodeContext",
    "Context",
    "PermanentError",
    "Retry",
    "RetryableError",
    "TaskFailed",
    "activity",
    "code_workflow",
]
