"""Keys of an issuer over HTTP: rotation, storms of unknown names, an issuer that is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from auth_support import EC, OTHER_RSA, RSA, Hands, claims, issuer, jwk, jwks, token

from orchestrator.adapters.auth import jwks as keys_
from orchestrator.adapters.auth.jwks import RETRY_MS, TTL_MS, RemoteKeys
from orchestrator.adapters.auth.tokens import TokenVerifier, Trusted
from orchestrator.domain.errors import UnauthenticatedError, UnavailableError
from orchestrator.domain.identity import Issuer
from tests.wire.http_service import HttpService


class Provider(HttpService):
    """An issuer: discovery and keys. `keys` is what it has now."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[dict[str, Any]] = [jwk(RSA)]
        self.gate: asyncio.Event | None = None
        self.arrived = asyncio.Event()
        self.named: str | None = None
        self.route("GET", "/keys", self._keys)
        self.route("GET", "/.well-known/openid-configuration", self._discovery)

    async def _keys(self, request: web.Request) -> web.Response:
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        return web.Response(body=jwks(*self.keys), content_type="application/json")

    async def _discovery(self, request: web.Request) -> web.Response:
        return web.json_response({"issuer": self.named or self.url, "jwks_uri": f"{self.url}/keys"})

    @property
    def fetches(self) -> int:
        return self.requests.count("GET /keys")


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    service = Provider()
    async with service:
        yield service


@pytest.fixture
def clock() -> Hands:
    return Hands()


class Side:
    """Our side of it."""

    def __init__(self, known: Issuer, clock: Hands) -> None:
        self.keys = RemoteKeys(known, clock=clock)
        self._verifier = TokenVerifier([Trusted(known, self.keys)], clock=clock)

    async def __call__(self, text: str) -> str:
        """The subject, or the code of the refusal."""
        try:
            return (await self._verifier.verify(text)).subject
        except (UnauthenticatedError, UnavailableError) as error:
            return error.code

    async def settle(self) -> None:
        """Wait for a fetch that runs beside."""
        while self.keys._running is not None:
            await asyncio.gather(self.keys._running)


@pytest.fixture
async def side(provider: Provider, clock: Hands) -> AsyncIterator[Side]:
    made = Side(issuer(jwks=f"{provider.url}/keys"), clock)
    yield made
    await made.keys.close()


def fresh(key: Any, kid: str, number: int = 0) -> str:
    return token(key, claims(jti=number, exp=None) | {"exp": 2_000_000_000}, kid=kid)


async def test_keys_are_fetched_once_for_many_tokens(side: Side, provider: Provider) -> None:
    found = await asyncio.gather(*(side(fresh(RSA, "k1", number)) for number in range(20)))
    assert set(found) == {"eve"}
    assert provider.fetches == 1


async def test_a_rotated_key_is_found_at_its_first_use(
    side: Side, provider: Provider, clock: Hands
) -> None:
    assert await side(fresh(RSA, "k1")) == "eve"
    provider.keys = [jwk(RSA), jwk(EC, "k2")]
    clock.ms += RETRY_MS
    assert await side(fresh(EC, "k2")) == "eve"
    assert provider.fetches == 2


async def test_a_key_that_was_withdrawn_is_refused_after_its_time(
    side: Side, provider: Provider, clock: Hands
) -> None:
    assert await side(fresh(RSA, "k1")) == "eve"
    provider.keys = [jwk(EC, "k2")]
    clock.ms += TTL_MS
    await side(fresh(RSA, "k1", 1))  # still with the old ones, while the new ones are fetched
    await side.settle()
    assert await side(fresh(RSA, "k1", 2)) == "TOKEN_INVALID"
    assert await side(fresh(RSA, "k1")) == "TOKEN_INVALID"  # remembered no longer either
    assert await side(fresh(EC, "k2", 3)) == "eve"


async def test_old_keys_serve_while_new_ones_are_fetched(
    side: Side, provider: Provider, clock: Hands
) -> None:
    assert await side(fresh(RSA, "k1")) == "eve"
    provider.gate = asyncio.Event()
    clock.ms += TTL_MS
    assert await side(fresh(RSA, "k1", 1)) == "eve"  # does not wait: the gate is closed
    provider.gate.set()
    await side.settle()
    assert provider.fetches == 2


async def test_a_storm_of_unknown_kids_is_one_fetch(
    side: Side, provider: Provider, clock: Hands
) -> None:
    assert await side(fresh(RSA, "k1")) == "eve"
    clock.ms += RETRY_MS
    storm = [side(fresh(OTHER_RSA, f"x{number}")) for number in range(60)]
    assert set(await asyncio.gather(*storm)) == {"TOKEN_INVALID"}
    for number in range(60):
        assert await side(fresh(OTHER_RSA, f"y{number}")) == "TOKEN_INVALID"
    assert provider.fetches == 2
    assert await side(fresh(RSA, "k1", 1)) == "eve"


async def test_the_last_good_keys_are_kept_while_the_issuer_is_away(
    side: Side, provider: Provider, clock: Hands
) -> None:
    assert await side(fresh(RSA, "k1")) == "eve"
    for body in ("", "{}", '{"keys": []}', "x" * 100):
        provider.fail_next(200 if body else 503, body=body)
        clock.ms += TTL_MS
        assert await side(fresh(RSA, "k1", clock.ms)) == "eve"
        await side.settle()
    assert provider.fetches == 5
    assert await side(fresh(RSA, "k1", 7)) == "eve"


async def test_an_issuer_that_is_down_at_start_is_503_and_asked_again_later(
    side: Side, provider: Provider, clock: Hands
) -> None:
    provider.fail_next(500, times=9)
    await side.keys.warm_up()
    for _ in range(5):
        assert await side(fresh(RSA, "k1")) == "ISSUER_UNAVAILABLE"
    assert provider.fetches == 1
    clock.ms += RETRY_MS
    assert await side(fresh(RSA, "k1")) == "ISSUER_UNAVAILABLE"
    provider._failing.clear()
    clock.ms += RETRY_MS
    assert await side(fresh(RSA, "k1")) == "eve"


async def test_nobody_listens_there(clock: Hands) -> None:
    side = Side(issuer(jwks="http://127.0.0.1:1/keys"), clock)
    assert await side(fresh(RSA, "k1")) == "ISSUER_UNAVAILABLE"


async def test_a_clock_that_is_set_back_does_not_stop_fetching(
    side: Side, provider: Provider, clock: Hands
) -> None:
    assert await side(fresh(RSA, "k1")) == "eve"
    provider.keys = [jwk(EC, "k2")]
    clock.ms -= TTL_MS
    assert await side(token(EC, claims(iat=None, nbf=None), kid="k2")) == "eve"


async def test_a_caller_who_gives_up_does_not_take_the_keys_along(
    side: Side, provider: Provider
) -> None:
    provider.gate = asyncio.Event()
    first = asyncio.create_task(side(fresh(RSA, "k1")))
    second = asyncio.create_task(side(fresh(RSA, "k1", 1)))
    await provider.arrived.wait()
    first.cancel()
    provider.gate.set()
    assert await second == "eve"
    assert provider.fetches == 1


async def test_redirects_are_not_followed_and_documents_are_bounded(
    side: Side, provider: Provider, clock: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.fail_next(302, headers={"location": f"{provider.url}/keys"})
    assert await side(fresh(RSA, "k1")) == "ISSUER_UNAVAILABLE"
    monkeypatch.setattr(keys_, "MAX_BYTES", 100)
    clock.ms += RETRY_MS
    assert await side(fresh(RSA, "k1")) == "ISSUER_UNAVAILABLE"


async def test_an_issuer_that_does_not_answer_is_given_up(
    side: Side, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.gate = asyncio.Event()
    monkeypatch.setattr(keys_, "FETCH_SECONDS", 0.05)
    assert await side(fresh(RSA, "k1")) == "ISSUER_UNAVAILABLE"
    provider.gate.set()


# --- discovery ------------------------------------------------------------------------------------


async def test_the_address_of_the_keys_is_discovered(provider: Provider, clock: Hands) -> None:
    side = Side(issuer(issuer=provider.url, jwks=""), clock)
    body = claims(iss=provider.url)
    assert await side(token(RSA, body)) == "eve"
    assert provider.requests == ["GET /.well-known/openid-configuration", "GET /keys"]


async def test_a_discovery_document_of_another_issuer_is_refused(
    provider: Provider, clock: Hands
) -> None:
    provider.named = "https://evil.test"
    side = Side(issuer(issuer=provider.url, jwks=""), clock)
    assert await side(token(RSA, claims(iss=provider.url))) == "ISSUER_UNAVAILABLE"
    assert provider.fetches == 0


@pytest.mark.parametrize("uri", ["http://evil.test/keys", "file:///etc/passwd", 7, None])
async def test_keys_come_over_https_only(uri: Any, clock: Hands) -> None:
    asked: list[str] = []

    async def fetch(url: str) -> bytes:
        asked.append(url)
        return json.dumps({"issuer": "https://a.test", "jwks_uri": uri}).encode()

    keys = RemoteKeys(issuer(issuer="https://a.test", jwks=""), clock=clock, fetch=fetch)
    with pytest.raises(UnavailableError):
        await keys.find("k1")
    assert asked == ["https://a.test/.well-known/openid-configuration"]
