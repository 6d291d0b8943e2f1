"""Operators who deal with dead letters: retry (as it is, or with another input), skip, fail and
discard, one by one and by filter; retry a whole execution; replay one.

Each does its deed under a name of its own, from an instance that may crash in the middle, and asks
again with the same words until it is answered. Some press the button on two instances at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.domain.errors import ConflictError, UnavailableError, WeftError
from orchestrator.engine import letters_act, letters_bulk, letters_list, replay
from orchestrator.engine.core import Engine
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import StoreError, TransportError
from tests.simulation.faults import Fault
from tests.simulation.loop import sleep
from tests.simulation.process import Worker
from tests.simulation.watch_letters import public_id

if TYPE_CHECKING:
    from tests.simulation.world import World

TENANT = "acme"
MAX_REPLAYS = 4
MAX_TRIES = 6
PATIENCE_S = 150
"""A call that takes longer than a front end would wait counts as unanswered."""
EDITED = {"do": {"kind": "ok", "ms": 5}, "of": ["edited"]}
OUTPUT = {"n": 7, "list": [1]}
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}


@dataclass
class Deed:
    """What an operator wants, under a name of its own. None: any execution or letter."""

    by: str
    action: str
    execution: str | None = None
    letter: str | None = None
    wish: Wish | None = None
    start_at: str | None = None
    key: str | None = None
    answered: bool = False  # without an error
    cut: bool = False  # a call of it ended nobody knows how
    unaudited: bool = False  # the store was down for so long that the record was given up
    made: set[str] = field(default_factory=set[str])  # executions that a replay was told of


class Redrive:
    """The operators of a run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.instances = [Worker(world, "ops1"), Worker(world, "ops2")]
        self.acting: list[asyncio.Task[None]] = []
        self.replays = 0

    def start(self) -> None:
        """The instances begin to serve."""
        for instance in self.instances:
            self.world.workers.append(instance)
            instance.start()

    async def live(self) -> None:
        """Act while faults last, then wait for every answer."""
        world = self.world
        while world.plan.enabled:
            await sleep(world.rng.random() * 2)
            fault = world.plan.at("redrive", world.chances.redrive)
            deed = None if fault is None else self._deed(fault)
            if fault is not None and deed is not None:
                world.deeds[deed.by] = deed
                rolls = world.plan.rolls(fault.place)
                world.note(f"operator: {deed.by} {deed.letter or deed.execution or 'all'}")
                twice = rolls[0] < 0.25 and (deed.action != "replay" or deed.key is not None)
                for instance in self.instances if twice else self.instances[:1]:
                    self.acting.append(world.spawn(self._ask, deed, instance))
                self.instances.reverse()
        await asyncio.gather(*self.acting)

    def _deed(self, fault: Fault) -> Deed | None:
        world, rng = self.world, random.Random(f"{fault.place} {fault.size}")
        by = f"{fault.kind}-{len(world.deeds)}"
        letters = world.watch.letters.letters
        found = [one for one in letters.values() if one["status"] == "OPEN"]
        if not found or rng.random() < 0.1:
            found = list(letters.values())
        if fault.kind in ("replay", "retryExecution"):
            ended = [id for id, status in sorted(world.watch.statuses.items()) if status in ENDED]
            if not ended:
                return None
            id = rng.choice(ended)
            if fault.kind == "retryExecution":
                return Deed(by, "retry", id, wish=Wish(action=Action.RETRY, by=by))
            if self.replays >= MAX_REPLAYS:
                return None
            self.replays += 1
            tasks = list(world.flow(id).definition["tasks"])
            start_at = rng.choice((None, *tasks))
            return Deed(by, "replay", id, start_at=start_at, key=rng.choice((None, by, by)))
        if not found:
            return None
        letter = rng.choice(found)
        kind = rng.choice(tuple(Action)) if fault.kind == "bulk" else fault.kind
        edited = kind == "edit"
        action = Action.RETRY if edited else Action(kind)
        value: Any = EDITED if edited else OUTPUT if action is Action.SKIP else None
        wish = Wish(action=action, by=by, value=value, edited=edited)
        if fault.kind == "bulk":
            execution = letter["executionId"] if rng.random() < 0.7 else None
            return Deed(by, action.value, execution, wish=wish)
        return Deed(by, action.value, letter["executionId"], public_id(letter), wish)

    async def _ask(self, deed: Deed, instance: Worker) -> None:
        """Until it is answered; a replay without a key only once."""
        for _ in range(MAX_TRIES):
            if await self._call(deed, instance):
                return
            deed.cut = True
            if deed.action == "replay" and deed.key is None:
                return
            await sleep(self.world.rng.random() * 5)

    async def _call(self, deed: Deed, instance: Worker) -> bool:
        """Whether it was answered, be it with a refusal."""
        answers: list[bool] = []

        async def ask(worker: Worker) -> None:
            try:
                await CALLS[_kind(deed)](self.world, worker.engine, deed)
            except (StoreError, TransportError, UnavailableError, OSError):
                answers.append(False)
            except WeftError as error:
                self._refused(deed, error)
                answers.append(True)
            else:
                deed.answered = True
                answers.append(True)
            if worker.engine.metrics.value("weft_audit_failures_total"):
                deed.unaudited = True

        process = instance.process
        assert process is not None
        while process.dead:  # the supervisor starts another
            await sleep(0.5)
            process = instance.process
        instance.spawn(ask, instance)
        waited = 0.0
        while not answers and not process.dead and waited < PATIENCE_S:
            await sleep(0.2)
            waited += 0.2
        return bool(answers) and answers[0]

    def _refused(self, deed: Deed, error: WeftError) -> None:
        """The same words again never meet a refusal because they were heard before."""
        for letter in self.world.watch.letters.letters.values():
            mine = letter.get("resolved", {}).get("by") == deed.by
            if mine and public_id(letter) == deed.letter and isinstance(error, ConflictError):
                self.world.fail(f"{deed.by} was done to {deed.letter}, and refused: {error}")


async def finish_held(world: World) -> None:
    """Faults are over: nobody decides any more about executions that hold but this operator."""
    while not world.problems:
        for letter in list(world.watch.letters.letters.values()):
            id = letter["executionId"]
            status = world.watch.statuses.get(id)
            holds = world.flow(id).definition["onFailure"] == "hold"
            if letter["status"] != "OPEN" or not holds or status in ENDED:
                continue
            by = f"end-{len(world.deeds)}"
            wish = Wish(action=Action.FAIL, by=by)
            world.deeds[by] = Deed(by, "fail", id, public_id(letter), wish)
            try:
                await letters_act.act(world.client.engine, TENANT, public_id(letter), wish)
            except (WeftError, StoreError, TransportError):
                continue
        await sleep(5)


def _kind(deed: Deed) -> str:
    if deed.action == "replay":
        return "replay"
    if deed.letter is not None:
        return "one"
    return "execution" if deed.by.startswith("retryExecution") else "bulk"


async def _one(world: World, engine: Engine, deed: Deed) -> None:
    assert deed.letter is not None
    assert deed.wish is not None
    await letters_act.act(engine, TENANT, deed.letter, deed.wish)
    stored = world.watch.letters.letters[letters_list.stored_id(deed.letter)]
    if stored.get("wish") != deed.wish.digest:
        world.fail(f"{deed.by} was answered, but {deed.letter} is {stored}")


async def _bulk(world: World, engine: Engine, deed: Deed) -> None:
    assert deed.wish is not None
    await letters_bulk.bulk(engine, TENANT, LetterFilter(execution=deed.execution), deed.wish)


async def _execution(world: World, engine: Engine, deed: Deed) -> None:
    assert deed.execution is not None
    await letters_bulk.retry_execution(engine, TENANT, deed.execution, by=deed.by)


async def _replay(world: World, engine: Engine, deed: Deed) -> None:
    assert deed.execution is not None
    answer = await replay.replay(
        engine, TENANT, deed.execution, start_at=deed.start_at, key=deed.key, by=deed.by
    )
    deed.made.add(answer.id)


CALLS: dict[str, Callable[[World, Engine, Deed], Awaitable[None]]] = {
    "one": _one,
    "bulk": _bulk,
    "execution": _execution,
    "replay": _replay,
}
