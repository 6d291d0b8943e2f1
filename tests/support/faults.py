"""Stores that misbehave on command, wrapped around a real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.engine.core import Engine
from orchestrator.ports import DocumentStore, StoreError

Rule = Callable[[str, tuple[Any, ...]], StoreError | None]


class FaultyStore:
    """Forwards to a store. `before(name, args)` may give an error to raise instead of the call;
    `after(name, args)` one to raise although the call was applied (its answer is lost)."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        self.before: Rule = lambda name, args: None
        self.after: Rule = lambda name, args: None
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if error := self.before(name, args):
                raise error
            result = await real(*args, **kwargs)
            if error := self.after(name, args):
                raise error
            return result

        return call


def faulty(engine: Engine) -> FaultyStore:
    """Its store, in a world that was made with `wrap_store=FaultyStore`."""
    store: Any = engine.store
    assert isinstance(store, FaultyStore)
    return store


def times(count: int, make: Callable[[], StoreError], *names: str) -> Rule:
    """Fail the first `count` calls of these operations."""
    left = [count]

    def rule(name: str, args: tuple[Any, ...]) -> StoreError | None:
        if name in names and left[0] > 0:
            left[0] -= 1
            return make()
        return None

    return rule


def touching(kind: str, operations: Sequence[Any]) -> bool:
    """Whether a batch creates or replaces a document of this type."""
    return any(getattr(op, "body", {}).get("type") == kind for op in operations)
