"""Settings: one message with everything that is wrong, and no value in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.settings import Settings, SettingsError, load_settings

ROOT = Path(__file__).parents[3]
ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"

IDENTITY = {
    "WEFT_BACKEND": "azure",
    "Cosmos__accountEndpoint": "https://acc.documents.azure.com:443/",
    "ServiceBus__fullyQualifiedNamespace": "ns.servicebus.windows.net",
    "Payloads__blobServiceUri": "https://acc.blob.core.windows.net",
    "COSMOS_DATABASE": "weft",
    "WEFT_AUTH_EASY": "true",
}
IN_AZURE = IDENTITY | {
    "WEBSITE_INSTANCE_ID": "abc",
    "AZURE_CLIENT_ID": ID,
    "Cosmos__credential": "managedidentity",
    "Cosmos__clientId": ID,
    "ServiceBus__credential": "managedidentity",
    "ServiceBus__clientId": ID,
    "KeyVault__vaultUri": "https://v.vault.azure.net/",
}
KEY = "c2VjcmV0LWtleQ=="
EMULATORS = {
    "WEFT_BACKEND": "azure",
    "Cosmos": f"AccountEndpoint=http://localhost:8081/;AccountKey={KEY};",
    "ServiceBus": (
        f"Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey={KEY};"
        "UseDevelopmentEmulator=true;"
    ),
    "Payloads": "UseDevelopmentStorage=true",
    "COSMOS_DATABASE": "weft",
    "WEFT_AUTH_LOCAL": "true",
}


def faults(env: dict[str, str]) -> list[str]:
    """The lines of the one message."""
    with pytest.raises(SettingsError) as caught:
        load_settings(env)
    head, *lines = str(caught.value).split("\n  ")
    assert head == "settings are not usable:"
    return lines


def without(env: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in names}


# --- the backend ----------------------------------------------------------------------------------


def test_outside_a_functions_host_the_default_is_local() -> None:
    settings = load_settings({})
    assert (settings.backend, settings.azure) == ("local", None)


@pytest.mark.parametrize("host", ["FUNCTIONS_WORKER_RUNTIME", "WEBSITE_INSTANCE_ID"])
def test_under_a_functions_host_the_backend_must_be_named(host: str) -> None:
    (fault,) = faults({host: "x"})
    assert fault.startswith("WEFT_BACKEND: missing")


def test_local_is_refused_in_azure_but_not_under_the_core_tools() -> None:
    (fault,) = faults({"WEFT_BACKEND": "local", "WEBSITE_INSTANCE_ID": "x"})
    assert "disk of one instance" in fault
    env = {"WEFT_BACKEND": "local", "FUNCTIONS_WORKER_RUNTIME": "python", "WEFT_AUTH_LOCAL": "1"}
    assert load_settings(env).backend == "local"


def test_local_ignores_azure_settings_whatever_they_say() -> None:
    env = EMULATORS | without(IDENTITY, "WEFT_AUTH_EASY")
    env |= {"WEFT_BACKEND": "local", "ServiceBus__clientId": "?"}
    assert load_settings(env).azure is None


# --- complete settings ----------------------------------------------------------------------------


def test_identity_settings_in_azure() -> None:
    azure = load_settings(IN_AZURE).azure
    assert azure is not None
    assert azure.cosmos_endpoint == IN_AZURE["Cosmos__accountEndpoint"]
    assert azure.bus_namespace == IN_AZURE["ServiceBus__fullyQualifiedNamespace"]
    assert azure.payloads_uri == IN_AZURE["Payloads__blobServiceUri"]
    assert azure.vault_uri == IN_AZURE["KeyVault__vaultUri"]
    assert (azure.cosmos_database, azure.payloads_container) == ("weft", "payloads")
    assert (azure.client_id, azure.managed_identity) == (ID, True)


def test_a_developers_machine_and_a_system_assigned_identity_need_no_client_id() -> None:
    developer = load_settings(IDENTITY).azure
    system = load_settings(IDENTITY | {"WEBSITE_INSTANCE_ID": "x"}).azure
    assert developer is not None
    assert system is not None
    assert (developer.managed_identity, developer.client_id) == (False, "")
    assert (system.managed_identity, system.client_id) == (True, "")


def test_emulators_by_connection_strings_which_are_never_shown() -> None:
    settings = load_settings(EMULATORS)
    azure = settings.azure
    assert azure is not None
    assert azure.cosmos_connection.get_secret_value() == EMULATORS["Cosmos"]
    assert azure.bus_connection.get_secret_value() == EMULATORS["ServiceBus"]
    assert KEY not in repr(settings)


# --- faults ---------------------------------------------------------------------------------------


def test_everything_that_is_missing_is_one_message() -> None:
    lines = faults({"WEFT_BACKEND": "azure", "WEFT_LEASE_MS": "1", "WEFT_SILENCE_MS": "soon"})
    assert [line.split(":")[0] for line in lines] == [
        "Cosmos__accountEndpoint",
        "ServiceBus__fullyQualifiedNamespace",
        "Payloads__blobServiceUri",
        "COSMOS_DATABASE",
        "WEFT_AUTH_ISSUERS",
        "WEFT_LEASE_MS",
        "WEFT_SILENCE_MS",
    ]
    assert all("set it" in line for line in lines[:4])


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("Cosmos", "Cosmos__accountEndpoint"),
        ("ServiceBus", "ServiceBus__fullyQualifiedNamespace"),
        ("Payloads", "Payloads__blobServiceUri"),
    ],
)
def test_connection_string_and_identity_contradict_each_other(name: str, address: str) -> None:
    (fault,) = faults(EMULATORS | {address: IDENTITY[address]})
    assert fault.startswith(f"{name} and {address}: both are set")
    (fault,) = faults(EMULATORS | {f"{name}__credential": "managedidentity"})
    assert fault.startswith(f"{name}__credential: set beside the connection string")


CLOUD_COSMOS = f"AccountEndpoint=https://acc.documents.azure.com:443/;AccountKey={KEY}"
CLOUD_BUS = f"Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey={KEY}"


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        ({"Cosmos": CLOUD_COSMOS}, "Cosmos", "no keys are used"),
        ({"Cosmos": "x"}, "Cosmos", "no keys are used"),
        ({"ServiceBus": CLOUD_BUS}, "ServiceBus", "no keys are used"),
        ({"Payloads": f"AccountName=a;AccountKey={KEY}"}, "Payloads", "no keys are used"),
        ({"COSMOS_DATABASE": "a/b"}, "COSMOS_DATABASE", "without / "),
        ({"PAYLOADS_CONTAINER": "Payloads"}, "PAYLOADS_CONTAINER", "a-z"),
        ({"PAYLOADS_CONTAINER": "a--b"}, "PAYLOADS_CONTAINER", "single hyphens"),
        ({"KeyVault__vaultUri": "v.vault.azure.net"}, "KeyVault__vaultUri", "https://HOST/"),
        ({"AZURE_CLIENT_ID": "my-identity"}, "AZURE_CLIENT_ID", "GUID"),
    ],
)
def test_unusable_values_are_named_with_their_mend(
    change: dict[str, str], name: str, words: str
) -> None:
    (fault,) = faults(EMULATORS | change)
    assert fault.startswith(f"{name}: ")
    assert words in fault


@pytest.mark.parametrize(
    "address",
    [
        "http://acc.documents.azure.com/",
        "acc.documents.azure.com",
        "https://acc.documents.azure.com/path",
        f"https://k:{KEY}@acc.documents.azure.com/",
        "https://acc.documents.azure.com/?sig=1",
        "https://acc:port/",
        CLOUD_COSMOS,
    ],
)
def test_a_service_address_is_https_and_nothing_else(address: str) -> None:
    (fault,) = faults(IDENTITY | {"Cosmos__accountEndpoint": address})
    assert fault.startswith("Cosmos__accountEndpoint: ")
    assert KEY not in fault


@pytest.mark.parametrize("host", ["sb://ns.servicebus.windows.net", "ns", "ns.x.net/", CLOUD_BUS])
def test_a_namespace_is_a_bare_host_name(host: str) -> None:
    (fault,) = faults(IDENTITY | {"ServiceBus__fullyQualifiedNamespace": host})
    assert "NAMESPACE.servicebus.windows.net" in fault
    assert KEY not in fault


def test_plain_http_is_for_this_machine_only() -> None:
    assert load_settings(IDENTITY | {"Cosmos__accountEndpoint": "http://127.0.0.1:1/"}).azure


def test_two_identities_in_one_process_contradict_each_other() -> None:
    (fault,) = faults(IN_AZURE | {"ServiceBus__clientId": OTHER_ID})
    assert fault.startswith("AZURE_CLIENT_ID, Cosmos__clientId, ServiceBus__clientId: not the same")
    assert load_settings(IN_AZURE | {"ServiceBus__clientId": ID.upper()}).azure


def test_a_client_id_without_credential_would_be_another_identity() -> None:
    (fault,) = faults(without(IN_AZURE, "Cosmos__credential"))
    assert fault.startswith("Cosmos__credential: missing beside Cosmos__clientId")
    (fault,) = faults(IN_AZURE | {"Cosmos__credential": "ManagedIdentity"})
    assert fault.startswith("Cosmos__credential: must be managedidentity")


def test_a_trigger_must_not_be_another_identity_than_the_clients() -> None:
    (fault,) = faults(without(IN_AZURE, "ServiceBus__credential", "ServiceBus__clientId"))
    assert fault.startswith("ServiceBus__clientId: missing beside AZURE_CLIENT_ID")
    # On a developer's machine AZURE_CLIENT_ID is a service principal's, which both sides read.
    assert load_settings(IDENTITY | {"AZURE_CLIENT_ID": ID}).azure


def test_the_clients_take_the_triggers_identity() -> None:
    azure = load_settings(without(IN_AZURE, "AZURE_CLIENT_ID")).azure
    assert azure is not None
    assert azure.client_id == ID


def test_wrong_values_are_never_shown() -> None:
    env = dict.fromkeys(IN_AZURE | EMULATORS | {"PAYLOADS_CONTAINER": ""}, KEY)
    env |= {"WEFT_BACKEND": "azure", "WEFT_LEASE_MS": KEY, "WEFT_WORKER": KEY * 9}
    message = "\n".join(faults(env))
    assert KEY not in message
    assert len(message.splitlines()) > 10


# --- what the repository says ---------------------------------------------------------------------


def sample() -> dict[str, Any]:
    return json.loads((ROOT / "local.settings.sample.json").read_text())


def test_the_sample_settings_start_the_app_on_emulators() -> None:
    values = sample()["Values"]
    azure = load_settings(values).azure
    assert azure is not None
    assert azure.cosmos_connection.get_secret_value()
    assert azure.bus_connection.get_secret_value()
    assert values["FUNCTIONS_WORKER_RUNTIME"] == "python"
    assert values["AzureWebJobsStorage"] == "UseDevelopmentStorage=true"
    assert sample()["IsEncrypted"] is False


def test_every_setting_has_a_description() -> None:
    for name, field in Settings.model_fields.items():
        if name not in ("azure", "telemetry"):
            assert field.description, name
