"""Where a tenant's requests may go: by name, and by network.

Two lists. `onlyHosts` narrows: where it is set, only those hosts are called, by tasks and by
webhooks, redirects included. `networks` widens: addresses that are not public and may be reached
nevertheless, beside those that the platform's settings allow.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_HOSTS: Final = 500
MAX_NETWORKS: Final = 100

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST: Final = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")


def _host(text: str) -> str:
    host = text.strip().lower().rstrip(".")
    if host.startswith("[") or ":" in host:
        try:
            return str(ipaddress.IPv6Address(host.strip("[]")))
        except ValueError:
            raise ValueError(_SHAPE) from None
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise ValueError(_SHAPE)
    return host


_SHAPE: Final = (
    "must be a host like `api.example.com`, or `*.example.com` for all below it: no scheme, port "
    "or path, other alphabets in their `xn--` form"
)


def _network(text: str) -> str:
    return str(ipaddress.ip_network(text.strip()))


class EgressModel(BaseModel):
    """What is written for a tenant."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, strict=True
    )

    only_hosts: list[Annotated[str, AfterValidator(_host)]] | None = Field(
        default=None,
        max_length=MAX_HOSTS,
        description="Hosts that may be called, no others: `api.example.com`, or `*.example.com` "
        "for all below it. Left out: any; an empty list: none",
    )
    networks: list[Annotated[str, AfterValidator(_network)]] = Field(
        default_factory=list[str],
        max_length=MAX_NETWORKS,
        description="Networks that may be reached although they are not public, like "
        "`10.1.0.0/16`, beside those of the platform's settings",
    )

    def stored(self) -> dict[str, Any]:
        """The JSON that is kept."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def egress(self) -> Egress:
        """What an attempt is bound by."""
        hosts = None if self.only_hosts is None else frozenset(self.only_hosts)
        return Egress(only_hosts=hosts, networks=tuple(sorted(set(self.networks))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """The bounds of one request."""

    only_hosts: frozenset[str] | None = None
    networks: tuple[str, ...] = ()

    def names(self, host: str) -> bool:
        """Whether a URL's host may be called, as far as its name says."""
        if self.only_hosts is None:
            return True
        name = host.lower().rstrip(".").strip("[]")
        if name in self.only_hosts:
            return True
        return any(f"*.{rest}" in self.only_hosts for rest in _above(name))


ANYWHERE: Final = Egress()


def _above(name: str) -> list[str]:
    """The names above a host's: `b.c` and `c` of `a.b.c`."""
    labels = name.split(".")
    return [".".join(labels[at:]) for at in range(1, len(labels))]
