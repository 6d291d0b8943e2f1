"""What a tag may be. One rule, because a tag that can be stored but not asked for is lost.

Names become properties of stored documents and parts of query texts, hence the small alphabet.
"""

from __future__ import annotations

import re
from typing import Final

MAX_TAGS: Final = 20
MAX_VALUE_CHARS: Final = 256
NAME_RULE: Final = "1 to 64 letters, digits, `_`, `.` or `-`"

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def is_name(text: str) -> bool:
    """Whether `text` can name a tag, see `NAME_RULE`."""
    return _NAME.fullmatch(text) is not None
