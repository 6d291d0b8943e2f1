"""A tenant's own lists: hosts beside which none is called, networks that it may reach."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from activities_support import Server, answer, failure_from, make_call, serving
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from activities.egress import EgressPolicy
from activities.http import HttpActivity
from activities.registry import Registry
from activities.runner import Runner
from orchestrator.domain.egress import ANYWHERE, Egress, EgressModel
from orchestrator.domain.redaction import Redactor, redacting
from orchestrator.settings_egress import LOOPBACK

SECRET = "s3cr3t-Ω/+="


def lists(**fields: Any) -> Egress:
    return EgressModel.model_validate(fields).egress()


def runner(*allow: str) -> Runner:
    registry = Registry()
    http = HttpActivity(policy=EgressPolicy(allow))
    registry.register("weft.http", http.run, built_in=True)
    return Runner(registry, closers=(http.close,))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(answer(200)) as running:
        yield running


# --- the lists ------------------------------------------------------------------------------------


def test_only_the_hosts_of_the_list_and_those_below_a_star() -> None:
    bounds = lists(onlyHosts=["API.example.com", "*.example.org.", "10.1.2.3", "[::1]"])
    for host in ("api.example.com", "API.EXAMPLE.COM.", "a.example.org", "a.b.example.org"):
        assert bounds.names(host), host
    assert bounds.names("10.1.2.3")
    assert bounds.names("[::1]")
    for host in ("example.com", "x.api.example.com", "example.org", "notexample.org", "", "10.1.2"):
        assert not bounds.names(host), host
    assert not lists(onlyHosts=[]).names("a.example")
    assert ANYWHERE.names("anything")


@given(st.text("ab.*-", max_size=8), st.text("ab.-", max_size=8))
def test_a_star_never_reaches_beyond_its_dot(entry: str, host: str) -> None:
    try:
        bounds = lists(onlyHosts=[entry])
    except ValidationError:
        return
    (kept,), name = bounds.only_hosts or [""], host.rstrip(".")
    below = kept.startswith("*.") and name.endswith(kept[1:])
    assert bounds.names(host) == (name == kept or below)


@pytest.mark.parametrize(
    "fields",
    [
        {"onlyHosts": ["https://a.example"]},
        {"onlyHosts": ["a.example:443"]},
        {"onlyHosts": ["a.example/x"]},
        {"onlyHosts": ["*"]},
        {"onlyHosts": ["a.*.example"]},
        {"onlyHosts": ["ä.example"]},
        {"onlyHosts": [""]},
        {"networks": ["10.1.2.3/16"]},
        {"networks": ["a.example"]},
        {"hosts": []},
    ],
)
def test_what_is_no_host_or_network_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EgressModel.model_validate(fields)


# --- over real sockets ----------------------------------------------------------------------------


async def test_a_host_beside_the_list_is_refused_before_a_byte_is_sent(server: Server) -> None:
    running = runner(*LOOPBACK)
    call = make_call("weft.http", {"url": server.url}, egress=lists(onlyHosts=["api.example"]))
    failure = await failure_from(running.run(call))
    assert (failure.type, failure.retryable) == ("EgressRefused", False)
    assert "onlyHosts" in failure.message
    assert server.received == []
    allowed = lists(onlyHosts=["127.0.0.1"])
    server.answers = [answer(200)]
    await running.run(make_call("weft.http", {"url": server.url}, egress=allowed))
    assert len(server.received) == 1
    await running.close()


async def test_a_redirect_to_a_host_beside_the_list_is_refused(server: Server) -> None:
    port = server.url.rpartition(":")[2]
    server.answers = [answer(302, location=f"http://localhost:{port}/")]
    running = runner(*LOOPBACK)
    bounds = lists(onlyHosts=["127.0.0.1"])
    call = make_call("weft.http", {"url": server.url}, egress=bounds)
    failure = await failure_from(running.run(call))
    assert (failure.type, len(server.received)) == ("EgressRefused", 1)
    await running.close()


async def test_one_tenants_network_is_not_anothers_even_over_an_open_connection(
    server: Server,
) -> None:
    running = runner()
    server.answers = [answer(200)]
    wide = lists(networks=["127.0.0.0/8"])
    await running.run(make_call("weft.http", {"url": server.url}, egress=wide))
    failure = await failure_from(running.run(make_call("weft.http", {"url": server.url})))
    assert failure.type == "EgressRefused"
    assert len(server.received) == 1
    await running.close()


METADATA = ("169.254.169.254", "168.63.129.16", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe")


@pytest.mark.parametrize("address", METADATA)
def test_case_egress_no_list_allows_the_metadata_service(address: str) -> None:
    policy = EgressPolicy(["0.0.0.0/0", "::/0"]).widened(["169.254.0.0/16", "168.63.129.16/32"])
    assert policy.permits("169.254.1.1")
    assert not policy.permits(address)


async def test_a_secret_in_a_body_does_not_follow_a_redirect_to_another_origin(
    server: Server,
) -> None:
    async with serving(answer(200)) as other:
        server.answers = [answer(307, location=other.url)] * 2
        running = runner(*LOOPBACK)
        given = {"url": server.url, "method": "POST", "headers": {"accept": SECRET}}
        with redacting(Redactor([SECRET])):
            failure = await failure_from(
                running.run(make_call("weft.http", {**given, "body": {"k": SECRET}}))
            )
            assert failure.type == "HttpRedirectRefused"
            assert other.received == []
            await running.run(make_call("weft.http", {**given, "body": {"k": 1}}))
        assert other.received[0].header("accept") != SECRET
        await running.close()
