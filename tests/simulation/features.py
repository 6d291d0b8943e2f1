"""Parts of the platform that some seeds exercise beside plain executions: schedules, a dependency
with a circuit breaker, event triggers.

Each is drawn from the seed by itself, so that seeds without it stay what they were, and brings its
workflows, actors and invariants along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from orchestrator.engine.core import Engine
from orchestrator.ports import ActivityCall
from tests.simulation.flows import Flow
from tests.simulation.profile import Profile
from tests.simulation.store import Commit

if TYPE_CHECKING:
    from tests.simulation.process import Worker
    from tests.simulation.world import World

Actor = Callable[["Worker"], Awaitable[None]]


class Feature:
    """What a part may do in a run; by default nothing."""

    world: World

    def __init__(self) -> None:
        self.flows: list[Flow] = []  # workflows of its own
        self.actors: tuple[Actor, ...] = ()  # that run in every worker

    def tune(self, profile: Profile) -> Profile:
        """The installation as this part wants it."""
        return profile

    def alter(self, flow: Flow) -> None:
        """May change a workflow before it is published."""

    def equip(self, engine: Engine, worker: Worker) -> None:
        """May give an engine that begins what this part needs."""

    async def prepare(self) -> None:
        """Before faults begin, with the world's client."""

    async def live(self) -> None:
        """Its actor outside of all workers; ends when faults do."""

    def commit(self, commit: Commit) -> None:
        """Looks at every transaction."""

    def claimed(self, where: str, doc: dict[str, Any]) -> None:
        """Looks at every claim of a task."""

    def attempt(self, worker: Worker, call: ActivityCall) -> None:
        """Looks at every attempt that begins; what it raises is the attempt's failure."""

    def attempted(self, worker: Worker, call: ActivityCall) -> None:
        """Looks at every attempt that has ended in a process that lives."""

    def disturbs(self, flow: Flow) -> bool:
        """Whether tasks of a workflow may have had more attempts because of this part."""
        return False

    def excused_s(self) -> float:
        """By how many seconds executions may end later because of what this part has done to them
        since faults ended."""
        return 0.0

    def done(self) -> bool:
        """Whether it begins nothing any more."""
        return True

    def snapshot(self) -> Any:
        """What must not change once everything has ended."""
        return None

    def judge(self) -> None:
        """When everything has ended."""
