"""Who sent a request: the three ways to tell, in one place and in this order.

1. The platform's principal header (Easy Auth), only where a setting says that the platform sits in
   front and strips it from what comes from outside. Anywhere else anybody could write it.
2. A bearer token.
3. The development identity: nobody is asked, so it is for one machine. A page in a browser could
   reach a port of that machine too, so names and origins from elsewhere are refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from orchestrator.adapters.auth.jwks import LOOPBACK, RemoteKeys
from orchestrator.adapters.auth.tokens import TokenVerifier, refused
from orchestrator.domain.authz import ALL_SCOPES, Grant, Principal
from orchestrator.domain.identity import ClaimRules, principal_of

EASY_HEADER: Final = "x-ms-client-principal"
MAX_EASY_CHARS: Final = 64 * 1024
DEVELOPMENT: Final = Principal(
    subject="developer",
    name="developer",
    tenants=("default",),
    grants=(Grant(tenant="default", scopes=ALL_SCOPES),),
)
"""Whoever asks without a token where no issuer is configured."""
WARNING: Final = (
    "development identity: whoever reaches this port may do everything. It listens on loopback "
    "only; set WEFT_AUTH_ISSUERS to change both"
)
_LONG: Final = {
    "oid": "http://schemas.microsoft.com/identity/claims/objectidentifier",
    "tid": "http://schemas.microsoft.com/identity/claims/tenantid",
    "sub": "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/nameidentifier",
    "scp": "http://schemas.microsoft.com/identity/claims/scope",
}
"""Names that Easy Auth gives to some claims of a token."""


class Front:
    """The authenticator of a process, see `ports_auth.Authenticator`."""

    def __init__(
        self,
        tokens: TokenVerifier | None,
        *,
        easy: ClaimRules | None = None,
        development: bool = False,
        remote: tuple[RemoteKeys, ...] = (),
    ) -> None:
        """`easy`: how to read the platform's header; None: it is ignored. `remote`: the key sets
        that are fetched ahead and closed with this."""
        self._tokens = tokens
        self._easy = easy
        self._development = development
        self._remote = remote

    @property
    def warning(self) -> str:
        """See `Authenticator`."""
        return WARNING if self._development else ""

    async def identify(self, headers: Mapping[str, str]) -> Principal:
        """See `Authenticator`."""
        if self._easy is not None and (given := headers.get(EASY_HEADER)):
            return principal_of(_easy_claims(given), self._easy)
        authorization = headers.get("authorization", "").strip()
        if authorization:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer" or self._tokens is None:
                raise refused("TOKEN_INVALID", "send `Authorization: Bearer TOKEN`")
            return await self._tokens.verify(token.strip())
        if self._development:
            _check_local(headers)
            return DEVELOPMENT
        raise refused("TOKEN_MISSING", "send a token, as `Authorization: Bearer TOKEN`")

    async def warm_up(self) -> None:
        """Fetch keys ahead of the first token. Never raises."""
        for keys in self._remote:
            await keys.warm_up()

    async def close(self) -> None:
        """Release everything. Idempotent."""
        for keys in self._remote:
            await keys.close()


def _check_local(headers: Mapping[str, str]) -> None:
    """A name that was made to resolve to this machine, or a page from elsewhere, is not its user.
    Raises `UnauthenticatedError`."""
    host = headers.get("host", "")
    origin = headers.get("origin", "")
    if (host and not _is_local(f"//{host}")) or (origin and not _is_local(origin)):
        raise refused(
            "TOKEN_MISSING",
            "without a token only this machine's own programs are served, at 127.0.0.1 or "
            "localhost; send a token (`weft token`)",
        )


def _is_local(url: str) -> bool:
    try:
        return (urlsplit(url).hostname or "") in LOOPBACK
    except ValueError:
        return False


def _easy_claims(header: str) -> dict[str, Any]:
    """The claims of a principal header: texts, and lists of those that come more than once."""
    entries: Any = None
    if len(header) <= MAX_EASY_CHARS:
        try:
            document = orjson.loads(base64.b64decode(header, validate=True))
            entries = document.get("claims") if isinstance(document, dict) else None
        except (ValueError, binascii.Error):
            entries = None
    if not isinstance(entries, list):
        raise refused("TOKEN_INVALID", "the platform's principal header cannot be read")
    values: dict[str, list[str]] = {}
    for entry in entries:
        kind, value = (entry.get("typ"), entry.get("val")) if isinstance(entry, dict) else (0, 0)
        if isinstance(kind, str) and isinstance(value, str):
            values.setdefault(kind, []).append(value)
    claims: dict[str, Any] = {
        name: found[0] if len(found) == 1 else found for name, found in values.items()
    }
    for short, long in _LONG.items():
        if long in claims:
            claims.setdefault(short, claims[long])
    return claims
