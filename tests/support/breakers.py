"""A dependency that can be down, and tasks that call it, for tests of circuit breakers."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.breakers import BreakerRules, BreakerStatus
from orchestrator.domain.failure import Failure
from orchestrator.engine import breakers_act, inspect
from orchestrator.engine.core import Engine, Tunables
from orchestrator.ports import ActivityCall, ActivityFailed
from tests.support.definitions import flow, retry
from tests.support.world import TENANT, World

PAY = "pay.example"
FEW = Tunables(breaker=BreakerRules(failures=4))


class Service:
    """A dependency that can be down."""

    def __init__(self) -> None:
        self.down = True
        self.calls: list[ActivityCall] = []

    def __call__(self, call: ActivityCall) -> Any:
        self.calls.append(call)
        if self.down:
            raise ActivityFailed(Failure(type="HttpServerError", message="503"))
        return {"status": 200}


def http(url: str = f"https://{PAY}/charges/${{input.id}}", **more: Any) -> dict[str, Any]:
    return {"type": "http", "request": {"method": "POST", "url": url}, **more}


async def publish(world: World, **tasks: Any) -> None:
    await world.publish(flow(**(tasks or {"a": http(retry=retry(1))})))


async def start(world: World, count: int = 1) -> list[str]:
    return [(await world.start("flow", {"id": str(n)})).id for n in range(count)]


async def shown(world: World, name: str = PAY, engine: Engine | None = None) -> Any:
    return await breakers_act.show(engine or world.engine, TENANT, name)


async def opened(world: World, failures: int = 4) -> None:
    """Fail so often that it opens."""
    await start(world, failures)
    await world.settle()
    assert (await shown(world)).status == BreakerStatus.OPEN


async def later(world: World, ms: int) -> None:
    """Let `ms` pass, and everything that falls due in it happen in its order."""
    end = world.clock.now() + ms
    while True:
        await world.settle()
        due = [one.due_at for one in world.transport.messages if (one.due_at or end + 1) <= end]
        await world.clock.advance(max(0, (min(due) if due else end) - world.clock.now()))
        if not due:
            return await world.settle()


async def attempts(world: World, execution: str) -> int:
    return (await inspect.task(world.engine, TENANT, execution, "a")).attempt
