"""Checks of `durable` tasks: is the orchestration known, and who gets which signal?

A signal has one taker. So a name is either waited for by `signal` tasks, or handed to one `durable`
task. It cannot be handed to one inside a map: nobody could say which item is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.nearest import NOT_LOADED, Nearest


class DurableCheck:
    """Checks the tasks of one definition, as written. `orchestrations`: the versions of each code
    workflow; None: any is fine."""

    def __init__(
        self, orchestrations: Mapping[str, Sequence[int]] | None, nearest: Nearest
    ) -> None:
        self._known = orchestrations
        self._nearest = nearest
        self._handed: dict[str, str] = {}  # signal -> where it is handed on
        self._awaited: dict[str, str] = {}  # signal -> where it is waited for

    def check(
        self, task: Mapping[str, Json], path: str, *, item: bool = False
    ) -> Iterator[ErrorDetail]:
        """Findings of a task; nothing of other types. `item`: it is the `do` of a map."""
        if task.get("type") != "durable":
            return
        yield from self._orchestration(task, path)
        signals = task.get("signals")
        if not isinstance(signals, list) or not signals:
            return
        if item:
            message = "an item of a map takes no signals: nobody could say which item is meant"
            hint = "leave them out, or use a task outside of the map"
            yield ErrorDetail(f"{path}.signals", message, "SIGNALS_IN_MAP", hint)
            return
        for index, name in enumerate(signals):
            if isinstance(name, str):
                where = f"{path}.signals[{index}]"
                yield from self._one_taker(name, where)
                self._handed.setdefault(name, where)

    def awaited(self, name: str, path: str) -> Iterator[ErrorDetail]:
        """Findings of a `signal` task that waits for `name`."""
        if (other := self._handed.get(name)) is not None:
            yield _shared(name, f"{path}.signal", other)
        self._awaited.setdefault(name, path)

    def _one_taker(self, name: str, where: str) -> Iterator[ErrorDetail]:
        other = self._handed.get(name) or self._awaited.get(name)
        if other is not None:
            yield _shared(name, where, other)

    def _orchestration(self, task: Mapping[str, Json], path: str) -> Iterator[ErrorDetail]:
        name, version = task.get("orchestration"), task.get("version")
        if self._known is None or not isinstance(name, str):
            return
        versions = self._known.get(name)
        if versions is None:
            message = f'no code workflow "{name[:80]}" is registered'
            hint = self._nearest.hint(name, self._known) or NOT_LOADED.format("code workflows")
            yield ErrorDetail(f"{path}.orchestration", message, "UNKNOWN_ORCHESTRATION", hint)
        elif type(version) is int and version not in versions:
            message = f'the code workflow "{name}" has no version {version}'
            hint = f"registered are {', '.join(map(str, versions))}"
            yield ErrorDetail(f"{path}.version", message, "UNKNOWN_ORCHESTRATION", hint)


def _shared(name: str, where: str, other: str) -> ErrorDetail:
    message = f'the signal "{name[:80]}" goes to {other} already: a signal has one taker'
    return ErrorDetail(where, message, "SIGNAL_SHARED", "use signals of two names")
