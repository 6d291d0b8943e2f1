"""The task hub of Durable Functions: host.json, settings, resources and roles name the same one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.infra.bicep import Template
from tests.infra.rules import HUB_SETTINGS, ROLE, ROLES, app_settings, of_type

HOST_JSON: Final = Path(__file__).parents[2] / "host.json"
SCHEDULER: Final = "Microsoft.DurableTask/schedulers"
OVERRIDE: Final = "AzureFunctionsJobHost__extensions__durableTask__storageProvider__"


def hub_faults(deployed: Template) -> Iterator[str]:
    """Either backend is whole, and nothing of the other one is there."""
    given = app_settings(deployed)
    hub = json.loads(HOST_JSON.read_text("utf-8"))["extensions"]["durableTask"]["hubName"]
    found = {name: given[name] for name in HUB_SETTINGS & given.keys()}
    schedulers = of_type(deployed, SCHEDULER)
    roles = {
        (ROLES.get(one.properties["roleDefinitionId"].rsplit("/", 1)[1]), one.scope)
        for one in of_type(deployed, ROLE)
    }
    if not schedulers:
        for part in ("queue", "table"):
            address = found.pop(f"AzureWebJobsStorage__{part}ServiceUri", "")
            account = address.removeprefix("https://").partition(".")[0]
            role = f"Storage {part.capitalize()} Data Contributor"
            if not any(one == role and scope.endswith(f"/{account}") for one, scope in roles):
                yield f"nobody has {role} on the account of the task hub"
        yield from (f"setting {name} without a scheduler" for name in sorted(found))
        return
    (scheduler,) = schedulers
    names = [one.name for one in of_type(deployed, f"{SCHEDULER}/taskHubs")]
    if names != [hub]:
        yield f"task hubs {names}, host.json has {hub}"
    if found.pop(f"{OVERRIDE}type", "") != "azureManaged":
        yield "host.json is not told to use the scheduler"
    connection = given.get(found.pop(f"{OVERRIDE}connectionStringName", ""), "")
    if f"Authentication=ManagedIdentity;ClientID={given['AZURE_CLIENT_ID']}" not in connection:
        yield "the scheduler is not called under the app's identity"
    if f"Endpoint=https://{scheduler.name}." not in connection:
        yield "the connection is not that of the scheduler"
    if ("Durable Task Data Contributor", scheduler.id) not in roles:
        yield "nobody may use the scheduler"
    if not all(scheduler.properties["ipAllowlist"]):
        yield "an empty entry in ipAllowlist"
    found.pop("DURABLE_TASK_SCHEDULER_CONNECTION_STRING", "")
    yield from (f"setting {name} beside a scheduler" for name in sorted(found))
    for role in ("Storage Queue Data Contributor", "Storage Table Data Contributor"):
        if role in {one for one, _ in roles}:
            yield f"{role} is not needed with a scheduler"
