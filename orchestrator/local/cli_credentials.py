"""What the command line says about itself to a server: the token, and which tenant is meant.

Kept apart from the client, which must not keep a token in anything that is shown.
"""

from __future__ import annotations

import ipaddress
import os
from contextvars import ContextVar
from typing import Final
from urllib.parse import quote

import httpx

from orchestrator.local.cli_faults import usage

TOKEN: Final = "Authorization"
TENANT: Final = "X-Weft-Tenant"
_given: Final[ContextVar[dict[str, str] | None]] = ContextVar("given", default=None)


def forget() -> None:
    """Nothing is known, as at the start of a command."""
    _given.set(None)


def keep(name: str, value: str | None) -> None:
    """Send `value` as the token (`TOKEN`) or the tenant (`TENANT`) from now on. Raises `Fault`; the
    value is not shown."""
    if value is None:
        return
    text = value.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise usage("--token and --tenant must be one word of ASCII characters, and not empty.")
    header = f"Bearer {text}" if name == TOKEN else text
    _given.set({**(_given.get() or {}), name: header})


def headers(base: httpx.URL) -> dict[str, str]:
    """Headers of every request to `base`. Raises `Fault` for a token that others could read on the
    way."""
    known = _given.get() or {}
    if TOKEN in known and base.scheme != "https" and not is_loopback(base.host):
        raise usage("A token is sent over https only, or to this machine; check --url.")
    reason = quote(os.environ.get("WEFT_REASON", "").strip(), safe=" ,;:/")
    return known | ({"X-Weft-Reason": reason} if reason else {})


def is_loopback(host: str) -> bool:
    """Whether the host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
