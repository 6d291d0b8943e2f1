"""Bearer tokens: the good one, and every way to be wrong, each with its code."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from typing import Any

import pytest
from auth_support import (
    AUDIENCE,
    EC,
    ISSUER,
    OTHER_RSA,
    RSA,
    START,
    Hands,
    claims,
    issuer,
    jwk,
    jwks,
    part,
    token,
)
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.auth import tokens
from orchestrator.adapters.auth.jwks import RemoteKeys, parse_keys
from orchestrator.adapters.auth.tokens import TokenVerifier, Trusted
from orchestrator.domain.authz import Scope
from orchestrator.domain.errors import UnauthenticatedError
from orchestrator.domain.identity import ClaimRules, Issuer


def verifier(
    clock: Hands | None = None, *keys: dict[str, Any], of: Issuer | None = None
) -> TokenVerifier:
    async def fetch(url: str) -> bytes:
        return jwks(*(keys or (jwk(RSA), jwk(EC, "e1"))))

    clock = clock or Hands()
    known = of or issuer()
    return TokenVerifier([Trusted(known, RemoteKeys(known, clock=clock, fetch=fetch))], clock=clock)


async def code(text: str, using: TokenVerifier | None = None) -> str:
    with pytest.raises(UnauthenticatedError) as caught:
        await (using or verifier()).verify(text)
    shown = caught.value.message
    for secret in (text, "eve", "acme", ISSUER, AUDIENCE):
        assert secret == "" or secret not in shown
    return caught.value.code


@pytest.mark.parametrize(("key", "kid"), [(RSA, "k1"), (EC, "e1")])
async def test_a_good_token_is_its_principal(key: Any, kid: str) -> None:
    found = await verifier().verify(token(key, kid=kid))
    assert (found.subject, found.tenants) == ("eve", ("acme",))
    assert Scope.OPERATE in found.grants[0].scopes


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (claims(exp=START - 61), "TOKEN_EXPIRED"),
        (claims(exp=None), "TOKEN_INVALID"),
        (claims(exp="soon"), "TOKEN_INVALID"),
        (claims(exp=True), "TOKEN_INVALID"),
        (claims(exp=10**30), "TOKEN_INVALID"),
        (claims(nbf=START + 61), "TOKEN_NOT_YET_VALID"),
        (claims(nbf="x"), "TOKEN_INVALID"),
        (claims(iat=START + 61), "TOKEN_NOT_YET_VALID"),
        (claims(iss="https://login.test/v2.0/"), "TOKEN_WRONG_ISSUER"),
        (claims(iss=None), "TOKEN_WRONG_ISSUER"),
        (claims(iss=[ISSUER]), "TOKEN_WRONG_ISSUER"),
        (claims(aud="api://other"), "TOKEN_WRONG_AUDIENCE"),
        (claims(aud=["a", "b"]), "TOKEN_WRONG_AUDIENCE"),
        (claims(aud=None), "TOKEN_WRONG_AUDIENCE"),
        (claims(aud={AUDIENCE: 1}), "TOKEN_WRONG_AUDIENCE"),
        (claims(sub=None), "TOKEN_INVALID"),
    ],
)
async def test_a_claim_that_is_wrong(body: dict[str, Any], expected: str) -> None:
    assert await code(token(RSA, body)) == expected


@pytest.mark.parametrize(
    "body",
    [
        claims(exp=START - 59),
        claims(nbf=START + 59, iat=START + 59),
        claims(nbf=None, iat=None),
        claims(aud=["other", AUDIENCE]),
        claims(exp=START + 0.5),
    ],
)
async def test_a_clock_that_is_a_minute_off_is_forgiven(body: dict[str, Any]) -> None:
    assert (await verifier().verify(token(RSA, body))).subject == "eve"


async def test_none_is_no_algorithm() -> None:
    for name in ("none", "None", "NONE", "", None, 7, ["RS256"]):
        head, body = part({"alg": name, "kid": "k1"}), part(claims())
        for signature in ("", "e30"):
            assert await code(f"{head}.{body}.{signature}") == "TOKEN_INVALID"


async def test_a_public_key_is_no_shared_secret() -> None:
    """Algorithm confusion: the issuer's public RSA key, known to all, used as an HMAC secret."""
    public = RSA.public_key()
    texts = [
        public.public_bytes(serialization.Encoding.PEM, form)
        for form in (
            serialization.PublicFormat.SubjectPublicKeyInfo,
            serialization.PublicFormat.PKCS1,
        )
    ]
    for secret in [*texts, json.dumps(jwk(RSA)).encode(), b""]:
        signed = f"{part({'alg': 'HS256', 'kid': 'k1'})}.{part(claims())}"
        mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        assert await code(f"{signed}.{part(mac)}") == "TOKEN_INVALID"


async def test_a_key_is_used_with_its_own_algorithm_only() -> None:
    assert await code(token(RSA, kid="k1", alg="ES256")) == "TOKEN_INVALID"
    assert await code(token(EC, kid="e1", alg="RS256")) == "TOKEN_INVALID"
    assert await code(token(RSA, kid="e1")) == "TOKEN_INVALID"
    for name in ("PS256", "RS512", "ES384", "EdDSA", "HS512"):
        assert await code(token(RSA, alg=name)) == "TOKEN_INVALID"


async def test_a_forged_or_changed_token_is_refused() -> None:
    assert await code(token(OTHER_RSA)) == "TOKEN_INVALID"
    head, _, signature = token().split(".")
    assert await code(f"{head}.{part(claims(sub='mallory'))}.{signature}") == "TOKEN_INVALID"
    # What is wrong with its claims is not told to whoever has not signed it.
    assert await code(token(OTHER_RSA, claims(exp=1))) == "TOKEN_INVALID"


async def test_keys_that_the_token_brings_along_are_not_looked_at() -> None:
    own = jwk(OTHER_RSA, "k1")
    for header in ({"jwk": own}, {"jku": "https://evil.test/keys"}, {"x5u": "https://evil.test"}):
        assert await code(token(OTHER_RSA, **header)) == "TOKEN_INVALID"


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"crit": []}, {"b64": False}, {"kid": 7}])
async def test_headers_that_nobody_reads_are_refused(header: dict[str, Any]) -> None:
    assert await code(token(RSA, **header)) == "TOKEN_INVALID"


@pytest.mark.parametrize(
    "text", ["", "x", "a.b", "a.b.c", "a.b.c.d", ".." , "e30.e30.e30", "bnVsbA.e30.e30", "é.é.é",
             "a" * 100, f"{part(b'[]')}.{part({})}.x", f"{part(b'{')}.{part({})}.x", "\ud800.a.b",
             f"{part(b'[' * 9000)}.{part({})}.x"]
)  # fmt: skip
async def test_what_is_no_token(text: str) -> None:
    assert await code(text) == "TOKEN_INVALID"


async def test_a_huge_token_is_refused_before_it_is_read() -> None:
    body = claims(groups=["g" * 50] * 1000)
    assert await code(token(RSA, body)) == "TOKEN_TOO_LARGE"


@given(st.text(max_size=60))
async def test_no_text_is_a_token_and_none_breaks_it(text: str) -> None:
    with pytest.raises(UnauthenticatedError):
        await verifier().verify(text)


async def test_a_token_without_kid_needs_an_only_key() -> None:
    assert (await verifier(None, jwk(RSA)).verify(token(kid=None))).subject == "eve"
    assert await code(token(kid=None)) == "TOKEN_INVALID"


def test_unusable_keys_of_a_set_are_passed_over() -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    wide = ec.generate_private_key(ec.SECP384R1())
    entries = [
        jwk(weak), jwk(wide), jwk(RSA, use="enc"), jwk(RSA, alg="RS512"),
        {"kty": "oct", "k": "AAAA", "kid": "k1"}, {"kty": "RSA"}, 7, jwk(RSA, "good"),
    ]  # fmt: skip
    assert [key.kid for key in parse_keys(json.dumps({"keys": entries}).encode())] == ["good"]
    for text in (b"", b"{}", b"[]", b'{"keys": 7}', b'{"keys": []}', jwks(jwk(weak))):
        with pytest.raises(ValueError):  # noqa: PT011 - which one does not matter
            parse_keys(text)


# --- several directories of Entra ID --------------------------------------------------------------

ENTRA = "https://login.microsoftonline.com/{tenantid}/v2.0"
ONE = ENTRA.replace("{tenantid}", "guid-1")
RULES = ClaimRules(tenants="tid", subject="oid", tenant_map={"guid-1": "acme"})


async def test_an_issuer_of_many_directories_accepts_the_known_ones() -> None:
    using = verifier(of=issuer(issuer=ENTRA, rules=RULES))
    found = await using.verify(token(RSA, claims(iss=ONE, tid="guid-1", oid="17")))
    assert (found.subject, found.tenants) == ("17", ("acme",))
    other = ENTRA.replace("{tenantid}", "guid-2")
    for body in (
        claims(iss=other, tid="guid-2", oid="17"),
        claims(iss=other, tid="guid-1", oid="17"),
        claims(iss=ONE, tid="guid-2", oid="17"),
        claims(iss=ENTRA, tid="{tenantid}", oid="17"),
        claims(iss=ONE, oid="17"),
    ):
        assert await code(token(RSA, body), using) == "TOKEN_WRONG_ISSUER"


async def test_a_key_of_one_directory_signs_for_that_one_only() -> None:
    known = issuer(issuer=ENTRA, rules=RULES)
    other = jwk(RSA, issuer=ENTRA.replace("{tenantid}", "guid-2"))
    text = token(RSA, claims(iss=ONE, tid="guid-1", oid="17"))
    assert await code(text, verifier(None, other, of=known)) == "TOKEN_INVALID"
    assert await verifier(None, jwk(RSA, issuer=ENTRA), of=known).verify(text)


# --- remembered -----------------------------------------------------------------------------------


async def test_a_verified_token_is_remembered_but_not_beyond_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Hands()
    using = verifier(clock)
    calls = 0
    signed = using._signed

    def counted(*args: Any) -> bool:
        nonlocal calls
        calls += 1
        return signed(*args)

    monkeypatch.setattr(using, "_signed", counted)
    text = token()
    for _ in range(3):
        await using.verify(text)
    assert calls == 1
    clock.ms += tokens.CACHED_MS
    await using.verify(text)
    assert calls == 2
    clock.ms = (START + 659) * 1000
    await using.verify(text)
    clock.ms = (START + 660) * 1000
    assert await code(text, using) == "TOKEN_EXPIRED"


async def test_what_is_remembered_is_bounded_and_holds_no_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "CACHED", 3)
    using = verifier()
    made = [token(RSA, claims(jti=number)) for number in range(5)]
    for text in made:
        await using.verify(text)
    assert len(using._known) == 3
    assert not any(text in repr(using._known) for text in made)


async def test_refusals_are_not_remembered() -> None:
    using = verifier()
    for _ in range(3):
        assert await code(token(OTHER_RSA), using) == "TOKEN_INVALID"
    assert len(using._known) == 0


async def test_nothing_of_a_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        text = token()
        await verifier().verify(text)
        await code(token(OTHER_RSA))
    logged = caplog.text + repr([record.__dict__ for record in caplog.records])
    assert text not in logged
    assert "eve" not in logged
