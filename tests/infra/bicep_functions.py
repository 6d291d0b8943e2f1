"""Bicep's functions, as far as our templates call them, and what Azure fills in by itself."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Callable
from itertools import chain
from typing import Any, Final

_SPACE: Final = uuid.UUID("9d2f3a57-3c65-4f0c-8a7e-0b8f0c4f2a11")


def guid(*parts: str) -> str:
    """Like Bicep's: the same parts, the same GUID."""
    return str(uuid.uuid5(_SPACE, "\n".join(parts)))


def _unique(*parts: str) -> str:
    digest = hashlib.sha256("\n".join(parts).encode()).digest()
    return base64.b32encode(digest).decode().lower()[:13]


def _union(*values: Any) -> Any:
    if isinstance(values[0], list):
        joined = list(chain.from_iterable(values))
        return [item for at, item in enumerate(joined) if item not in joined[:at]]
    merged: dict[str, Any] = {}
    for value in values:
        merged |= value
    return merged


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "concat": lambda _, *lists: list(chain.from_iterable(lists)),
    "empty": lambda _, value: len(value) == 0,
    "environment": lambda _: {
        "suffixes": {"storage": "core.windows.net"},
        "authentication": {"loginEndpoint": "https://login.microsoftonline.com/"},
    },
    "guid": lambda _, *parts: guid(*parts),
    "items": lambda _, value: [{"key": key, "value": value[key]} for key in sorted(value)],
    "length": lambda _, value: len(value),
    "loadJsonContent": lambda t, name: json.loads((t.path.parent / name).read_text("utf-8")),
    "readEnvironmentVariable": lambda t, name, default: t.environment.get(name, default),
    "replace": lambda _, text, old, new: text.replace(old, new),
    "resourceGroup": lambda t: {"id": t.root_scope},
    "split": lambda _, text, sign: text.split(sign),
    "string": lambda _, value: json.dumps(value),
    "subscription": lambda t: {"id": "/".join(t.root_scope.split("/")[:3])},
    "subscriptionResourceId": lambda t, kind, name: (
        f"{'/'.join(t.root_scope.split('/')[:3])}/providers/{kind}/{name}"
    ),
    "tenant": lambda _: {"tenantId": "00000000-0000-0000-0000-00000000000a"},
    "toLower": lambda _, text: text.lower(),
    "union": lambda _, *values: _union(*values),
    "uniqueString": lambda _, *parts: _unique(*parts),
}
"""Each with the template that calls it as its first argument."""

_RUNTIME: Final[dict[tuple[str, str, str], Callable[[str], Any]]] = {
    ("Microsoft.Storage/storageAccounts", "properties", "primaryEndpoints"): lambda name: {
        part: f"https://{name}.{part}.core.windows.net/" for part in ("blob", "queue", "table")
    },
    ("Microsoft.DurableTask/schedulers", "properties", "endpoint"): (
        lambda name: f"https://{name}.westeurope.durabletask.io"
    ),
    ("Microsoft.DocumentDB/databaseAccounts", "properties", "documentEndpoint"): (
        lambda name: f"https://{name}.documents.azure.com:443/"
    ),
    ("Microsoft.ServiceBus/namespaces", "properties", "serviceBusEndpoint"): (
        lambda name: f"https://{name}.servicebus.windows.net:443/"
    ),
    ("Microsoft.KeyVault/vaults", "properties", "vaultUri"): (
        lambda name: f"https://{name}.vault.azure.net/"
    ),
    ("Microsoft.Web/sites", "properties", "defaultHostName"): (
        lambda name: f"{name}.azurewebsites.net"
    ),
    ("Microsoft.EventGrid/topics", "properties", "endpoint"): (
        lambda name: f"https://{name}.westeurope-1.eventgrid.azure.net/api/events"
    ),
    ("Microsoft.EventGrid/topics", "identity", "principalId"): lambda name: guid("topic", name),
    ("Microsoft.OperationalInsights/workspaces", "properties", "customerId"): (
        lambda name: guid("workspace", name)
    ),
    ("Microsoft.Insights/components", "properties", "ConnectionString"): (
        lambda name: f"InstrumentationKey={guid(name)};IngestionEndpoint=https://x.example/"
    ),
    ("Microsoft.ManagedIdentity/userAssignedIdentities", "properties", "principalId"): (
        lambda name: guid("principal", name)
    ),
    ("Microsoft.ManagedIdentity/userAssignedIdentities", "properties", "clientId"): (
        lambda name: guid("client", name)
    ),
}


def runtime_value(kind: str, section: str, name: str, resource: str) -> Any:
    """What a deployed resource of type `kind` says of itself. Raises `KeyError` if that is unknown
    here: the template then relies on something that nobody has checked."""
    return _RUNTIME[(kind, section, name)](resource)
