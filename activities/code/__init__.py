"""Code workflows: a workflow as a Python generator, run by Durable Functions.

    from activities import CodeContext, Retry, code_workflow

    @code_workflow("order", input=Order, output=Receipt)
    def order(ctx: CodeContext, order: Order):
        charge = yield ctx.call_activity("orders.charge", order, retry=Retry(max_attempts=5))
        yield ctx.wait_for_signal("approved", timeout="2d")
        return Receipt(charge=charge)

The function runs again from its beginning at every step, with what is known handed to it; so it
must do nothing by itself but decide. `weft code lint` finds what it must not do.
"""

from activities.code.context import CodeContext
from activities.code.registry import code_workflow
from activities.code.retry import Retry
from activities.code.tasks import Task, TaskFailed

__all__ = ["CodeContext", "Retry", "Task", "TaskFailed", "code_workflow"]
