"""Bulk operations on a real engine and the real library of Durable Functions.

`python -m tests.support.bulks FOLDER` records one; the recording that is kept must stay as it is.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from activities.code import bulk as workflow
from activities.code.driver import functions
from activities.code.registry import CodeRegistry
from orchestrator.domain.built_in import BULK
from orchestrator.domain.orchestration import Envelope
from orchestrator.domain.orchestration_result import decode_output
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import bulk, inspect, project
from orchestrator.engine.bulk import Target
from orchestrator.engine.core import Engine
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports import ActivityCall, Query, Where
from tests.support.code_samples import recording_of
from tests.support.definitions import flow, retry, task
from tests.support.durable_hub import Run, start
from tests.support.world import TENANT, CountingIds, FakeActivities, World


def registry() -> CodeRegistry:
    """Weft's own code workflows only."""
    made = CodeRegistry()
    workflow.register(made)
    return made


class Patient:
    """An activity that fails for every execution until `mended`; who was mended by how many."""

    def __init__(self) -> None:
        self.mended = False
        self.ran: list[str] = []

    def __call__(self, call: ActivityCall) -> Any:
        if not self.mended:
            raise ValueError("broken")
        self.ran.append(call.execution)
        return 1


class Bulks:
    """A world with `letters` dead letters, one per execution, of a workflow `flow`."""

    def __init__(self, folder: Path, *, ids: str = "id") -> None:
        folder.mkdir(exist_ok=True)
        self.work = Patient()
        self.world = World(folder, FakeActivities(work=self.work))
        self.world.engine.ids = CountingIds(ids)
        self.world.engine.code = registry()
        self._app: Any = None

    async def fill(self, letters: int) -> list[str]:
        """Ids of the executions, oldest first."""
        world = self.world
        await world.open()
        await world.publish(flow(a=task("work", retry=retry(1))))
        made: list[str] = []
        for _ in range(letters):
            await world.clock.advance(1)  # so that their order is known
            made.append((await world.start("flow")).id)
            await world.run_until_quiet()
        return made

    @staticmethod
    async def copy(source: Path, folder: Path) -> Bulks:
        """The same world again, from the files of one that is closed."""
        shutil.copytree(source, folder)
        made = Bulks(folder, ids="again")
        await made.world.open()
        made.work.mended = True
        return made

    async def submit(self, target: Target = Target.LETTERS, **request: Any) -> str:
        """The id of its execution."""
        found = await bulk.start(self.world.engine, TENANT, target, request, by="eve")
        return found.id

    async def drive(self, id: str, **how: Any) -> Run:
        """Run its instance to its end; `how`: of `Run`."""
        run = Run(self.app, self.world.folder / "durable.db", **how)
        await run.go([start(f"code_{BULK}_v1", json.dumps(await self.envelope(id)), instance=id)])
        return run

    async def envelope(self, id: str) -> str:
        """What Weft starts the instance with."""
        view = await inspect.execution(self.world.engine, TENANT, id)
        return Envelope(
            tenant=TENANT,
            execution=id,
            task="main",
            workflow=BULK,
            version=1,
            input=json.dumps(view.input),
        ).encode()

    @property
    def app(self) -> Any:
        """All functions of it."""
        if self._app is None:

            async def build() -> Engine:
                return self.world.engine

            self._app = compose(EngineProvider(build), functions(registry()))
        return self._app

    async def project(self) -> None:
        """Bring the lists up to date."""
        query = Query(where=(Where("type", "=", "execution"),), limit=1_000)
        found = await self.world.engine.store.query(EXECUTIONS, query)
        await project.project_documents(self.world.engine, [doc.body for doc in found])


def output(run: Run, id: str) -> Any:
    """What it gave."""
    text = run.status(id).output
    assert text is not None, run.status(id)
    value: Any = json.loads(text)
    return json.loads(decode_output(value)[0] or "null")


async def _record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        made = Bulks(Path(temporary))
        await made.fill(3)
        made.work.mended = True
        id = await made.submit(action="retry", filter={}, reason="mended")
        run = await made.drive(id)
        (folder / "bulk.json").write_text(recording_of(run, id), encoding="utf-8")
        run.close()
        await made.world.close()


if __name__ == "__main__":
    asyncio.run(_record(Path(sys.argv[1])))
