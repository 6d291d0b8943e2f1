"""The simulated installation: shared store and broker, worker processes, clients, and chaos.

A run has three phases. While faults last, clients submit and everything may fail. Then the faults
stop and every execution must end within a bound of virtual time. Then everything must fall silent,
and a further round of recovery must change nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.domain.errors import WeftError
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE, TASK_QUEUES
from orchestrator.engine import catalog, submit
from orchestrator.engine.lru import Lru
from orchestrator.ports import ActivityCall, StoreError, TransportError
from tests.simulation import behaviour
from tests.simulation.broker import MemoryBroker
from tests.simulation.faults import FaultPlan
from tests.simulation.flows import Flow
from tests.simulation.loop import Process, SimLoop, sleep
from tests.simulation.ports import START
from tests.simulation.process import ACTORS, Worker
from tests.simulation.profile import Profile
from tests.simulation.store import MemoryStore
from tests.simulation.undoing import HIDDEN, all_tasks
from tests.simulation.watch import ENDED, SETTLED, Watch

if TYPE_CHECKING:
    from tests.simulation.features import Feature
    from tests.simulation.redrive import Deed

TENANT = "acme"
QUEUES = (ORCHESTRATION_QUEUE, *TASK_QUEUES)


@dataclass
class Chances:
    """The profile's tables, made once."""

    profile: Profile
    writes: Any = field(init=False)
    reads: Any = field(init=False)
    sends: Any = field(init=False)
    settles: Any = field(init=False)
    payloads: Any = field(init=False)
    life: Any = field(init=False)
    pauses: Any = field(init=False)
    relays: Any = field(init=False)
    chaos: Any = field(init=False)
    operators: Any = field(init=False)
    signals: Any = field(init=False)
    redrive: Any = field(init=False)

    def __post_init__(self) -> None:
        for name in (
            "writes", "reads", "sends", "settles", "payloads", "life", "pauses", "relays", "chaos",
            "operators", "redrive", "signals",
        ):  # fmt: skip
            setattr(self, name, getattr(self.profile, name)())


@dataclass
class Submission:
    """What a client wants started; `execution` once it was accepted."""

    flow: Flow
    at: float
    key: str | None
    client: int = 0
    execution: str = ""


class World:
    """Everything of one run. Actors and invariants are added here: see `Worker.start`, `Watch`."""

    def __init__(
        self, loop: SimLoop, rng: random.Random, plan: FaultPlan, profile: Profile
    ) -> None:
        self.loop = loop
        loop.failed = self.fail
        self.rng = rng
        self.plan = plan
        self.profile = profile
        self.chances = Chances(profile)
        self.context = contextvars.Context()
        self.store = MemoryStore(self.now)
        self.broker = MemoryBroker(self.now)
        self.payloads: dict[str, bytes] = {}
        self.definitions: Lru[Any] = Lru(1_000)
        self.watch = Watch(self)
        self.store.observers.append(self.watch.commit)
        self.broker.observers.append(self.watch.message)
        self.processes: list[Process] = []
        self.workers: list[Worker] = []
        self.client = Worker(self, "api")
        self.clients = [self.client, Worker(self, "api2")]
        self.submissions: list[Submission] = []
        self.metrics: Counter[str] = Counter()
        self.trace: list[str] = []
        self.problems: list[str] = []
        self.crashes = 0
        self.cancelled: set[str] = set()  # an operator tried to
        self.signals: dict[tuple[str, str], tuple[str, bool]] = {}
        """(execution, signal id) -> its name, and whether it was accepted."""
        self.healed_at = 0
        self.deeds: dict[str, Deed] = {}  # what operators wanted of dead letters, by their names
        self.outage = False  # the store was down for longer than the engine is patient
        self.writing = ""
        self.store_down_until = 0
        self.broker_down_until = 0
        self.feed_owner: Process | None = None
        self.feed_cursor: str | None = None
        self.features: list[Feature] = []
        self.more_flows: list[Flow] = []  # beside those that clients start
        self._shapes: dict[str, list[tuple[list[int], str]]] = {}
        self._names: dict[str, list[str]] = {}
        self._flows: dict[str, Flow] = {}

    def adopt(self, features: list[Feature]) -> None:
        """Take in the parts that this run exercises."""
        for feature in features:
            feature.world = self
            self.features.append(feature)
            self.more_flows += feature.flows
            self.store.observers.append(feature.commit)
            for client in self.clients:
                feature.equip(client.engine, client)

    def now(self) -> int:
        """True time, epoch milliseconds."""
        return START + int(self.loop.time() * 1000 + 1e-6)

    def note(self, text: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{self.loop.time():9.3f} {text}")

    def fail(self, text: str) -> None:
        """An invariant is broken: the run ends."""
        self.problems.append(text)
        self.note(f"BROKEN: {text}")

    def spawn(self, work: Callable[..., Awaitable[None]], *args: Any) -> asyncio.Task[None]:
        """An actor outside all processes."""
        return self.loop.spawn(None, self.guarded(work, *args), work.__name__)

    async def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until `done`, at most `seconds`; whether it was. False at once when an
        invariant has broken."""
        end = self.loop.time() + seconds
        while not self.problems:
            if done():
                return True
            left = end - self.loop.time()
            if left <= 0:
                break
            await sleep(min(1.0, left))
        return False

    async def guarded(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """No actor may die of anything that the host would not survive either."""
        try:
            await work(*args)
        except Exception as error:
            self.fail(f"an exception reached the host: {type(error).__name__}: {error}")

    async def behave(self, worker: Worker, call: ActivityCall) -> Json:
        """An attempt begins."""
        self.watch.attempt(call, worker.clock.now())
        for feature in self.features:
            feature.attempt(worker, call)
        try:
            return await behaviour.behave(call)
        finally:
            for feature in self.features:
                feature.attempted(worker, call)

    # --- what the invariants look at --------------------------------------------------------------

    def document(self, execution: str) -> dict[str, Any] | None:
        """The execution's document."""
        return self.store.body(EXECUTIONS, (TENANT, execution), execution)

    def state(self, execution: str) -> dict[str, Any] | None:
        """The execution's stored state."""
        doc = self.document(execution)
        return None if doc is None else doc["state"]

    def tasks(self, execution: str) -> list[tuple[list[int], str]]:
        """Needs (positions) and `runWhen` of each task, from the definition as it was written."""
        flow = self.flow(execution)
        if flow.name not in self._shapes:
            written = all_tasks(flow.definition)
            places = {id: position for position, id in enumerate(written)}
            self._shapes[flow.name] = [
                ([places[need] for need in task.get("needs", [])],
                 task.get("runWhen", "allSucceeded"))
                for task in written.values()
            ]  # fmt: skip
        return self._shapes[flow.name]

    def position(self, execution: str, task: str) -> int:
        """Place of a task in its definition."""
        return self.names(execution).index(task)

    def names(self, execution: str) -> list[str]:
        """Ids of the tasks, compensations included, by position."""
        flow = self.flow(execution)
        if flow.name not in self._names:
            self._names[flow.name] = list(all_tasks(flow.definition))
        return self._names[flow.name]

    def accepted(self) -> list[str]:
        """Executions that a client was told of."""
        return [one.execution for one in self.submissions if one.execution]

    def open(self) -> list[str]:
        """Stored executions that have not ended."""
        return [id for id, status in self.watch.statuses.items() if status not in ENDED]

    def ended(self) -> bool:
        """Whether nothing is open, and nothing will be begun."""
        return not self.open() and all(feature.done() for feature in self.features)

    def flow(self, execution: str) -> Flow:
        """The workflow that an execution runs."""
        doc = self.document(execution)
        assert doc is not None
        name = doc["workflow"]
        if name not in self._flows:
            known = [*(one.flow for one in self.submissions), *self.more_flows]
            flows = (flow for one in known for flow in one.family())
            self._flows[name] = next(flow for flow in flows if flow.name == name)
        return self._flows[name]

    # --- the run ----------------------------------------------------------------------------------

    async def publish(self, flows: list[Flow]) -> None:
        """Before anything fails."""
        code = self.client.engine.code.names()
        for flow in (member for one in flows for member in one.family() if member.name not in code):
            await catalog.publish(self.client.engine, TENANT, flow.definition)

    def start_workers(self) -> None:
        """All processes with all actors."""
        for number in range(self.profile.workers):
            skew = 0
            if self.profile.weights["clock"]:
                skew = self.rng.randint(-5_000, 5_000)
            worker = Worker(self, f"w{number + 1}", skew)
            self.workers.append(worker)
            more = [actor for feature in self.features for actor in feature.actors]
            worker.start(*ACTORS, *more)

    async def submit(self, submission: Submission) -> None:
        """A client: asks again with its key until it is answered; without a key, only once."""
        await sleep(submission.at)
        flow = submission.flow
        while not submission.execution:
            try:
                answer = await submit.start(
                    self.clients[submission.client].engine,
                    TENANT,
                    flow.name,
                    flow.input,
                    key=submission.key,
                )
                submission.execution = answer.id
            except (StoreError, TransportError, WeftError):
                if submission.key is None:
                    return
                await sleep(self.rng.random() * 5)
        same = {one.execution for one in self.submissions
                if one.key == submission.key and one.execution}  # fmt: skip
        if submission.key is not None and len(same) > 1:
            self.fail(f"one key started {same}")

    async def chaos(self) -> None:
        """Things that happen to the broker, the clocks and the cloud at large."""
        while self.plan.enabled:
            await sleep(self.rng.random())
            fault = self.plan.at("chaos", self.chances.chaos)
            if fault is None:
                continue
            rng = random.Random(fault.place)
            queues = TASK_QUEUES if fault.size % 2 else (ORCHESTRATION_QUEUE,)
            self.note(f"chaos: {fault}")
            match fault.kind:
                case "purge":
                    for queue in queues:
                        self.broker.lose(rng, queue, 1.0)
                case "loseSome":
                    for queue in queues:
                        self.broker.lose(rng, queue, 0.3)
                case "unlock":
                    for queue in queues:
                        self.broker.unlock(queue)
                case "double":
                    for queue in queues:
                        self.broker.double(rng, queue)
                case "shuffle":
                    for queue in queues:
                        self.broker.shuffle(rng, queue)
                case "delay":
                    ms = rng.randint(100, 40_000)
                    for queue in queues:
                        self.broker.delay(rng, queue, ms)
                case "delayLong":  # beyond the window of duplicate detection
                    for queue in queues:
                        self.broker.delay(rng, queue, 700_000)
                case "jump":
                    rng.choice(self.workers).clock.skew_ms = fault.size - 5_000
                case "storeDown":
                    self.outage = True
                    self.store_down_until = self.now() + fault.size
                case _:
                    self.broker_down_until = self.now() + fault.size

    def heal(self) -> None:
        """From now on nothing fails any more."""
        self.note("faults end")
        self.plan.enabled = False
        self.healed_at = self.now()
        self.store_down_until = self.broker_down_until = 0
        for worker in self.workers:
            worker.heal()

    def outcome(self, execution: str, *, whole: bool, items: bool = True) -> Any:
        """What two runs of a workflow must agree on. `items`: also each of every map."""
        doc = self.document(execution)
        assert doc is not None
        if not whole:
            return doc["status"]
        state = doc["state"]
        assert set(state["tasks"]) <= SETTLED | {HIDDEN}
        outputs = {
            id: self._text(body["output"])
            for (_, id), body in self.store.bodies(EXECUTIONS, (TENANT, execution)).items()
            if body["type"] == "task"
            and body["status"] == "COMPLETED"
            and (items or "item" not in body)
        }
        return doc["status"], state["tasks"], self._text(state.get("output")), outputs

    def _text(self, payload: dict[str, Any] | None) -> str | None:
        if payload is None:
            return None
        return self.payloads[payload["ref"]].decode() if "ref" in payload else payload["json"]
