"""`http` tasks cannot be used against the platform's own surroundings (SSRF)."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from typing import Any

import httpcore
import httpx
import pytest
from activities_support import Server, answer, failure_from, make_call, serving
from hypothesis import given
from hypothesis import strategies as st

from activities import runner as app
from activities.egress import (
    CheckedBackend,
    CheckedTransport,
    EgressPolicy,
    EgressRefused,
    identity_endpoints,
)
from activities.http import LIMITS, HttpActivity
from activities.registry import Registry
from activities.runner import Runner
from orchestrator.settings import SettingsError, load_settings
from orchestrator.settings_egress import LOOPBACK

PUBLIC = ("93.184.215.14", "8.8.8.8", "2606:4700::6810:84e5", "20.50.1.1")
INSIDE = (
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",  # carrier-grade NAT
    "169.254.169.254",  # instance metadata
    "168.63.129.16",  # Azure's host agent
    "198.18.0.1",
    "224.0.0.1",
    "239.1.1.1",
    "255.255.255.255",
    "192.88.99.1",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::7f00:1",
    "2002:7f00:1::1",  # 6to4 of 127.0.0.1
    "2002:a9fe:a9fe::",
    "2001:0:0:0:0:0:5601:5601",  # Teredo of 169.254.169.254
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "not an address",
    "",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_permitted(address: str) -> None:
    assert EgressPolicy().permits(address)


@pytest.mark.parametrize("address", INSIDE)
def test_case_ssrf_addresses_inside_are_refused_in_every_form(address: str) -> None:
    assert not EgressPolicy().permits(address)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_the_same_in_every_ipv6_form(address: Any) -> None:
    policy, number = EgressPolicy(), int(address)
    forms = [
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
    ]
    assert {policy.permits(str(form)) for form in forms} == {policy.permits(str(address))}


def test_allowed_networks_and_nothing_beside_them() -> None:
    policy = EgressPolicy(["10.1.0.0/16", "::1/128", "127.0.0.0/8"])
    assert policy.permits("10.1.255.1")
    assert policy.permits("::ffff:10.1.0.1")
    assert policy.permits("127.0.0.1")
    assert policy.permits("::1")
    assert not policy.permits("10.2.0.1")
    assert not policy.permits("169.254.169.254")


@pytest.mark.parametrize(
    ("endpoint", "host", "address", "port", "refused"),
    [
        ("http://127.0.0.1:41741/msi/token", "127.0.0.1", "127.0.0.1", 41741, True),
        ("http://127.0.0.1:41741/msi/token", "sidecar", "127.9.9.9", 41741, True),
        ("http://127.0.0.1:41741/msi/token", "x", "::ffff:127.0.0.1", 41741, True),
        ("http://localhost:41741/msi/token", "[::1]", "::1", 41741, True),
        ("http://127.0.0.1:41741/msi/token", "127.0.0.1", "127.0.0.1", 8080, False),
        ("http://10.0.0.9/token", "x", "10.0.0.9", 80, True),
        ("http://10.0.0.9/token", "x", "10.0.0.8", 80, False),
        ("http://token.internal:99/", "TOKEN.internal.", "10.0.0.9", 99, True),
        ("no url [", "x", "10.0.0.9", 80, False),
        ("", "x", "10.0.0.9", 80, False),
    ],
)
def test_case_egress_the_identity_endpoint_is_refused_even_where_its_network_is_allowed(
    endpoint: str, host: str, address: str, port: int, refused: bool
) -> None:
    """A token of the app's own identity is had there by whoever asks."""
    never = identity_endpoints({"IDENTITY_ENDPOINT": endpoint})
    for policy in (
        EgressPolicy(["127.0.0.0/8", "::1/128", "10.0.0.0/8"], never=never),
        EgressPolicy(never=never).widened(["0.0.0.0/0", "::/0"]),
    ):
        outcome = nullcontext() if not refused else pytest.raises(EgressRefused)
        with outcome:
            policy.check(host, [address], port)


def test_the_apps_runner_knows_the_identity_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", "http://127.0.0.1:41741/msi/token")
    made: list[EgressPolicy] = []

    def make(*, policy: EgressPolicy) -> HttpActivity:
        made.append(policy)
        return HttpActivity(policy=policy)

    monkeypatch.setattr(app, "HttpActivity", make)
    app.default_runner(egress_allow=LOOPBACK)
    made[0].check("127.0.0.1", ["127.0.0.1"], 8080)
    with pytest.raises(EgressRefused):
        made[0].check("127.0.0.1", ["127.0.0.1"], 41741)


def test_the_default_of_each_backend_and_the_setting() -> None:
    assert load_settings({}).egress_networks == LOOPBACK
    assert load_settings({"WEFT_EGRESS_ALLOW": ""}).egress_networks == ()
    given = {"WEFT_EGRESS_ALLOW": "10.1.0.0/16, fd12::/48"}
    assert load_settings(given).egress_networks == ("10.1.0.0/16", "fd12::/48")
    with pytest.raises(SettingsError, match=r"WEFT_EGRESS_ALLOW.*10\.1\.2\.3/16.*example"):
        load_settings({"WEFT_EGRESS_ALLOW": "10.1.2.3/16, example"})


class Dials:
    """A network in which nothing answers; says what was dialled."""

    def __init__(self, answering: Sequence[str] = ()) -> None:
        self.dialled: list[str] = []
        self.answering = answering

    async def connect_tcp(self, host: str, *args: Any, **kwargs: Any) -> Any:
        self.dialled.append(host)
        if host in self.answering:
            return f"stream to {host}"
        raise httpcore.ConnectError("nobody there")

    async def sleep(self, seconds: float) -> None:
        """Not used."""


class Names:
    """A resolver: the answers of each name, in turn; the last one stays."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        left = self.answers[host.partition(".")[0]]
        return left.pop(0) if len(left) > 1 else left[0]


def backend(names: Names, dials: Dials, allow: Sequence[str] = ()) -> CheckedBackend:
    return CheckedBackend(EgressPolicy(allow), resolve=names, inner=dials)  # type: ignore[arg-type]


async def test_case_ssrf_the_checked_address_is_the_one_connected_to() -> None:
    """DNS rebinding: the second answer is never asked for."""
    names, dials = Names(shop=[["8.8.8.8"], ["127.0.0.1"]]), Dials(["8.8.8.8"])
    stream: Any = await backend(names, dials).connect_tcp("shop.example", 80)
    assert stream == "stream to 8.8.8.8"
    assert (names.asked, dials.dialled) == (1, ["8.8.8.8"])


async def test_one_address_inside_refuses_the_whole_answer() -> None:
    names, dials = Names(shop=[["8.8.8.8", "10.0.0.1"]]), Dials(["8.8.8.8"])
    with pytest.raises(EgressRefused) as refused:
        await backend(names, dials).connect_tcp("shop.example", 80)
    assert dials.dialled == []
    assert "10.0.0.1" not in str(refused.value)
    assert "WEFT_EGRESS_ALLOW" in str(refused.value)


async def test_the_next_address_is_tried_when_the_first_does_not_answer() -> None:
    names, dials = Names(shop=[["8.8.8.8", "20.50.1.1"]]), Dials(["20.50.1.1"])
    await backend(names, dials).connect_tcp("shop.example", 80)
    assert dials.dialled == ["8.8.8.8", "20.50.1.1"]
    with pytest.raises(httpcore.ConnectError):
        await backend(names, Dials()).connect_tcp("shop.example", 80)


async def test_local_sockets_are_refused() -> None:
    with pytest.raises(EgressRefused):
        await backend(Names(), Dials()).connect_unix_socket("/var/run/docker.sock")


# --- the whole activity, over a real socket -------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(answer(200)) as running:
        yield running


def port(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


def runner(allow: Sequence[str], transport: httpx.AsyncBaseTransport | None = None) -> Runner:
    http = HttpActivity(policy=EgressPolicy(allow), transport=transport)
    registry = Registry()
    registry.register("weft.http", http.run, built_in=True)
    return Runner(registry, closers=(http.close,))


HOSTS = (
    *("127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "localhost"),
    *("localhost.", "0.0.0.0", "[::]", "[::1]"),
)


@pytest.mark.parametrize("host", HOSTS)
async def test_loopback_is_refused_by_default_however_it_is_written(
    server: Server, host: str
) -> None:
    running = runner(())
    url = f"http://{host}:{port(server)}/"
    failure = await failure_from(running.run(make_call("weft.http", {"url": url})))
    assert (failure.type, failure.retryable) == ("EgressRefused", False)
    assert server.received == []
    await running.close()


async def test_where_loopback_is_allowed_the_request_arrives_with_its_name(server: Server) -> None:
    server.answers = [answer(200)]
    running = runner(LOOPBACK)
    url = f"http://localhost:{port(server)}/"
    output: Any = await running.run(make_call("weft.http", {"url": url}))
    assert output["status"] == 200
    await running.close()


async def test_case_ssrf_a_redirect_to_an_address_inside_is_refused(server: Server) -> None:
    """The first hop is allowed by address; the second is 169.254.169.254."""
    server.answers = [answer(302, location="http://169.254.169.254/metadata/identity")]
    running = runner(LOOPBACK)
    url = f"http://127.0.0.1:{port(server)}/"
    failure = await failure_from(running.run(make_call("weft.http", {"url": url})))
    assert failure.type == "EgressRefused"
    assert "169.254.169.254" in failure.message  # the url's own host, which its author knows
    await running.close()


async def test_case_ssrf_a_second_answer_of_the_resolver_cannot_lead_inside(server: Server) -> None:
    """Rebinding between two requests: the second connection is checked like the first."""
    names = Names(shop=[["127.0.0.1"], ["169.254.169.254"]])
    server.answers = [answer(200, connection="close")]
    transport = CheckedTransport(
        CheckedBackend(EgressPolicy(LOOPBACK), resolve=names), LIMITS, verify=False
    )
    running = runner(LOOPBACK, transport)
    call = {"url": f"http://shop.example:{port(server)}/"}
    output: Any = await running.run(make_call("weft.http", call))
    assert output["status"] == 200
    failure = await failure_from(running.run(make_call("weft.http", call)))
    assert failure.type == "EgressRefused"
    assert len(server.received) == 1
    await running.close()
