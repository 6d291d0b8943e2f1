"""Keys, tokens and a clock for tests of authentication."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from orchestrator.domain.identity import ClaimRules, Issuer

ISSUER = "https://login.test/v2.0"
AUDIENCE = "api://weft"
START_MS = 1_800_000_000_000
START = START_MS // 1000


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now(self) -> int:
        return self.ms

    async def sleep(self, ms: int) -> None:
        self.ms += ms


RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, kid: str | None = "k1", **more: Any) -> dict[str, Any]:
    """The public half as a JWK."""
    public = key.public_key()
    kind: Any = jwt.algorithms.RSAAlgorithm
    if isinstance(public, ec.EllipticCurvePublicKey):
        kind = jwt.algorithms.ECAlgorithm
    named = {} if kid is None else {"kid": kid}
    return {**kind.to_jwk(public, as_dict=True), "use": "sig", **named, **more}


def jwks(*keys: dict[str, Any]) -> bytes:
    """A key set."""
    return json.dumps({"keys": keys}).encode()


def claims(**more: Any) -> dict[str, Any]:
    """Good ones; None leaves a claim out."""
    given = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "eve",
        "tenants": ["acme"],
        "roles": ["operator"],
        "iat": START - 10,
        "nbf": START - 10,
        "exp": START + 600,
        **more,
    }
    return {name: value for name, value in given.items() if value is not None}


def part(value: Any) -> str:
    """A part of a token."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(
    key: Any = RSA, body: dict[str, Any] | None = None, *, kid: str | None = "k1", **header: Any
) -> str:
    """A signed token. Made by hand, so that it can be as wrong as a forger wants it."""
    is_rsa = isinstance(key, rsa.RSAPrivateKey)
    named = {} if kid is None else {"kid": kid}
    head = {"typ": "JWT", "alg": "RS256" if is_rsa else "ES256", **named, **header}
    signed = f"{part(head)}.{part(claims() if body is None else body)}"
    if is_rsa:
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{signed}.{part(signature)}"


def issuer(**more: Any) -> Issuer:
    """The issuer of these tokens."""
    return Issuer(
        **{
            "issuer": ISSUER,
            "audiences": (AUDIENCE,),
            "jwks": "https://login.test/keys",
            "rules": ClaimRules(),
            **more,
        }
    )
