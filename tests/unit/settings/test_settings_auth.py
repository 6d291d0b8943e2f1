"""Settings of authentication: never open in the cloud, every fault named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.bootstrap_auth import open_front
from orchestrator.domain.identity import ClaimRules
from orchestrator.settings import Settings, SettingsError, load_settings

AZURE = {
    "WEFT_BACKEND": "azure",
    "Cosmos__accountEndpoint": "https://acc.documents.azure.com:443/",
    "ServiceBus__fullyQualifiedNamespace": "ns.servicebus.windows.net",
    "Payloads__blobServiceUri": "https://acc.blob.core.windows.net",
    "COSMOS_DATABASE": "weft",
}
ONE = {"issuer": "https://login.test/v2.0", "audience": "api://weft"}
HOST = {"FUNCTIONS_WORKER_RUNTIME": "python", "WEFT_BACKEND": "local"}


def with_issuers(*entries: Any, **more: str) -> dict[str, str]:
    return {"WEFT_AUTH_ISSUERS": json.dumps(list(entries)), **more}


def fault(env: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(env)
    return str(caught.value)


def loaded(env: dict[str, str]) -> Settings:
    return load_settings(env)


@pytest.mark.parametrize("more", [{}, {"WEFT_AUTH_EASY": "false"}, {"WEFT_AUTH_ISSUERS": "[]"}])
def test_azure_without_a_way_to_tell_who_asks_is_refused(more: dict[str, str]) -> None:
    assert "WEFT_AUTH_ISSUERS: missing" in fault(AZURE | more)


@pytest.mark.parametrize(
    "more", [{"WEFT_AUTH_EASY": "true"}, with_issuers(ONE), {"WEFT_AUTH_LOCAL": "true"}]
)
def test_azure_with_one_is_never_open(more: dict[str, str]) -> None:
    assert not loaded(AZURE | more).auth_development


def test_the_embedded_mode_is_open_only_as_it_comes() -> None:
    assert loaded({}).auth_development
    for more in ({"WEFT_AUTH_EASY": "1"}, with_issuers(ONE), {"WEFT_AUTH_LOCAL": "1"}):
        assert not loaded(more).auth_development


def test_under_a_functions_host_nobody_knows_who_reaches_the_port() -> None:
    assert "WEFT_AUTH_LOCAL: missing under a Functions host" in fault(HOST)
    assert not loaded(HOST | {"WEFT_AUTH_LOCAL": "true"}).auth_development


def test_a_local_key_proves_nothing_in_azure() -> None:
    env = {"WEBSITE_INSTANCE_ID": "x", "WEFT_AUTH_LOCAL": "true"}
    assert "proves nothing in Azure" in fault(AZURE | env)


def test_a_local_key_beside_an_issuer_is_refused() -> None:
    assert "remove one or the other" in fault(with_issuers(ONE, WEFT_AUTH_LOCAL="true"))


def test_an_issuer_with_everything() -> None:
    entry = {
        "issuer": "https://login.microsoftonline.com/{tenantid}/v2.0",
        "audience": ["api://weft", "guid"],
        "jwks": "https://login.test/keys?p=1",
        "alias": "corp",
        "claims": {"subject": "oid", "tenants": "tid"},
        "tenants": {"guid-1": "acme"},
        "roles": {"Weft.Operate": "operator", "Weft.Root": "acme/admin"},
    }
    (found,) = loaded(with_issuers(entry)).auth_issuers
    assert found.audiences == ("api://weft", "guid")
    assert found.rules == ClaimRules(
        subject="oid",
        tenants="tid",
        alias="corp",
        tenant_map={"guid-1": "acme"},
        role_map={"Weft.Operate": "operator", "Weft.Root": "acme/admin"},
    )


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (7, "[0]: must be an object"),
        ({}, "[0].issuer: must be a text"),
        ({"issuer": ONE["issuer"]}, "[0].audience: must be a text"),
        ({**ONE, "issuer": "http://login.test"}, "[0].issuer: must be an https URL"),
        ({**ONE, "issuer": "https://a.test/?x=1"}, "[0].issuer: must be an https URL"),
        ({**ONE, "issuer": "https://u:p@a.test"}, "[0].issuer: must be an https URL"),
        ({**ONE, "audience": []}, "[0].audience"),
        ({**ONE, "audience": [""]}, "[0].audience"),
        ({**ONE, "jwks": "http://a.test/keys"}, "[0].jwks: must be an https URL"),
        ({**ONE, "alias": "A b"}, "[0].alias"),
        ({**ONE, "algorithms": ["HS256"]}, "unknown algorithms; known: issuer, audience"),
        ({**ONE, "claims": {"subjekt": "oid"}}, "[0].claims: unknown subjekt"),
        ({**ONE, "claims": {"subject": 7}}, "[0].claims.subject: must be a text"),
        ({**ONE, "tenant": "A/B"}, "'A/B' is no tenant"),
        ({**ONE, "tenant": "a", "tenants": {"x": "b"}}, "exclude each other"),
        ({**ONE, "tenants": ["a"]}, "[0].tenants: must be an object of texts"),
        ({**ONE, "roles": {"x": "owner"}}, "'owner' is no role; known: viewer"),
        ({**ONE, "roles": {"x": "_a/admin"}}, "'_a/admin' is no role"),
        ({**ONE, "issuer": "https://login.test/{tenantid}"}, "needs a map"),
    ],
)
def test_a_fault_of_an_issuer_is_named(entry: Any, expected: str) -> None:
    found = fault(with_issuers(entry))
    assert "WEFT_AUTH_ISSUERS: " in found
    assert expected in found


@pytest.mark.parametrize("text", ["", "{}", "[", "https://login.test", "7"])
def test_what_is_no_list_of_issuers(text: str) -> None:
    assert "WEFT_AUTH_ISSUERS: " in fault({"WEFT_AUTH_ISSUERS": text})


def test_several_issuers_need_aliases_of_their_own() -> None:
    other = {**ONE, "issuer": "https://other.test"}
    assert "alias" in fault(with_issuers(ONE, other))
    assert "listed twice" in fault(with_issuers({**ONE, "alias": "a"}, {**ONE, "alias": "b"}))
    assert len(loaded(with_issuers(ONE, {**other, "alias": "b"})).auth_issuers) == 2


def test_claims_of_the_platforms_header() -> None:
    found = loaded({"WEFT_AUTH_EASY": "1", "WEFT_AUTH_EASY_CLAIMS": '{"claims": {"roles": "r"}}'})
    assert found.auth_easy_claims == ClaimRules(roles="r")
    assert "$.claims: unknown x" in fault({"WEFT_AUTH_EASY_CLAIMS": '{"claims": {"x": "r"}}'})
    assert "must be an object" in fault({"WEFT_AUTH_EASY_CLAIMS": "[]"})


@pytest.mark.parametrize("bad", ["", "_platform", "A", "a/b"])
def test_the_tenant_of_events_is_a_tenant(bad: str) -> None:
    assert "WEFT_EVENTS_TENANT" in fault({"WEFT_EVENTS_TENANT": bad})
    assert loaded({"WEFT_EVENTS_TENANT": "acme"}).events_tenant == "acme"


async def test_the_front_follows_the_settings() -> None:
    class Now:
        def now(self) -> int:
            return 0

        async def sleep(self, ms: int) -> None: ...

    assert open_front(loaded({}), clock=Now()).warning
    for env in ({"WEFT_AUTH_LOCAL": "1"}, with_issuers(ONE), AZURE | {"WEFT_AUTH_EASY": "1"}):
        assert not open_front(loaded(env), clock=Now()).warning
