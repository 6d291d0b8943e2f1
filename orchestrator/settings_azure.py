"""The Azure half of the settings, under exactly the names that the Functions extensions read.

Triggers and SDK clients share these app settings. With names of our own, an app could receive from
one Service Bus namespace and send to another, and both halves would look healthy.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr

MANAGED_IDENTITY: Final = "managedidentity"
"""The one value of `<connection>__credential` that the Functions extensions know."""


class AzureSettings(BaseModel):
    """Where the Azure services are, and as whom to call them.

    For each of Cosmos DB, Service Bus and Blob Storage either the address (calls are made under an
    identity) or the connection string is set, never both: `settings_rules` sees to it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    cosmos_endpoint: str = Field(
        default="",
        alias="Cosmos__accountEndpoint",
        description="Cosmos DB account, called by identity: `https://ACCOUNT.documents.azure.com/`",
    )
    cosmos_connection: SecretStr = Field(
        default=SecretStr(""),
        alias="Cosmos",
        description="Connection string of the Cosmos DB emulator, in place of the endpoint",
    )
    cosmos_database: str = Field(
        alias="COSMOS_DATABASE",
        description="Database with Weft's containers",
    )
    bus_namespace: str = Field(
        default="",
        alias="ServiceBus__fullyQualifiedNamespace",
        description="Service Bus, called by identity: `NAMESPACE.servicebus.windows.net`",
    )
    bus_connection: SecretStr = Field(
        default=SecretStr(""),
        alias="ServiceBus",
        description="Connection string of the Service Bus emulator, in place of the namespace",
    )
    payloads_uri: str = Field(
        default="",
        alias="Payloads__blobServiceUri",
        description="Blob Storage, called by identity: `https://ACCOUNT.blob.core.windows.net/`",
    )
    payloads_connection: SecretStr = Field(
        default=SecretStr(""),
        alias="Payloads",
        description="`UseDevelopmentStorage=true` for Azurite, in place of the URI",
    )
    payloads_container: str = Field(
        default="payloads",
        alias="PAYLOADS_CONTAINER",
        description="Blob container of large payloads; it must exist",
    )
    vault_uri: str = Field(
        default="",
        alias="KeyVault__vaultUri",
        description="Key Vault with the tenants' secrets: `https://VAULT.vault.azure.net/`. Left "
        "out: secrets come from `WEFT_SECRET_…` and `WEFT_SECRETS_FILE`",
    )
    client_id: str = Field(
        default="",
        alias="AZURE_CLIENT_ID",
        description="Client id of the user-assigned identity. Left out: the system-assigned one",
    )
    managed_identity: bool = False
    """Run as a managed identity (Azure), not as whoever is signed in (a developer's machine)."""


IDENTITY_SETTINGS: Final = {
    "__credential": f"`{MANAGED_IDENTITY}`, whenever `__clientId` is set",
    "__clientId": "The value of `AZURE_CLIENT_ID` again: the extension looks for it here",
}
"""Read by the Functions extensions after the connection's name (`Cosmos`, `ServiceBus`); checked
here so that triggers and SDK clients are the same identity."""
