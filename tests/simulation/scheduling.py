"""Schedules in the simulation: every worker is a scheduler, and some of them lead, or believe so.

What must hold of every write is written down here a second time: a tick is decided once, in order,
is dropped only if it was late and the policy says so, and only the newest leader writes.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from orchestrator.domain.codec import iso
from orchestrator.domain.topology import CATALOG, CONTROL, EXECUTIONS
from orchestrator.engine import schedule, schedules
from orchestrator.ports import StoreError
from tests.simulation import flows
from tests.simulation.features import Feature
from tests.simulation.loop import sleep
from tests.simulation.ports import START
from tests.simulation.profile import Profile
from tests.simulation.store import Commit

if TYPE_CHECKING:
    from tests.simulation.process import Worker

TENANT = "acme"
SHARE = 0.25
"""Of the seeds."""
PERIOD_S = 5
IDLE_S = 45
MAX_TICKS = 8
MISFIRES: tuple[Any, ...] = ("skip", "fireOnce", {"catchUp": 2}, {"catchUp": 100})
OVERLAPS = ("allow", "allow", "skip", "queue", "cancelPrevious")
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}
GRACES = {"1s": 1_000, "10s": 10_000, "2m": 120_000}


class Schedules(Feature):
    """A few schedules, and what is known about them."""

    def __init__(self, rng: random.Random, profile: Profile) -> None:
        super().__init__()
        self.actors = (scheduler,)
        self.raw: dict[str, dict[str, Any]] = {}
        self.ticks: dict[str, list[int]] = {}
        self.owners: dict[int, str] = {}  # token -> the process that leads with it
        self.births: dict[tuple[str, int], str] = {}  # (schedule, tick) -> its execution
        self.born: defaultdict[str, list[str]] = defaultdict(list)  # by schedule
        self.recorded: set[tuple[str, int]] = set()  # ticks whose start is in the history
        self.stale: set[tuple[str, int]] = set()  # ticks that a deposed leader started
        self._lease_ms = rng.choice((6_000, 15_000, 30_000))
        for number in range(rng.randint(1, 3)):
            flow = flows.draw(rng, f"tick-{number}", flows.MAX_LEVEL)
            self.flows.append(flow)
            interval = max(1, profile.fault_seconds // rng.randint(2, MAX_TICKS))
            self.raw[f"s{number}"] = {
                "name": f"s{number}",
                "workflow": flow.name,
                "interval": f"{interval}s",
                "end": iso(START + profile.fault_seconds * 900),
                "misfire": rng.choice(MISFIRES),
                "misfireGrace": rng.choice(tuple(GRACES)),
                "overlap": rng.choice(OVERLAPS),
                "input": flow.input,
            }

    def tune(self, profile: Profile) -> Profile:
        """See `Feature`."""
        return profile.tuned(scheduler_lease_ms=self._lease_ms)

    async def prepare(self) -> None:
        """See `Feature`."""
        for raw in self.raw.values():
            await schedules.create(self.world.client.engine, TENANT, raw)

    def done(self) -> bool:
        """Whether no schedule has anything to do."""
        return not any("dueAt" in body for body in self._stored())

    def snapshot(self) -> Any:
        """The schedules as they are stored."""
        return self._stored()

    def _stored(self) -> list[dict[str, Any]]:
        bodies = self.world.store.bodies(CATALOG).values()
        return [body for body in bodies if body["type"] == "schedule"]

    # --- every commit -----------------------------------------------------------------------------

    def commit(self, commit: Commit) -> None:
        """See `Feature`."""
        for _, old, new in commit.changes:
            kind = (new or old or {}).get("type")
            if commit.container == CONTROL and kind == "lease":
                self._lease(old, new)
            elif commit.container == CATALOG and kind == "schedule":
                self._schedule(old, new)
            elif commit.container == EXECUTIONS and old is None and "schedule" in (new or ()):
                self._birth(new)

    def _lease(self, old: Any, new: Any) -> None:
        """A token belongs to one process, and only grows."""
        owner = self.owners.setdefault(new["token"], new["owner"])
        if owner != new["owner"]:
            self.world.fail(f"token {new['token']} was given to {owner} and to {new['owner']}")
        if old is not None and old["token"] > new["token"]:
            self.world.fail(f"token {new['token']} after {old['token']}")

    def _leads(self) -> bool:
        """Whether the process that writes now is the one that the lease names."""
        lease = self.world.store.body(CONTROL, ("scheduler",), "scheduler")
        return lease is not None and _process(lease["owner"]) == self.world.writing

    def _schedule(self, old: Any, new: Any) -> None:
        name = new["name"]
        if old is None:
            step = int(new["definition"].split('"interval":"')[1].split("s")[0]) * 1000
            end = START + self.world.profile.fault_seconds * 900
            self.ticks[name] = list(range(new["createdAt"] + step, end + 1, step))
            return
        if new["fence"] < old["fence"]:
            self.world.fail(f"{name}: written by leader {new['fence']} after {old['fence']}")
        if _process(self.owners.get(new["fence"], "nobody")) != self.world.writing:
            self.world.fail(f"{name}: {self.world.writing} wrote with token {new['fence']}")
        ticks = self.ticks[name]
        before = sum(tick <= old["cursor"] for tick in ticks)
        decided = sum(tick <= new["cursor"] for tick in ticks)
        accounted = sum(new["counts"].values()) + len(new["waiting"])
        if decided < before or accounted != decided:
            self.world.fail(f"{name}: {accounted} of {decided} ticks are accounted for: {new}")
        fresh = new["history"][-(new["fires"] - old["fires"]) :]
        for entry in fresh if new["fires"] > old["fires"] else ():
            self._entry(name, entry, ticks[before:decided])

    def _entry(self, name: str, entry: dict[str, Any], decided: list[int]) -> None:
        raw, outcome, tick = self.raw[name], entry["outcome"], entry["tick"]
        if outcome == "started":
            self.recorded.add((name, tick))
            if self.births.get((name, tick)) != entry["execution"]:
                self.world.fail(f"{name}: {entry} is no execution of it")
        elif outcome == "missed":
            rule = raw["misfire"]
            keeps = {"skip": 0, "fireOnce": 1}[rule] if isinstance(rule, str) else rule["catchUp"]
            judged = [one for one in decided if one >= tick]  # before it: begun in time
            if len(judged) - entry["count"] != min(keeps, len(judged)):
                self.world.fail(f"{name}: {entry} of {judged} under {rule}")
            if any((name, one) not in self.births for one in decided if one < tick):
                self.world.fail(f"{name}: {entry} of {decided}, the first was never begun")
            if entry["at"] - tick <= GRACES[raw["misfireGrace"]]:
                self.world.fail(f"{name}: {entry} was not late")
        elif outcome == "skipped":
            codes = {"skip": "OVERLAP", "cancelPrevious": "SUPERSEDED"}
            if entry["code"] != codes.get(raw["overlap"]):
                self.world.fail(f"{name}: {entry} under {raw['overlap']}")
        else:
            self.world.fail(f"{name}: {entry}")

    def _birth(self, new: Any) -> None:
        """One execution for each tick; beside another one only if that is allowed."""
        name, tick, id = new["schedule"], new["scheduledFor"], new["executionId"]
        overlap = self.raw[name]["overlap"]
        if overlap == "cancelPrevious":
            self.world.cancelled.add(id)  # the next tick may
        if self.births.setdefault((name, tick), id) != id or tick not in self.ticks[name]:
            self.world.fail(f"{name}: {tick} started {id} and {self.births[name, tick]}")
        statuses, reopened = self.world.watch.statuses, self.world.watch.letters.reopened
        running = [
            one for one in self.born[name] if statuses[one] not in ENDED and one not in reopened
        ]
        if overlap == "cancelPrevious":  # what undoes itself cannot be cancelled
            running = [one for one in running if statuses[one] != "COMPENSATING"]
        self.born[name].append(id)
        if not self._leads():
            self.stale.add((name, tick))
        elif running and overlap != "allow" and not self.stale:
            self.world.fail(f"{name}: {id} started beside {running} under {overlap}")

    # --- when everything has ended ----------------------------------------------------------------

    def judge(self) -> None:
        """See `Feature`."""
        for body in self._stored():
            name = body["name"]
            if body["waiting"] or sum(body["counts"].values()) != len(self.ticks[name]):
                self.world.fail(f"{name}: ended with {body['waiting']}, {body['counts']}")
            again = any(id in self.world.watch.letters.reopened for id in self.born[name])
            for key in self.births:
                if key[0] == name and key not in self.recorded | self.stale and not again:
                    self.world.fail(f"{key} was started, the schedule says {body['history']}")


def _process(owner: str) -> str:
    """The process of an incarnation."""
    return owner.rpartition("-")[0]


async def scheduler(worker: Worker) -> None:
    """The timer trigger."""
    world = worker.world
    while True:
        idle = all(feature.done() for feature in world.features)
        await sleep((IDLE_S if idle else PERIOD_S) * (0.5 + world.rng.random()))
        try:
            await schedule.run_due(worker.engine)
        except StoreError:
            world.metrics["scheduler failed"] += 1
