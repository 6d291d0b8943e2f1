"""`/docs`: the API for reading and trying, as one self-contained page.

No font, script or style comes from elsewhere: a platform without a way out to the internet has its
documentation too, and the page cannot be changed by a third party. The list of endpoints is written
here, so that it can be read without JavaScript; the rest is built in the browser from
`/openapi.json`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from orchestrator.functions.http_routes import Route

_TEMPLATE: Final = Path(__file__).with_name("docs_page.html")
_MARK: Final = "<!-- operations -->"


def render(routes: Sequence[Route]) -> tuple[bytes, str]:
    """The page, and its Content-Security-Policy: only its own script runs, and it may only talk to
    the server that it came from."""
    template = _TEMPLATE.read_text(encoding="utf-8")
    script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)
    digest = hashlib.sha256(script[1].encode() if script else b"").digest()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; "
        f"form-action 'none'; script-src 'sha256-{base64.b64encode(digest).decode()}'"
    )
    return template.replace(_MARK, _list(routes)).encode(), policy


def _list(routes: Sequence[Route]) -> str:
    parts: list[str] = []
    for tag in dict.fromkeys(route.tag for route in routes):
        rows = "\n".join(_row(route) for route in routes if route.tag == tag)
        parts.append(f"<section><h2>{escape(tag)}</h2>\n{rows}\n</section>")
    return "\n".join(parts)


def _row(route: Route) -> str:
    return (
        f'<details class="op" id="{route.name}"><summary>'
        f'<b class="{route.method.lower()}">{route.method}</b> '
        f"<code>/{escape(route.path)}</code> <span>{escape(route.summary)}</span></summary>"
        f"<p>{escape(route.description)}</p></details>"
    )
