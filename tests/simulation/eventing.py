"""Events that start executions: sent twice, to two instances at once, by senders that ask again
until they are answered, with instances that crash in the middle.

Each trigger starts one execution for each source and id, or keeps one dead letter of each content.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from orchestrator.domain import cloudevents
from orchestrator.domain.errors import WeftError
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import events, triggers
from orchestrator.ports import StoreError, TransportError
from tests.simulation import flows
from tests.simulation.features import Feature
from tests.simulation.loop import sleep
from tests.simulation.process import Worker
from tests.simulation.profile import Profile
from tests.simulation.store import Commit

TENANT = "acme"
SHARE = 0.25
PLACE = "_events"
PATIENCE_S = 150
LATER_S = 6
"""A workflow that a replica does not show yet is a refusal, kept as a dead letter."""
KINDS = ("plain", "plain", "filtered", "failing", "refused")


@dataclass(frozen=True)
class Sending:
    """One delivery of an event. `content`: two events may share an id by mistake."""

    number: int
    content: int
    at: float
    instance: int


class Events(Feature):
    """See the module."""

    def __init__(self, rng: random.Random, profile: Profile) -> None:
        super().__init__()
        self.triggers: dict[str, str] = {}  # name -> kind
        self.raw: list[dict[str, Any]] = []
        self.born: dict[tuple[str, str], dict[str, Any]] = {}  # (trigger, event id) -> execution
        self.answered: set[tuple[int, int]] = set()  # (event, content) that a sender was told of
        self.stats: Counter[str] = Counter()
        for number in range(rng.randint(1, 3)):
            flow = flows.draw(rng, f"event-{number}", flows.MAX_LEVEL)
            kind = rng.choice(KINDS)
            if kind == "refused":
                flow.definition["input"] = {"properties": {"never": {"type": "string"}}}
            self.flows.append(flow)
            name = f"on-{number}"
            self.triggers[name] = kind
            raw = {"name": name, "workflow": flow.name, "match": {"source": "/sim"}}
            raw["input"] = {"never": "${event.data.not}"} if kind == "refused" else flow.input
            if kind == "filtered":
                raw["filter"] = "${event.data.n == 1}"
            if kind == "failing":
                raw["filter"] = "${event.data.text > 1}"
            self.raw.append(raw)
        span = max(1.0, profile.fault_seconds * 0.8 - LATER_S)
        self.sendings = [
            Sending(number, content, LATER_S + rng.random() * span, rng.randint(0, 1))
            for number in range(rng.randint(1, 4))
            for content in ((0, 1) if rng.random() < 0.2 else (0,))
            for _ in range(rng.choice((1, 2, 2, 3)))
        ]
        if rng.random() < 0.5:  # all at once, too
            at = LATER_S + rng.random() * span * 0.6
            self.sendings += [Sending(0, 0, at, 0), Sending(0, 0, at, 1)]

    async def prepare(self) -> None:
        """See `Feature`."""
        for raw in self.raw:
            await triggers.create(self.world.client.engine, TENANT, raw)

    async def live(self) -> None:
        """Everybody sends what they have to until they are answered."""
        world = self.world
        self._instances = [Worker(world, "events1"), Worker(world, "events2")]
        for instance in self._instances:
            world.workers.append(instance)
            instance.start()
        await asyncio.gather(*(self._send(sending) for sending in self.sendings))

    async def _send(self, sending: Sending) -> None:
        await sleep(sending.at)
        while not self.world.problems:
            if await self._call(sending, self._instances[sending.instance]):
                self.answered.add((sending.number, sending.content))
                return
            await sleep(self.world.rng.random() * 5)

    async def _call(self, sending: Sending, instance: Worker) -> bool:
        answers: list[bool] = []
        body = {"specversion": "1.0", "id": f"event-{sending.number}", "source": "/sim"}
        data: Any = {"n": sending.number % 2, "text": "x", "content": sending.content, "not": 1}
        event = cloudevents.structured({**body, "type": "sim", "data": data})

        async def ask(worker: Worker) -> None:
            try:
                await events.receive(worker.engine, TENANT, [event])
                answers.append(True)
            except (StoreError, TransportError, WeftError, OSError):
                answers.append(False)

        process = instance.process
        while process is None or process.dead:  # the supervisor starts another
            await sleep(0.5)
            process = instance.process
        instance.spawn(ask, instance)
        waited = 0.0
        while not answers and not process.dead and waited < PATIENCE_S:
            await sleep(0.2)
            waited += 0.2
        return bool(answers) and answers[0]

    # --- invariants -------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> None:
        """See `Feature`."""
        if commit.container != EXECUTIONS:
            return
        for id, old, new in commit.changes:
            if new is None:
                continue
            if new["type"] == "execution" and old is None and "event" in new:
                key = (new["event"]["trigger"], new["event"]["id"])
                first = self.born.setdefault(key, new)
                self.stats["born"] += 1
                if first is not new:
                    self.world.fail(f"{key} started {first['id']} and {id}")
            if commit.partition[1] == PLACE and old is None:
                self.stats[new["reason"]] += 1

    def _letters(self) -> dict[tuple[str, str], list[str]]:
        """(trigger, reason) -> the texts of the events that are kept for it."""
        found: dict[tuple[str, str], list[str]] = {}
        for body in self.world.store.bodies(EXECUTIONS, (TENANT, PLACE)).values():
            found.setdefault((body["trigger"], body["reason"]), []).append(body["event"]["json"])
        return found

    def judge(self) -> None:
        """See `Feature`."""
        letters = self._letters()
        for trigger, kind in self.triggers.items():
            reused = letters.get((trigger, "idReused"), [])
            reason = {"failing": "filterFailed", "refused": "startRefused"}.get(kind)
            kept = letters.get((trigger, reason), []) if reason else []
            for number in sorted({number for number, _ in self.answered}):
                contents = [content for one, content in sorted(self.answered) if one == number]
                name = f'"event-{number}"'
                mine = sum(name in text for text in kept)
                again = sum(name in text for text in reused)
                started = (trigger, f"event-{number}") in self.born
                passes = reason is None and (kind != "filtered" or number % 2 == 1)
                wanted = (
                    passes,
                    len(contents) if reason else 0,
                    len(contents) - 1 if passes else 0,
                )
                if (started, mine, again) != wanted:
                    self.world.fail(
                        f"{trigger} ({kind}) and event {number} {contents}: started {started}, "
                        f"{mine} dead letters, {again} for its id"
                    )
