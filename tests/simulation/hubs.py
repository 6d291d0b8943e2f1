"""Orchestrations in the simulation: a task hub that every worker asks, and that does not always
answer; workflows with `durable` tasks, and code workflows.

At any moment a task has one instance at most that has not ended; none is started twice under one
id, unless it had ended; what was cancelled is terminated; every signal that is recorded as raised
was; and an instance that nobody stopped gives its task its result.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from orchestrator.domain.errors import WeftError
from orchestrator.domain.orchestration import SignalEnvelope
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import control, orchestrations, signals, submit
from orchestrator.engine.core import Engine
from orchestrator.ports import StoreError, TransportError, Unavailable
from orchestrator.ports_durable import Instance, InstanceStatus
from tests.simulation.features import Feature
from tests.simulation.flows import Flow
from tests.simulation.loop import sleep
from tests.simulation.ports import Port
from tests.simulation.profile import Profile
from tests.support.fake_orchestrations import FakeCode, FakeOrchestrations

if TYPE_CHECKING:
    from tests.simulation.process import Worker

TENANT = "acme"
SHARE = 0.15
EXECUTIONS_AT_MOST = 4
LIVES_S = 40


class _TrueTime:
    """The clock of the hub."""

    def __init__(self, feature: Feature) -> None:
        self._feature = feature

    def now(self) -> int:
        """Epoch milliseconds."""
        return self._feature.world.now()

    async def sleep(self, ms: int) -> None:
        """Nobody asks."""
        await sleep(ms / 1000)


class Hubs(Feature):
    """See the module."""

    def __init__(self, rng: random.Random, profile: Profile) -> None:
        super().__init__()
        self._rng = rng
        self._busy = True
        self._seconds = profile.fault_seconds
        self.hub = FakeOrchestrations(_TrueTime(self))
        self.code = FakeCode({"ship": [1, 2]})
        self.started: list[str] = []
        for number in range(rng.randint(1, 2)):
            self.flows.append(self._flow(f"hub-{number}"))
        self.flows.append(self._code())

    def _flow(self, name: str) -> Flow:
        durable: dict[str, Any] = {"type": "durable", "orchestration": "ship", "input": 1}
        limits = {"retry": {"maxAttempts": 2, "initialInterval": "1s"}}
        tasks: dict[str, Any] = {
            "a": {**durable, "signals": ["poke"], **(limits if self._rng.random() < 0.5 else {})},
            "b": {"type": "transform", "needs": ["a"], "output": 2},
            "m": {"type": "map", "items": [1, 2], "do": durable, "continueOnError": True},
        }
        if self._rng.random() < 0.3:
            tasks["a"]["timeout"] = "20s"
        on_failure = self._rng.choice(("continue", "failFast"))
        definition = {"name": name, "tasks": tasks, "onFailure": on_failure}
        return Flow(name, definition, {}, comparable=False)

    def _code(self) -> Flow:
        """What a code workflow stands for, so that invariants know its tasks; published nowhere."""
        main = {"type": "durable", "orchestration": "ship", "input": "${input}"}
        definition = {"name": "ship", "tasks": {"main": main}, "onFailure": "failFast"}
        return Flow("ship", definition, {}, comparable=False)

    def equip(self, engine: Engine, worker: Worker) -> None:
        """See `Feature`."""
        engine.code = self.code
        engine.orchestrations = SimHub(worker.world, worker, self)

    # --- what happens in the hub ------------------------------------------------------------------

    async def live(self) -> None:
        """Starts executions, and signals, pauses and cancels some, until all have ended."""
        world = self.world
        world.spawn(self._hub)
        names = [flow.name for flow in self.flows]
        for _ in range(self._rng.randint(1, EXECUTIONS_AT_MOST)):
            await self._begin(self._rng.choice(names))
            await sleep(self._rng.random() * self._seconds / 4)
        while any(id in world.open() for id in self.started):
            await sleep(1)
            await self._meddle()
        self._busy = False

    async def _hub(self) -> None:
        """Instances end, for as long as the world lives: a replay may begin some at any time."""
        while True:
            await sleep(1)
            for id in self.hub.alive():
                if self.hub.instances[id].status is InstanceStatus.RUNNING:
                    await self._maybe_end(id)

    async def _begin(self, workflow: str) -> None:
        key = f"hub-{len(self.started)}"
        while True:
            try:
                engine = self.world.client.engine
                answer = await submit.start(engine, TENANT, workflow, {}, key=key)
            except (StoreError, WeftError):
                await sleep(1)
                continue
            self.started.append(answer.id)
            return

    async def _meddle(self) -> None:
        world, roll = self.world, self._rng.random()
        some = [id for id in self.started if id in world.open()]
        if not some:
            return
        id, engine = self._rng.choice(some), world.client.engine
        try:
            if not world.plan.enabled:  # what is paused would never end
                await control.act(engine, TENANT, id, control.RESUME, by="hub")
            elif roll < 0.10:
                signal = f"p{self._rng.randint(0, 5)}"
                await signals.send(engine, TENANT, id, "poke", signal, id=signal)
            elif roll < 0.12:
                await control.act(engine, TENANT, id, control.CANCEL, by="hub")
            elif roll < 0.16:
                await control.act(engine, TENANT, id, control.PAUSE, by="hub")
            elif roll < 0.22:
                await control.act(engine, TENANT, id, control.RESUME, by="hub")
        except (StoreError, WeftError):
            return

    async def _maybe_end(self, id: str) -> None:
        one, roll = self.hub.instances[id], self._rng.random()
        age = (self.world.now() - one.created_at) / 1000
        if roll > age / LIVES_S / 10:
            return
        envelope = one.envelope
        word = self._rng.random() < 0.7
        if word:
            try:
                engine = self.world.client.engine
                await orchestrations.ended(
                    engine, TENANT, envelope.execution, envelope.task, envelope.item, id
                )
            except (StoreError, TransportError):
                self.world.note(f"{id} could not say that it ends")
        if self.hub.instances[id].status is not InstanceStatus.RUNNING:
            return
        if self._rng.random() < 0.2:
            self.hub.fail(id)
        else:
            self.hub.end(id, {"n": 1})

    # --- invariants -------------------------------------------------------------------------------

    def begun(self, id: str) -> None:
        """An instance runs from now on, started or rewound."""
        envelope = self.hub.instances[id].envelope
        place = (envelope.execution, envelope.task, envelope.item)
        alive = [
            other
            for other in self.hub.alive()
            if (one := self.hub.instances[other].envelope)
            and (one.execution, one.task, one.item) == place
        ]
        if len(alive) > 1:
            self.world.fail(f"{place} has the instances {alive} at the same time")

    def done(self) -> bool:
        """See `Feature`."""
        return not self._busy

    def snapshot(self) -> Any:
        """All is silent: nothing runs that nobody waits for."""
        if alive := self.hub.alive():
            self.world.fail(f"instances run although everything has ended: {alive}")
        return sorted((id, one.status.value) for id, one in self.hub.instances.items())

    def judge(self) -> None:
        """See `Feature`."""
        twice = [id for id, count in Counter(self.hub.starts).items() if count > 1]
        if twice:
            self.world.fail(f"started twice: {twice}")
        for (partition, id), doc in self.world.store.bodies(EXECUTIONS).items():
            if doc["type"] == "signal" and doc["status"] == "RAISED":
                events = self.hub.instances[doc["instance"]].events
                if doc["signalId"] not in {SignalEnvelope.decode(text).id for _, text in events}:
                    self.world.fail(f"{partition[1]}/{id} was recorded as raised and was not")
            if doc["type"] == "task" and "instance" in doc:
                self._task(f"{partition[1]}/{id}", doc)

    def _task(self, where: str, doc: dict[str, Any]) -> None:
        one = self.hub.instances.get(doc["instance"]["id"])
        if doc["status"] == "COMPLETED" and one is not None and doc.get("output") is not None:
            given = json.loads(doc["output"]["json"])
            skipped = one.status is not InstanceStatus.COMPLETED
            if not skipped and given != json.loads(one.output or "null"):
                self.world.fail(f"{where}: {given} is not the instance's output {one.output}")


class SimHub(Port):
    """The hub as one process sees it: calls are slow, refused, or their answer is lost."""

    def __init__(self, world: Any, worker: Worker, feature: Hubs) -> None:
        super().__init__(world, worker)
        self._feature = feature

    async def _call(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        place = f"{self._worker.name}.hub.{name}"
        fault = self._world.plan.at(place, self._world.chances.writes)
        await self._before(fault)
        if fault is not None and fault.kind in ("unavailable", "throttled"):
            raise Unavailable("simulated, not done")
        result = await work()
        if fault is not None and fault.kind == "answerLost":
            await self._hop()
            raise Unavailable("simulated, done")
        await self._after(fault)
        return result

    async def start(self, name: str, instance: str, payload: str) -> None:
        """As the port says."""

        async def work() -> None:
            await self._feature.hub.start(name, instance, payload)
            self._feature.begun(instance)

        await self._call("start", work)

    async def status(self, instance: str, *, history: bool = False) -> Instance | None:
        """As the port says."""
        hub = self._feature.hub
        found: Instance | None = await self._call("status", lambda: hub.status(instance))
        return found

    async def raise_event(self, instance: str, name: str, payload: str) -> None:
        """As the port says."""
        hub = self._feature.hub
        await self._call("raise", lambda: hub.raise_event(instance, name, payload))

    async def terminate(self, instance: str, reason: str) -> None:
        """As the port says."""
        await self._call("terminate", lambda: self._feature.hub.terminate(instance, reason))

    async def suspend(self, instance: str, reason: str) -> None:
        """As the port says."""
        await self._call("suspend", lambda: self._feature.hub.suspend(instance, reason))

    async def resume(self, instance: str, reason: str) -> None:
        """As the port says."""
        await self._call("resume", lambda: self._feature.hub.resume(instance, reason))

    async def rewind(self, instance: str, reason: str) -> None:
        """As the port says."""

        async def work() -> None:
            await self._feature.hub.rewind(instance, reason)
            self._feature.begun(instance)

        await self._call("rewind", work)

    async def purge(self, instance: str) -> None:
        """As the port says."""
        await self._call("purge", lambda: self._feature.hub.purge(instance))

    async def close(self) -> None:
        """Nothing to release."""
