"""What must hold between the Azure settings. Pure: an environment in, every fault out.

A contradiction that is let through shows up much later as a 401 of one service out of four, or not
at all: the trigger listens as one identity while the clients write as another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from orchestrator.settings_azure import MANAGED_IDENTITY

CLOUD_HOST: Final = "WEBSITE_INSTANCE_ID"
"""Set by Azure on every instance of a function app, and by nothing else."""
FUNCTIONS_HOST: Final = ("FUNCTIONS_WORKER_RUNTIME", CLOUD_HOST)
"""Set under a Functions host: the first one by the Core Tools on a developer's machine too."""

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HOST: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+", re.IGNORECASE)
_CONTAINER: Final = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_DATABASE: Final = re.compile(r"[^/\\?#]{1,255}")


@dataclass(frozen=True, slots=True)
class _Connection:
    name: str
    address: str  # property that names the service when an identity is used
    emulator: str  # what an emulator's connection string contains, as a regular expression
    trigger: bool  # a Functions extension reads it too


_CONNECTIONS: Final = (
    _Connection(
        "Cosmos",
        "accountEndpoint",
        r"(?s)^(?!.*\.documents\.azure\.).*accountendpoint=",
        trigger=True,
    ),
    _Connection(
        "ServiceBus", "fullyQualifiedNamespace", "usedevelopmentemulator=true", trigger=True
    ),
    _Connection(
        "Payloads",
        "blobServiceUri",
        "usedevelopmentstorage=true|blobendpoint=http:",
        trigger=False,
    ),
)


def managed_identity(env: Mapping[str, str]) -> bool:
    """Whether this process is to run as a managed identity: in Azure, or where a setting says so.
    A developer's machine has none, and asking for one there takes seconds to fail."""
    return CLOUD_HOST in env or any(
        env.get(f"{connection.name}__credential") == MANAGED_IDENTITY for connection in _CONNECTIONS
    )


def client_ids(env: Mapping[str, str]) -> dict[str, str]:
    """Every setting that names an identity, with what it says."""
    names = ("AZURE_CLIENT_ID", *(f"{connection.name}__clientId" for connection in _CONNECTIONS))
    return {name: env[name].lower() for name in names if env.get(name)}


def faults(env: Mapping[str, str]) -> list[str]:
    """Everything wrong with the Azure settings in `env`, each as `NAME: fault; mend`. Values are
    never shown: a connection string in the wrong setting would end up in a log."""
    found: list[str] = []
    for connection in _CONNECTIONS:
        found += _connection_faults(connection, env)
    found += _address_faults(env)
    found += _identity_faults(env)
    if not env.get("COSMOS_DATABASE"):
        found.append("COSMOS_DATABASE: missing; set it to the database with Weft's containers")
    elif not _DATABASE.fullmatch(env["COSMOS_DATABASE"]):
        found.append("COSMOS_DATABASE: not a database name; 1 to 255 characters without / \\ ? #")
    container = env.get("PAYLOADS_CONTAINER")
    if container and not _CONTAINER.fullmatch(container):
        found.append(
            "PAYLOADS_CONTAINER: not a container name; 3 to 63 of a-z, 0-9 and single hyphens"
        )
    return found


def _connection_faults(connection: _Connection, env: Mapping[str, str]) -> Iterable[str]:
    name = connection.name
    address = f"{name}__{connection.address}"
    identity = [
        setting for setting in (f"{name}__credential", f"{name}__clientId") if _has(env, setting)
    ]
    if _has(env, name) and _has(env, address):
        yield f"{name} and {address}: both are set; keep {address} (in Azure), or {name} (emulator)"
    elif not _has(env, name) and not _has(env, address):
        yield f"{address}: missing; set it, or {name} to an emulator's connection string"
    elif _has(env, name):
        if identity:
            yield (
                f"{' and '.join(identity)}: set beside the connection string {name}, which has its "
                "own key; remove one or the other"
            )
        if not re.search(connection.emulator, env[name].lower()):
            yield (
                f"{name}: not an emulator's connection string; in Azure no keys are used: remove "
                f"it and set {address}"
            )


def _address_faults(env: Mapping[str, str]) -> Iterable[str]:
    for name in ("Cosmos__accountEndpoint", "Payloads__blobServiceUri", "KeyVault__vaultUri"):
        if _has(env, name) and not _is_service_url(env[name]):
            yield f"{name}: not the address of a service; give https://HOST/ without a path"
    name = "ServiceBus__fullyQualifiedNamespace"
    if _has(env, name) and not _HOST.fullmatch(env[name]):
        yield f"{name}: not a host name; give NAMESPACE.servicebus.windows.net, no scheme, no path"


def _identity_faults(env: Mapping[str, str]) -> Iterable[str]:
    ids = client_ids(env)
    for name, value in ids.items():
        if not _GUID.fullmatch(value):
            yield f"{name}: not a client id; give the identity's client id (a GUID)"
    if len(set(ids.values())) > 1:
        yield (
            f"{', '.join(ids)}: not the same; one process is one identity, give all of them its "
            "client id"
        )
    for connection in _CONNECTIONS:
        credential, client = f"{connection.name}__credential", f"{connection.name}__clientId"
        if _has(env, credential) and env[credential] != MANAGED_IDENTITY:
            yield f"{credential}: must be {MANAGED_IDENTITY} or absent"
        if _has(env, client) and not _has(env, credential):
            yield f"{credential}: missing beside {client}; set it to {MANAGED_IDENTITY}"
        elif (
            connection.trigger
            and not _has(env, client)
            and not _has(env, connection.name)
            and _has(env, "AZURE_CLIENT_ID")
            and managed_identity(env)
        ):
            yield (
                f"{client}: missing beside AZURE_CLIENT_ID, so the trigger would be another "
                f"identity; set it to the same client id, and {credential} to {MANAGED_IDENTITY}"
            )


def _has(env: Mapping[str, str], name: str) -> bool:
    return bool(env.get(name))


def _is_service_url(text: str) -> bool:
    """`https://host[:port]/`; plain http only on this machine, where the emulators are."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return (
        host is not None
        and (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK))
        and parts.path in ("", "/")
        and not (parts.query or parts.fragment or parts.username or parts.password)
    )
