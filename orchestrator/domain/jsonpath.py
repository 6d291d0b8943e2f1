"""JSON paths as shown to users, such as `$.tasks.pack.needs[0]`. One spelling for every finding."""

from __future__ import annotations

import json
import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
_MAX_KEY: Final = 80  # a longer key is cut: a path must stay readable


def child(path: str, key: str | int) -> str:
    """`path` one step further: `.key`, `["odd key"]` or `[0]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if _PLAIN.fullmatch(key) and len(key) <= _MAX_KEY:
        return f"{path}.{key}"
    shown = key if len(key) <= _MAX_KEY else key[:_MAX_KEY] + "…"
    return f"{path}[{json.dumps(shown, ensure_ascii=False)}]"
