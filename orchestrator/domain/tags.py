"""What a tag may be. One rule, because a tag that can be stored but not asked for is lost.

Names become properties of stored documents and parts of query texts, hence the small alphabet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.jsonvalues import child_path

MAX_TAGS: Final = 20
MAX_VALUE_CHARS: Final = 256
NAME_RULE: Final = "1 to 64 letters, digits, `_`, `.` or `-`"

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def is_name(text: str) -> bool:
    """Whether `text` can name a tag, see `NAME_RULE`."""
    return _NAME.fullmatch(text) is not None


def problems(labels: Mapping[str, str], path: str = "$.tags") -> list[ErrorDetail]:
    """Every fault of a set of tags that stands at `path`."""
    found = [
        ErrorDetail(child_path(path, name), f"at most {MAX_VALUE_CHARS} characters", "TAG_TOO_LONG")
        for name, value in labels.items()
        if len(value) > MAX_VALUE_CHARS
    ]
    found += [
        ErrorDetail(child_path(path, name), NAME_RULE, "TAG_NAME")
        for name in labels
        if not is_name(name)
    ]
    if len(labels) > MAX_TAGS:
        found.append(ErrorDetail(path, f"at most {MAX_TAGS} tags", "TOO_MANY_TAGS"))
    return found
