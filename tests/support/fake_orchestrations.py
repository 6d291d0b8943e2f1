"""Durable Functions in memory, with the semantics of the port: what has ended is started anew,
events are kept, and what is asked for may be seen later. Tests say how instances end.

`before(name, args)` may give an error to raise instead of a call, `after(name, args)` one to raise
although it was done (its answer is lost); both may raise a crash themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from orchestrator.domain.orchestration import Envelope, SignalEnvelope
from orchestrator.ports import Clock, NotFound
from orchestrator.ports_durable import ENDED, Instance, InstanceStatus

Rule = Callable[[str, tuple[Any, ...]], BaseException | None]


@dataclass
class Running:
    """One instance."""

    name: str
    payload: str
    created_at: int
    updated_at: int
    status: InstanceStatus = InstanceStatus.RUNNING
    output: str | None = None
    custom: str | None = None
    events: list[tuple[str, str]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    pending: InstanceStatus | None = None  # what it will be when `step` is called

    @property
    def envelope(self) -> Envelope:
        """What Weft gave it."""
        return Envelope.decode(self.payload)

    @property
    def signals(self) -> list[tuple[str, Any]]:
        """(name, payload) of the signals that were raised, doubles included."""
        return [
            (name, json.loads(SignalEnvelope.decode(text).payload or "null"))
            for name, text in self.events
        ]


class FakeOrchestrations:
    """See the module. `functions`: the orchestrators that exist; None: all."""

    def __init__(self, clock: Clock, functions: set[str] | None = None) -> None:
        self.clock = clock
        self.functions = functions
        self.instances: dict[str, Running] = {}
        self.starts: list[str] = []  # ids, every time that an instance began
        self.calls: list[str] = []
        self.slow = False  # terminate, suspend, resume and rewind are seen after `step` only
        self.rewinds = True  # whether the backend can
        self.before: Rule = lambda name, args: None
        self.after: Rule = lambda name, args: None

    # --- what tests do ----------------------------------------------------------------------------

    def end(self, id: str, output: Any = None) -> None:
        """It completes."""
        self._set(self.instances[id], InstanceStatus.COMPLETED, json.dumps(output))

    def fail(self, id: str, message: str = "broken") -> None:
        """It fails."""
        self._set(self.instances[id], InstanceStatus.FAILED, json.dumps(message))

    def step(self) -> None:
        """What was asked for can be seen from now on."""
        for one in self.instances.values():
            if one.pending is not None:
                self._set(one, one.pending)
                one.pending = None

    def alive(self) -> list[str]:
        """Ids of the instances that have not ended."""
        return [id for id, one in self.instances.items() if one.status not in ENDED]

    # --- the port ---------------------------------------------------------------------------------

    async def start(self, name: str, instance: str, payload: str) -> None:
        """As the port says."""
        self._check("start", name, instance, payload)
        if self.functions is not None and name not in self.functions:
            raise NotFound(f"no orchestrator {name}")
        before = self.instances.get(instance)
        if before is None or before.status in ENDED:
            now = self.clock.now()
            self.instances[instance] = Running(name, payload, now, now)
            self.starts.append(instance)
        self._answer("start", name, instance, payload)

    async def status(self, instance: str, *, history: bool = False) -> Instance | None:
        """As the port says."""
        self._check("status", instance)
        one = self.instances.get(instance)
        self._answer("status", instance)
        if one is None:
            return None
        return Instance(
            id=instance,
            name=one.name,
            status=one.status,
            output=one.output,
            custom_status=one.custom,
            created_at=one.created_at,
            updated_at=one.updated_at,
            history=tuple(one.history) if history else None,
        )

    async def open_of(self, names: Collection[str]) -> dict[str, list[str]]:
        """As the port says."""
        self._check("open_of", names)
        found: dict[str, list[str]] = {}
        for id in self.alive():
            if (name := self.instances[id].name) in names:
                found.setdefault(name, []).append(id)
        return found

    async def raise_event(self, instance: str, name: str, payload: str) -> None:
        """As the port says."""
        self._check("raise_event", instance, name, payload)
        self._alive(instance).events.append((name, payload))
        self._answer("raise_event", instance, name, payload)

    async def terminate(self, instance: str, reason: str) -> None:
        """As the port says."""
        self._check("terminate", instance)
        if instance not in self.instances:
            raise NotFound(instance)
        if self.instances[instance].status not in ENDED:
            self._later(self.instances[instance], InstanceStatus.TERMINATED)
        self._answer("terminate", instance)

    async def suspend(self, instance: str, reason: str) -> None:
        """As the port says."""
        self._check("suspend", instance)
        self._later(self._alive(instance), InstanceStatus.SUSPENDED)
        self._answer("suspend", instance)

    async def resume(self, instance: str, reason: str) -> None:
        """As the port says."""
        self._check("resume", instance)
        self._later(self._alive(instance), InstanceStatus.RUNNING)
        self._answer("resume", instance)

    async def rewind(self, instance: str, reason: str) -> None:
        """As the port says."""
        self._check("rewind", instance)
        one = self.instances.get(instance)
        if one is None or one.status is not InstanceStatus.FAILED or not self.rewinds:
            raise NotFound(instance)
        self._later(one, InstanceStatus.RUNNING)
        self._answer("rewind", instance)

    async def purge(self, instance: str) -> None:
        """As the port says."""
        self._check("purge", instance)
        if instance in self.instances and self.instances[instance].status in ENDED:
            del self.instances[instance]
        self._answer("purge", instance)

    async def close(self) -> None:
        """Nothing to release."""

    def _alive(self, instance: str) -> Running:
        one = self.instances.get(instance)
        if one is None or one.status in ENDED:
            raise NotFound(instance)
        return one

    def _later(self, one: Running, status: InstanceStatus) -> None:
        if self.slow:
            one.pending = status
        else:
            self._set(one, status)

    def _set(self, one: Running, status: InstanceStatus, output: str | None = None) -> None:
        one.status, one.output = status, output
        one.updated_at = max(one.updated_at + 1, self.clock.now())

    def _check(self, name: str, *args: Any) -> None:
        self.calls.append(name)
        if error := self.before(name, args):
            raise error

    def _answer(self, name: str, *args: Any) -> None:
        if error := self.after(name, args):
            raise error


class FakeCode:
    """Code workflows of an app: name -> versions, and schemas of inputs."""

    def __init__(self, versions: dict[str, list[int]], schema: dict[str, Any] | None = None):
        self.registered = versions
        self.schema = schema

    def names(self) -> frozenset[str]:
        """All."""
        return frozenset(self.registered)

    def versions(self, name: str) -> tuple[int, ...]:
        """Ascending."""
        return tuple(sorted(self.registered.get(name, ())))

    def function(self, name: str, version: int) -> str:
        """As the decorator names it."""
        if version not in self.versions(name):
            raise KeyError(name, version)
        return f"code_{name}_v{version}"

    def description(self, name: str, version: int) -> str:
        """Which one it is."""
        return f"{self.function(name, version)} of the tests"

    def input_schema(self, name: str, version: int) -> dict[str, Any] | None:
        """The same for all."""
        self.function(name, version)
        return self.schema

    def output_schema(self, name: str, version: int) -> dict[str, Any] | None:
        """None."""
        self.function(name, version)
        return None
