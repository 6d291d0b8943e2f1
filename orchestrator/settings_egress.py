"""`WEFT_EGRESS_ALLOW`: networks that are not public and that http tasks may reach nevertheless."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator

LOOPBACK: Final = ("127.0.0.0/8", "::1/128")
"""What the embedded mode allows: the services that a developer runs beside it."""


def parse_networks(value: Any) -> Any:
    """`10.1.0.0/16, …` as a tuple of texts. Raises `ValueError` that names each fault; anything
    but text is left to pydantic."""
    if not isinstance(value, str):
        return value
    networks: list[str] = []
    faults: list[str] = []
    for text in filter(None, map(str.strip, value.split(","))):
        try:
            networks.append(str(ipaddress.ip_network(text)))
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(networks)


Networks: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(parse_networks)]
