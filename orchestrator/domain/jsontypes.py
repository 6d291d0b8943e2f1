"""The one JSON type. Values of this type hold no NaN, no infinity and no int beyond 64 bits."""

from __future__ import annotations

from typing import TypeAlias, Union

# A string annotation, because a recursive alias needs `type` (3.12) and we support 3.11.
Json: TypeAlias = Union[bool, int, float, str, "list[Json]", "dict[str, Json]", None]
