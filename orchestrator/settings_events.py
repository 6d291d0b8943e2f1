"""`WEFT_PUBLISH_TARGETS`: where events may be published to, by name.

Definitions name a target; only the operator says where that is. So nobody who may publish a
workflow can make the platform's identity send to an address of their choice.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from orchestrator.domain.published import OWN_TARGET
from orchestrator.domain.topology import QUEUES

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_ENTITY: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,258}[A-Za-z0-9])?")
_GRID_HOST: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*\.eventgrid\.azure\.(net|us|cn)")
_FORM: Final = "NAME=queue:QUEUE, NAME=topic:TOPIC or NAME=eventgrid:https://HOST/api/events"


def parse_targets(value: Any) -> Any:
    """`name=address, …` as a mapping. Raises `ValueError` with every fault; anything but text is
    left to pydantic."""
    if not isinstance(value, str):
        return value
    targets: dict[str, str] = {}
    faults: list[str] = []
    for entry in filter(None, map(str.strip, value.split(","))):
        name, equals, address = entry.partition("=")
        fault = _fault(name, address) if equals else f"{entry!r} is not {_FORM}"
        if not fault and name in targets:
            fault = f"{name}: given twice"
        if fault:
            faults.append(fault)
        targets[name] = address
    if faults:
        raise ValueError("; ".join(faults))
    return targets


PublishTargets: TypeAlias = Annotated[dict[str, str], BeforeValidator(parse_targets)]


def _fault(name: str, address: str) -> str:
    if not _NAME.fullmatch(name):
        return f"{name!r} is no name; it must match {_NAME.pattern}"
    if name == OWN_TARGET:
        return f"{name}: is always there and cannot be set"
    kind, _, rest = address.partition(":")
    if kind in ("queue", "topic"):
        if not _ENTITY.fullmatch(rest):
            return f"{name}: {rest!r} is no name of a {kind}"
        if rest in QUEUES:
            return f"{name}: {rest} is a queue of the platform itself"
        return ""
    if kind == "eventgrid":
        url = urlsplit(rest)
        fits = url.scheme == "https" and _GRID_HOST.fullmatch((url.hostname or "").lower())
        return "" if fits else f"{name}: not the https endpoint of an Event Grid topic"
    return f"{name}: the address is not {_FORM}"
