"""Which of the three ways counts: the platform's header, a token, or the development identity."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from auth_support import RSA, START, Hands, claims, issuer, jwk, jwks, token

from orchestrator.adapters.auth import local_keys
from orchestrator.adapters.auth.front import DEVELOPMENT, EASY_HEADER, Front
from orchestrator.adapters.auth.jwks import RemoteKeys
from orchestrator.adapters.auth.local_keys import LOCAL, LocalKeyError, LocalKeys, sign
from orchestrator.adapters.auth.tokens import TokenVerifier, Trusted
from orchestrator.domain.authz import ROLES
from orchestrator.domain.errors import UnauthenticatedError
from orchestrator.domain.identity import ClaimRules


def front(**more: Any) -> Front:
    async def fetch(url: str) -> bytes:
        return jwks(jwk(RSA))

    clock = Hands()
    trusted = [Trusted(issuer(), RemoteKeys(issuer(), clock=clock, fetch=fetch))]
    return Front(TokenVerifier(trusted, clock=clock), **more)


async def code(using: Front, **headers: str) -> str:
    with pytest.raises(UnauthenticatedError) as caught:
        await using.identify({name.replace("_", "-"): text for name, text in headers.items()})
    return caught.value.code


def easy(*pairs: tuple[Any, Any]) -> str:
    entries = [{"typ": kind, "val": value} for kind, value in pairs]
    document = {"auth_typ": "aad", "claims": entries, "name_typ": "name", "role_typ": "roles"}
    return base64.b64encode(json.dumps(document).encode()).decode()


EVE = easy(("sub", "eve"), ("tenants", "acme"), ("roles", "viewer"), ("roles", "operator"))


async def test_no_token_is_nobody() -> None:
    assert await code(front()) == "TOKEN_MISSING"
    assert await code(front(), host="127.0.0.1") == "TOKEN_MISSING"


@pytest.mark.parametrize("given", ["Bearer {}", "bearer {}", "BEARER   {}  "])
async def test_a_bearer_token_is_its_principal(given: str) -> None:
    found = await front().identify({"authorization": given.format(token())})
    assert found.subject == "eve"


@pytest.mark.parametrize("given", ["Basic ZXZlOng=", "Bearer", "Bearer ", "x", "Token {}", "{}"])
async def test_another_scheme_is_refused(given: str) -> None:
    assert await code(front(), authorization=given.format(token())) == "TOKEN_INVALID"


# --- the platform's header ------------------------------------------------------------------------


async def test_easy_auth_header_is_ignored_by_default() -> None:
    assert await code(front(), x_ms_client_principal=EVE) == "TOKEN_MISSING"
    found = await front(development=True).identify({EASY_HEADER: EVE})
    assert found is DEVELOPMENT
    text = token(RSA, claims(sub="bob"))
    found = await front().identify({EASY_HEADER: EVE, "authorization": f"Bearer {text}"})
    assert found.subject == "bob"


async def test_easy_auth_header_counts_where_the_platform_sits_in_front() -> None:
    found = await front(easy=ClaimRules()).identify({EASY_HEADER: EVE})
    assert (found.subject, found.tenants) == ("eve", ("acme",))
    assert {grant.scopes for grant in found.grants} == {ROLES["viewer"], ROLES["operator"]}


async def test_easy_auth_without_a_header_falls_to_the_token_never_to_anybody() -> None:
    using = front(easy=ClaimRules())
    assert await code(using) == "TOKEN_MISSING"
    assert (await using.identify({"authorization": f"Bearer {token()}"})).subject == "eve"


async def test_easy_auth_long_names_of_claims_are_known_by_their_short_ones() -> None:
    header = easy(
        ("http://schemas.microsoft.com/identity/claims/objectidentifier", "17"),
        ("http://schemas.microsoft.com/identity/claims/tenantid", "guid-1"),
    )
    rules = ClaimRules(subject="oid", tenants="tid", tenant_map={"guid-1": "acme"})
    found = await front(easy=rules).identify({EASY_HEADER: header})
    assert (found.subject, found.tenants) == ("17", ("acme",))


@pytest.mark.parametrize(
    "header",
    ["x", "!!!!", base64.b64encode(b"[]").decode(), base64.b64encode(b"{}").decode(), easy(),
     base64.b64encode(b'{"claims": [1, {"typ": 1, "val": 2}, null]}').decode(), "A" * 70_000],
)  # fmt: skip
async def test_easy_auth_header_that_cannot_be_read(header: str) -> None:
    using = front(easy=ClaimRules())
    assert await code(using, x_ms_client_principal=header) == "TOKEN_INVALID"


# --- the development identity ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [{}, {"host": "127.0.0.1:7071"}, {"host": "localhost"}, {"host": "[::1]:7071"},
     {"host": "localhost:7071", "origin": "http://localhost:7071"}],
)  # fmt: skip
async def test_development_identity_may_do_everything_on_this_machine(
    headers: dict[str, str],
) -> None:
    found = await front(development=True).identify(headers)
    assert (found.subject, found.tenants) == ("developer", ("default",))
    assert front(development=True).warning
    assert not front().warning


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.test"}, {"host": "evil.test:7071"}, {"host": "127.0.0.1.evil.test"},
     {"host": "[x"}, {"host": "localhost@evil.test"}, {"host": "10.0.0.1"},
     {"host": "127.0.0.1", "origin": "https://evil.test"}, {"host": "127.0.0.1", "origin": "null"}],
)  # fmt: skip
async def test_a_page_in_a_browser_is_not_the_developer(headers: dict[str, str]) -> None:
    assert await code(front(development=True), **headers) == "TOKEN_MISSING"


async def test_a_bad_token_never_falls_back_to_the_development_identity() -> None:
    using = front(development=True)
    assert await code(using, authorization="Bearer x.y.z") == "TOKEN_INVALID"
    assert await code(using, authorization="Basic x") == "TOKEN_INVALID"


# --- the key of `weft token` ----------------------------------------------------------------------

CLAIMS = {"sub": "eve", "tenants": ["acme"], "roles": ["operator"]}


def made(folder: Path, **more: Any) -> str:
    return sign(folder, CLAIMS, **{"now_s": START, "ttl_s": 60, **more})


def local(folder: Path) -> TokenVerifier:
    return TokenVerifier([Trusted(LOCAL, LocalKeys(folder))], clock=Hands())


async def test_a_local_token_is_trusted_by_the_platform_of_that_folder(tmp_path: Path) -> None:
    here = local(tmp_path / "a")
    text = made(tmp_path / "a")  # the key is made after the platform was
    assert (await here.verify(text)).tenants == ("acme",)
    assert (await here.verify(made(tmp_path / "a", ttl_s=61))).subject == "eve"  # the same key
    with pytest.raises(UnauthenticatedError):
        await local(tmp_path / "b").verify(text)
    made(tmp_path / "b")
    with pytest.raises(UnauthenticatedError):
        await local(tmp_path / "b").verify(text)


async def test_the_local_key_is_private(tmp_path: Path) -> None:
    text = made(tmp_path)
    path = tmp_path / local_keys.FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == [path.name]
    path.chmod(0o644)
    with pytest.raises(LocalKeyError, match="read by others"):
        made(tmp_path)
    with pytest.raises(UnauthenticatedError):
        await local(tmp_path).verify(text)


def test_a_file_that_is_no_key_is_told(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / local_keys.FILE).write_text("x")
    with pytest.raises(LocalKeyError, match="no key"):
        made(tmp_path)
