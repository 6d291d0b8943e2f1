"""Keys of an issuer: fetched off the hot path, kept when the issuer is away.

A token's `kid` is anybody's to choose, so an unknown one may cause at most one fetch in
`RETRY_MS`. Without the last good keys, an issuer's outage of minutes would be ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

import httpx
import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from orchestrator.domain.errors import UnavailableError
from orchestrator.domain.identity import Issuer
from orchestrator.ports import Clock

log = logging.getLogger(__name__)

ALGORITHMS: Final = ("RS256", "ES256")
MIN_RSA_BITS: Final = 2048
TTL_MS: Final = 60 * 60 * 1000
"""Keys older than this are fetched again, beside the requests that go on with the old ones."""
RETRY_MS: Final = 10_000
"""The least time between two fetches, whatever asks for them."""
FETCH_SECONDS: Final = 10.0
MAX_BYTES: Final = 512 * 1024
MAX_KEYS: Final = 200
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

Fetch: TypeAlias = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the one algorithm that it may be used with."""

    kid: str | None
    algorithm: str
    public: RSAPublicKey | EllipticCurvePublicKey
    issuer: str | None = None
    """Whose tokens it signs, where one set serves several (Entra ID)."""


class Keys(Protocol):
    """Where the keys of an issuer come from."""

    async def find(self, kid: str | None) -> Sequence[Key]:
        """The keys of that name; without a name, the only key that there is. Raises
        `UnavailableError` if there are no keys to look at."""
        ...


def matching(keys: Sequence[Key], kid: str | None) -> list[Key]:
    """Those of that name; a token without one must not have us try all of them."""
    if kid is None:
        return list(keys) if len(keys) == 1 else []
    return [key for key in keys if key.kid == kid]


def parse_keys(data: bytes) -> tuple[Key, ...]:
    """The usable keys of a JWKS: RSA of 2048 bits or more, or EC on P-256, for signatures. Others
    are passed over. Raises `ValueError` if it is no JWKS or has none."""
    document = orjson.loads(data)
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("not a key set")
    found = [key for entry in entries[:MAX_KEYS] if (key := _key(entry)) is not None]
    if not found:
        raise ValueError("a key set without a key that can be used")
    return tuple(found)


def _key(entry: Any) -> Key | None:
    if not isinstance(entry, dict) or entry.get("use") not in (None, "sig"):
        return None
    algorithm = {"RSA": "RS256", "EC": "ES256"}.get(str(entry.get("kty")))
    if algorithm is None or entry.get("alg") not in (None, algorithm):
        return None
    try:
        public = jwt.PyJWK(entry, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    kid, issuer = entry.get("kid"), entry.get("issuer")
    if not fits(public, algorithm) or not isinstance(kid, str | None):
        return None
    return Key(kid, algorithm, public, issuer if isinstance(issuer, str) else None)


def fits(public: Any, algorithm: str) -> bool:
    """Whether the key is of the algorithm's type, and strong enough."""
    if algorithm == "RS256":
        return isinstance(public, RSAPublicKey) and public.key_size >= MIN_RSA_BITS
    return (
        algorithm == "ES256"
        and isinstance(public, EllipticCurvePublicKey)
        and public.curve.name == "secp256r1"
    )


class RemoteKeys:
    """The key set of one issuer, over HTTP."""

    def __init__(self, issuer: Issuer, *, clock: Clock, fetch: Fetch | None = None) -> None:
        self._issuer = issuer
        self._clock = clock
        self._fetch = fetch or fetch_document
        self._keys: tuple[Key, ...] = ()
        self._fetched_at: int | None = None
        self._tried_at: int | None = None
        self._running: asyncio.Task[None] | None = None

    async def find(self, kid: str | None) -> Sequence[Key]:
        """See `Keys`."""
        if not self._keys:
            await self._refresh()
            if not self._keys:
                raise UnavailableError(
                    "the keys of the token's issuer cannot be had now; send the request again",
                    code="ISSUER_UNAVAILABLE",
                )
        elif self._older(self._fetched_at, TTL_MS):
            self._begin()
        found = matching(self._keys, kid)
        if not found:
            await self._refresh()
            found = matching(self._keys, kid)
        return found

    async def warm_up(self) -> None:
        """Fetch the keys before the first token comes. Never raises."""
        await self._refresh()

    async def close(self) -> None:
        """Give up a fetch that runs."""
        running = self._running
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _refresh(self) -> None:
        """One fetch, shared by all who wait for it; none so soon after the last one."""
        running = self._begin()
        if running is not None:
            # Shielded: a caller who gives up must not take the others' keys with it.
            await asyncio.shield(running)

    def _begin(self) -> asyncio.Task[None] | None:
        if self._running is None and self._older(self._tried_at, RETRY_MS):
            self._tried_at = self._clock.now()
            self._running = asyncio.create_task(self._load(), name="fetch-keys")
        return self._running

    def _older(self, moment: int | None, span: int) -> bool:
        # Not a plain difference: a wall clock that was set back must not stop us for hours.
        return moment is None or not 0 <= self._clock.now() - moment < span

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                url = self._issuer.jwks or await self._discover()
                keys = parse_keys(await self._fetch(url))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, TimeoutError) as error:
            log.warning(
                "keys of an issuer not fetched",
                extra={
                    "action": "auth.keys_failed",
                    "issuer": self._issuer.issuer,
                    "error": type(error).__name__,
                    "kept": len(self._keys),
                },
            )
        else:
            self._keys, self._fetched_at = keys, self._clock.now()
        finally:
            self._running = None

    async def _discover(self) -> str:
        """The address of the keys, as the issuer itself names it. Raises `ValueError`."""
        # The metadata of Entra ID that serves every directory.
        base = self._issuer.issuer.replace("{tenantid}", "organizations").rstrip("/")
        document = orjson.loads(await self._fetch(f"{base}/.well-known/openid-configuration"))
        if not isinstance(document, dict) or document.get("issuer") != self._issuer.issuer:
            raise ValueError("the discovery document is of another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not is_safe(url):
            raise ValueError("the discovery document names no https address of keys")
        return url


def is_safe(url: str) -> bool:
    """https; plain http on this machine only, where tests are."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    secure = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    return secure and bool(host) and not parts.username and not parts.password


async def fetch_document(url: str) -> bytes:
    """The body at `url`. Raises `httpx.HTTPError`, and `ValueError` for one over `MAX_BYTES`."""
    headers: Mapping[str, str] = {"accept": "application/json"}
    local = (urlsplit(url).hostname or "") in LOOPBACK
    async with (
        httpx.AsyncClient(timeout=FETCH_SECONDS, trust_env=not local) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        if response.status_code != httpx.codes.OK:
            raise httpx.HTTPStatusError("no 200", request=response.request, response=response)
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise ValueError("the document is too large")
        return body
