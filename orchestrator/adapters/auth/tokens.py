"""Bearer tokens: signature first, then what they claim.

The order matters: nothing that a token says is told back, logged or acted upon before its
signature was found good, but for three names that choose the key (`alg`, `kid`, `iss`), each held
against a list of ours. PyJWT checks the signature; the claims are checked here, with the platform's
clock.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
import orjson
from jwt.utils import base64url_decode

from orchestrator.adapters.auth.jwks import ALGORITHMS, Key, Keys, fits
from orchestrator.domain.authz import Principal
from orchestrator.domain.errors import UnauthenticatedError
from orchestrator.domain.identity import Issuer, principal_of
from orchestrator.ports import Clock

MAX_TOKEN_CHARS: Final = 16 * 1024
LEEWAY_S: Final = 60
CACHED: Final = 5_000
CACHED_MS: Final = 5 * 60_000
"""A verified token is believed for this long at most: then its key may have been withdrawn."""
TENANT: Final = "{tenantid}"
MAX_SECONDS: Final = 10**11  # year 5138: beyond it, it is no time in seconds

_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Trusted:
    """An issuer with its keys."""

    issuer: Issuer
    keys: Keys


class TokenVerifier:
    """Tokens of some issuers -> principals."""

    def __init__(self, trusted: Sequence[Trusted], *, clock: Clock) -> None:
        self._trusted = tuple(trusted)
        self._clock = clock
        self._jws = jwt.PyJWS(algorithms=list(ALGORITHMS))
        # Digest of the token -> who it is, until when (ms). Never the token itself.
        self._known: OrderedDict[bytes, tuple[Principal, int, int]] = OrderedDict()

    async def verify(self, token: str) -> Principal:
        """Who the token is about. Raises `UnauthenticatedError` with a code that says what is
        wrong, `UnavailableError` while the issuer's keys cannot be had."""
        if len(token) > MAX_TOKEN_CHARS:
            raise refused("TOKEN_TOO_LARGE", f"a token has at most {MAX_TOKEN_CHARS} characters")
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        now = self._clock.now()
        known = self._known.get(digest)
        if known is not None:
            principal, begin, end = known
            if begin <= now < end:
                self._known.move_to_end(digest)
                return principal
            del self._known[digest]
        principal, expires = await self._verify(token)
        self._known[digest] = (principal, now, min(expires, now + CACHED_MS))
        if len(self._known) > CACHED:
            self._known.popitem(last=False)
        return principal

    async def _verify(self, token: str) -> tuple[Principal, int]:
        header, claims = _unverified(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise refused("TOKEN_INVALID", f"tokens are signed with {' or '.join(ALGORITHMS)} here")
        # An extension that must be understood, and none is; `b64` would change what was signed.
        if "crit" in header or "b64" in header or not isinstance(kid, str | None):
            raise refused("TOKEN_INVALID", "the token's header is not one that is read here")
        trusted, issuer = self._issuer(claims)
        keys = [
            key
            for key in await trusted.keys.find(kid)
            if key.algorithm == algorithm
            and fits(key.public, algorithm)
            and (key.issuer is None or _filled(key.issuer, claims) == issuer)
        ]
        if not any(self._signed(token, key) for key in keys):
            raise refused("TOKEN_INVALID", "the token was not signed with a key of its issuer")
        expires = self._check(claims, trusted.issuer)
        return principal_of(claims, trusted.issuer.rules), expires

    def _issuer(self, claims: Mapping[str, Any]) -> tuple[Trusted, str]:
        named = claims.get("iss")
        for trusted in self._trusted:
            expected = trusted.issuer.issuer
            if TENANT in expected:
                directory = claims.get("tid")
                known = trusted.issuer.rules.tenant_map
                if not isinstance(directory, str) or directory not in known:
                    continue
                expected = _filled(expected, claims)
            if named == expected:
                return trusted, expected
        raise refused(
            "TOKEN_WRONG_ISSUER", "the token's issuer is none whose tokens are accepted here"
        )

    def _signed(self, token: str, key: Key) -> bool:
        try:
            self._jws.decode_complete(token, key.public, algorithms=[key.algorithm])
        except (jwt.PyJWTError, ValueError):
            return False
        return True

    def _check(self, claims: Mapping[str, Any], issuer: Issuer) -> int:
        """Audience and times; until when it holds (epoch ms)."""
        audience = claims.get("aud")
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not any(one in issuer.audiences for one in named):
            raise refused("TOKEN_WRONG_AUDIENCE", "the token was issued for another service")
        now = self._clock.now() / 1000
        expires = _seconds(claims, "exp")
        if expires is None:
            raise refused("TOKEN_INVALID", "the token has no end (exp)")
        if now >= expires + LEEWAY_S:
            raise refused("TOKEN_EXPIRED", "the token is no longer valid; get a new one")
        for name in ("nbf", "iat"):
            begins = _seconds(claims, name)
            if begins is not None and now < begins - LEEWAY_S:
                raise refused(
                    "TOKEN_NOT_YET_VALID", "the token is not valid yet; is a clock wrong?"
                )
        return int((expires + LEEWAY_S) * 1000)


def refused(code: str, message: str) -> UnauthenticatedError:
    """Why a token is not believed."""
    return UnauthenticatedError(message, code=code)


def _filled(template: str, claims: Mapping[str, Any]) -> str:
    return template.replace(TENANT, str(claims.get("tid", "")))


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    """A time of the token, in epoch seconds; None if it has none. Anything else is refused."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused("TOKEN_INVALID", f"the token's {name} is not a time")
    if not -MAX_SECONDS < value < MAX_SECONDS:
        raise refused("TOKEN_INVALID", f"the token's {name} is not a time")
    return float(value)


def _unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims as they stand there, believed by nobody yet."""
    parts: list[dict[str, Any]] = []
    if _FORM.fullmatch(token):
        for text in token.split(".")[:2]:
            try:
                value = orjson.loads(base64url_decode(text))
            except ValueError:
                break
            if isinstance(value, dict):
                parts.append(value)
    if len(parts) != 2:
        raise refused("TOKEN_INVALID", "the token is not a signed JWT (three parts of base64url)")
    return parts[0], parts[1]
