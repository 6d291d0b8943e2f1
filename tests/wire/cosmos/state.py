"""What the account holds: databases and containers, and each container's documents.

Apart from the server, so that a test can stop the server and start another on the same data.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.wire.cosmos.documents import Documents
from tests.wire.cosmos.ranges import RangeMap
from tests.wire.cosmos.wire import Refused, system_time

_numbers = itertools.count(1)


class Container:
    """A container as it was created: key, indexes, time to live."""

    def __init__(self, database: str, definition: dict[str, Any], clock: Callable[[], int]) -> None:
        self.definition = definition
        self.name = str(definition["id"])
        self.rid = f"cont{next(_numbers):04}=="
        key = definition["partitionKey"]
        self.paths = [path.removeprefix("/") for path in key["paths"]]
        self.ranges = RangeMap(key["paths"], key.get("kind", "Hash"))
        self.link = f"dbs/{database}/colls/{self.name}/"
        policy = definition.get("indexingPolicy") or {}
        self._included = {one["path"] for one in policy.get("includedPaths", [{"path": "/*"}])}
        self._composites = {
            tuple((part["path"][1:].strip('"'), part.get("order", "ascending")) for part in one)
            for one in policy.get("compositeIndexes", [])
        }
        self.documents = Documents(
            paths=self.paths,
            rid=self.rid,
            default_ttl=definition.get("defaultTtl"),
            clock=clock,
            effective_key=self.ranges.effective_key,
            terms=self.terms,
        )

    def terms(self, body: dict[str, Any]) -> int:
        """How many properties of a document are indexed; nested values count one each."""
        if "/*" in self._included:
            return sum(_leaves(value) for value in body.values())
        return sum(1 for name in body if f"/{name}/?" in self._included)

    def check_order(self, order: list[tuple[str, bool]]) -> None:
        """Several order properties need a composite index, as documented under "Indexing
        policies", in these directions or in all the opposite ones."""
        if len(order) < 2:
            return
        for flip in (False, True):
            wanted = tuple(
                (name, "descending" if down != flip else "ascending") for name, down in order
            )
            if wanted in self._composites:
                return
        raise Refused(
            400,
            "The order by query does not have a corresponding composite index that it can be "
            f"served from: {order}",
        )

    def to_json(self) -> dict[str, Any]:
        """The container resource."""
        return {**self.definition, "_rid": self.rid, "_self": self.link, "_etag": '"1"', "_ts": 1}


def _leaves(value: Any) -> int:
    if isinstance(value, dict):
        return sum(_leaves(one) for one in value.values())
    if isinstance(value, list):
        return sum(_leaves(one) for one in value)
    return 1


@dataclass(slots=True)
class Account:
    """Databases by name, containers by name."""

    clock: Callable[[], int] = system_time
    databases: dict[str, dict[str, Container]] = field(
        default_factory=dict[str, dict[str, Container]]
    )

    def create(self, database: str, *definitions: dict[str, Any]) -> None:
        """A database with containers, without the protocol."""
        containers = self.databases.setdefault(database, {})
        for definition in definitions:
            container = Container(database, definition, self.clock)
            containers[container.name] = container

    def container(self, database: str, name: str) -> Container:
        """Raises 404/1003, as for any request below a resource that does not exist."""
        try:
            return self.databases[database][name]
        except KeyError:
            raise Refused(404, "Owner resource does not exist", sub_status=1003) from None
