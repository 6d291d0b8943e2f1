"""Which addresses the platform's HTTP requests may reach: none of its own surroundings.

A workflow's author names the URL, but the request leaves from inside the platform's network, and
not under the author's identity. Unchecked, an `http` task reads the instance's metadata (and with
it a token of the managed identity), the storage emulator or a colleague's unprotected admin page.

Names prove nothing: `http://2130706433/`, `http://[::ffff:7f00:1]/`, a redirect, or a name that
resolves to another address the second time all lead inside. So the check is where the connection
is made: the name is resolved once, every address of the answer is checked, and the connection goes
to an address that was checked. TLS and the `Host` header keep the name.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

import httpcore
import httpx

from activities.errors import PermanentError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to the addresses of the host, as texts. Raises `OSError`."""

REFUSED: Final = "EgressRefused"
_METADATA: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.169.254/32",
        "169.254.170.2/32",  # the same for containers
        "168.63.129.16/32",  # Azure's host agent: a public address that only leads inside
        "fd00:ec2::254/128",
        "fe80::a9fe:a9fe/128",
    )
)
"""They give the platform's identity to whoever asks: no list can allow them."""
_NEVER: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.88.99.0/24",  # relays of 6to4
        "fec0::/10",  # site-local, deprecated but routed in places
    )
)
_WRAPPERS: Final = (
    # IPv6 addresses that stand for an IPv4 address: network, and how far from the right it is.
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (ipaddress.IPv6Network("::/96"), 0),  # compatible
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),  # translated
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("64:ff9b:1::/48"), 0),  # NAT64 of a site
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
)
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")


class EgressRefused(PermanentError):
    """The address must not be reached from here."""

    def __init__(self, message: str) -> None:
        super().__init__(message, type=REFUSED)


class EgressPolicy:
    """`allow`: networks (CIDR) that may be reached although they are not public. `never`: host and
    port of services that no network makes reachable. Raises `ValueError` for what is no network."""

    def __init__(self, allow: Iterable[str] = (), *, never: Iterable[tuple[str, int]] = ()) -> None:
        self._allow: tuple[Network, ...] = tuple(ipaddress.ip_network(text) for text in allow)
        self._never = tuple(never)

    def widened(self, networks: Iterable[str]) -> EgressPolicy:
        """One that also allows these networks (CIDR)."""
        more = EgressPolicy(networks, never=self._never)
        more._allow += self._allow
        return more

    def permits(self, address: str) -> bool:
        """Whether this IP address (no name) may be connected to."""
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return all(self._permits(one) for one in _meant(parsed))

    def check(self, host: str, addresses: Sequence[str], port: int) -> None:
        """Raises `EgressRefused` if one of them may not be reached. All must be fine: an answer
        that mixes public and private addresses is how a check is got round. The text does not
        repeat the address: it would tell what a name means inside."""
        if not all(map(self.permits, addresses)) or self._is_never(host, addresses, port):
            raise EgressRefused(
                f"{host} leads to an address that http tasks must not reach (private, loopback, "
                "link-local or reserved); the operator can allow its network with "
                "WEFT_EGRESS_ALLOW, or for one tenant in its egress lists"
            )

    def _is_never(self, host: str, addresses: Sequence[str], port: int) -> bool:
        names = {host.lower().rstrip(".").strip("[]"), *addresses}
        for never, its_port in self._never:
            if port == its_port:
                if never in names:
                    return True
                if _loopback(never) and any(map(_loopback, addresses)):
                    return True  # every loopback address: it may listen on all of them
        return False

    def _permits(self, address: Address) -> bool:
        if any(address in network for network in _METADATA):
            return False
        if any(address in network for network in self._allow):
            return True
        if any(address in network for network in _NEVER):
            return False
        return address.is_global and not address.is_multicast


def identity_endpoints(env: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Host and port where App Service hands out tokens of the app's identity, from the environment:
    a port of loopback, which is allowed where a sidecar is to be called."""
    found: list[tuple[str, int]] = []
    for name in ("IDENTITY_ENDPOINT", "MSI_ENDPOINT"):
        try:
            parts = urlsplit(env.get(name, ""))
            if parts.hostname:
                port = parts.port or (443 if parts.scheme == "https" else 80)
                found.append((parts.hostname, port))
        except ValueError:
            continue  # no URL: nothing answers there
    return tuple(found)


def _loopback(address: str) -> bool:
    try:
        return any(one.is_loopback for one in _meant(ipaddress.ip_address(address)))
    except ValueError:
        return address == "localhost"


def _meant(address: Address) -> list[Address]:
    """The address and, if it stands for an IPv4 address, that one instead: routers and systems
    unwrap it."""
    if isinstance(address, ipaddress.IPv6Address):
        for network, shift in _WRAPPERS:
            if address in network and int(address) > 1:
                return [ipaddress.IPv4Address((int(address) >> shift) & 0xFFFFFFFF)]
        if address in _TEREDO:
            return [address, ipaddress.IPv4Address(int(address) & 0xFFFFFFFF ^ 0xFFFFFFFF)]
    return [address]


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of `host` by the system's resolver, each once, in its order. Raises `OSError`,
    `UnicodeError` for a name that cannot be one."""
    if host.lower() == "localhost.":  # the same name to RFC 6761, but not to every resolver
        host = "localhost"
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects to checked addresses only. `inner` makes the connections."""

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        resolve: Resolve = resolve,
        inner: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._policy = policy
        self._resolve = resolve
        # Typed as its stand-in for installations without anyio, which httpx never has.
        self._inner = inner or cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve, check, connect: to the first address that answers. Raises `EgressRefused`, and
        what httpcore raises."""
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolve(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout("the name was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError("the name cannot be resolved") from error
        self._policy.check(host, addresses, port)
        failed: Exception = httpcore.ConnectError("the name has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Never."""
        raise EgressRefused("http tasks do not talk to local sockets")

    async def sleep(self, seconds: float) -> None:
        """Wait (between httpcore's own tries, of which there are none)."""
        await self._inner.sleep(seconds)


class CheckedTransport(httpx.AsyncHTTPTransport):
    """httpx's transport with its connections made by `backend`."""

    def __init__(
        self, backend: httpcore.AsyncNetworkBackend, limits: httpx.Limits, **options: Any
    ) -> None:
        super().__init__(trust_env=False, **options)
        # httpx has no way to give its pool a backend; this is the pool that it would have made.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False, **options),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=backend,
        )
