"""Files of recorded histories against the code workflows of this machine, without a server."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.durable_functions import Orchestrator

from activities.code.driver import functions
from activities.code.registry import CodeRegistry
from orchestrator.domain.nearest import Nearest
from orchestrator.domain.orchestration import workflow_of
from orchestrator.functions.durable_replay import DurableReplay
from orchestrator.local.durable import events as ev
from orchestrator.local.durable.recordings import Recording, Unusable, read
from orchestrator.local.durable.replay_check import Divergence, check
from orchestrator.ports_durable import OrchestratorFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What became of one file: `divergence`, `problem` (it cannot be replayed), or neither."""

    file: Path
    instance: str = ""
    version: int = 0  # that it was held against
    steps: int = 0
    divergence: Divergence | None = None
    problem: str = ""

    @property
    def result(self) -> str:
        """In one word."""
        if self.problem:
            return "unusable"
        return "same" if self.divergence is None else "diverged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All files. `skipped`: of other workflows, in folders."""

    checked: tuple[Checked, ...]
    skipped: int

    def count(self, result: str) -> int:
        """Files with that result."""
        return sum(one.result == result for one in self.checked)


def check_files(
    registry: CodeRegistry, name: str, paths: Iterable[Path], version: int | None = None
) -> Report:
    """Replay every file, and every `.json` below a folder, that is of the workflow `name`.
    `version`: the one to be held against; None: that which was recorded. Raises `KeyError`: there
    is no such workflow, or no such version of it."""
    if not registry.versions(name):
        names = sorted(registry.names())
        hint = Nearest().hint(name, names) or f"there are: {', '.join(names) or 'none'}"
        raise KeyError(f"there is no code workflow {name} here; {hint}")
    if version is not None:
        registry.get(name, version)
    checked: list[Checked] = []
    skipped = 0
    for path in paths:
        inside = path.is_dir()
        for file in sorted(path.rglob("*.json")) if inside else [path]:
            found = _checked(registry, name, file, version)
            if found is not None:
                checked.append(found)
            elif inside:
                skipped += 1
            else:
                checked.append(Checked(file=file, problem=f"it is not a history of {name}"))
    return Report(checked=tuple(checked), skipped=skipped)


def _checked(registry: CodeRegistry, name: str, file: Path, version: int | None) -> Checked | None:
    """None: it is of another workflow."""
    try:
        recording = read(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return Checked(file=file, problem=getattr(error, "strerror", None) or str(error))
    except Unusable as error:
        return Checked(file=file, problem=str(error))
    found = workflow_of(recording.identity.name)
    if found is None or found[0] != name:
        return None
    against = found[1] if version is None else version
    return Checked(
        file=file,
        instance=recording.identity.instance,
        version=against,
        steps=len(recording.steps),
        divergence=_divergence(registry, name, against, recording),
    )


def _divergence(
    registry: CodeRegistry, name: str, version: int, recording: Recording
) -> Divergence | None:
    try:
        function = registry.function(name, version)
    except KeyError as error:
        return Divergence(
            step=None,
            at=ev.timestamp(recording.turns[0].now),
            recorded=f"version {version}",
            current=str(error.args[0]),
            hint="leave a version where it is until nothing runs on it",
        )
    drives = {one.name: one for one in functions(registry)}
    return check(recording, plain(drives[function]))


def plain(one: OrchestratorFunction) -> Any:
    """The orchestrator function as the library has it: context in, answer out, JSON text."""

    def orchestrator(context: Any) -> Generator[Any, Any, Any]:
        return one.drive(DurableReplay(context))

    return Orchestrator.create(orchestrator)
