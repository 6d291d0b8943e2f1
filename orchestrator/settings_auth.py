"""`WEFT_AUTH_…`: who may say who asks. Faults are told at start, like those of all settings.

An issuer is written as JSON, because it has a dozen parts and there may be several:

    [{"issuer": "https://login.microsoftonline.com/DIRECTORY/v2.0", "audience": "api://weft",
      "claims": {"subject": "oid", "tenants": "tid"}, "tenants": {"DIRECTORY": "acme"}}]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

import orjson
from pydantic import AfterValidator, BeforeValidator

from orchestrator.domain.authz import ROLES
from orchestrator.domain.identity import ClaimRules, Issuer, is_tenant
from orchestrator.domain.jsontypes import Json
from orchestrator.settings_rules import CLOUD_HOST, FUNCTIONS_HOST, LOOPBACK

DIRECTORY: Final = "{tenantid}"
_CLAIMS: Final = ("subject", "name", "tenants", "roles", "scopes", "groups")
_RULES: Final = ("claims", "tenant", "tenants", "roles")
_ISSUER: Final = ("issuer", "audience", "jwks", "alias", *_RULES)
_ALIAS: Final = re.compile(r"[a-z0-9-]{1,30}")


def auth_faults(env: Mapping[str, str]) -> list[str]:
    """What is wrong between the settings: an app in the cloud must never be open."""
    found: list[str] = []
    chosen = {
        name: env.get(f"WEFT_AUTH_{name}", "").strip().lower() not in ("", "false", "0", "no", "[]")
        for name in ("ISSUERS", "EASY", "LOCAL")
    }
    if env.get("WEFT_BACKEND") == "azure" and not any(chosen.values()):
        found.append(
            "WEFT_AUTH_ISSUERS: missing with WEFT_BACKEND=azure, so nobody could be told from "
            "anybody; set it, or WEFT_AUTH_EASY=true behind App Service Authentication "
            "(docs/security.md)"
        )
    under_host = any(name in env for name in FUNCTIONS_HOST) and CLOUD_HOST not in env
    if env.get("WEFT_BACKEND") == "local" and under_host and not any(chosen.values()):
        found.append(
            "WEFT_AUTH_LOCAL: missing under a Functions host, of which nobody knows who can reach "
            "its port; set it to true and send a token (weft token --data, as WEFT_DATA_DIR)"
        )
    if chosen["LOCAL"] and CLOUD_HOST in env:
        found.append("WEFT_AUTH_LOCAL: a key on the disk proves nothing in Azure; remove it")
    if chosen["LOCAL"] and (chosen["ISSUERS"] or chosen["EASY"]):
        found.append("WEFT_AUTH_LOCAL: is for trying without an issuer; remove one or the other")
    return found


def parse_issuers(value: Any) -> Any:
    """The JSON text as a tuple of `Issuer`. Raises `ValueError` with every fault; anything but
    text is left to pydantic."""
    if not isinstance(value, str):
        return value
    entries = _json(value)
    if not isinstance(entries, list):
        raise ValueError("must be a JSON list of objects")
    faults: list[str] = []
    issuers = [_issuer(entry, f"[{at}]", faults) for at, entry in enumerate(entries)]
    names = [one.issuer for one in issuers]
    faults += [
        f"{name!r} is listed twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    aliases = [one.rules.alias for one in issuers]
    if len(set(aliases)) < len(aliases):
        faults.append(
            "each of several issuers needs an `alias` of its own: they may give one "
            "name to two people"
        )
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(issuers)


def parse_easy_claims(value: Any) -> Any:
    """The JSON text as `ClaimRules`. Raises `ValueError` with every fault."""
    if not isinstance(value, str):
        return value
    entry, faults = _json(value), list[str]()
    rules = _rules(_known(entry, _RULES, "$", faults), "$", faults)
    if faults:
        raise ValueError("; ".join(faults))
    return rules


def _check_tenant(value: str) -> str:
    if not is_tenant(value):
        raise ValueError("must be 1 to 63 of a-z, 0-9 and -")
    return value


Issuers: TypeAlias = Annotated[tuple[Issuer, ...], BeforeValidator(parse_issuers)]
EasyClaims: TypeAlias = Annotated[ClaimRules, BeforeValidator(parse_easy_claims)]
"""Claims of the platform's header."""
Tenant: TypeAlias = Annotated[str, AfterValidator(_check_tenant)]


def _json(text: str) -> Json:
    try:
        return orjson.loads(text or "null")
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg} at character {error.pos}") from None


def _known(entry: Json, names: Sequence[str], at: str, faults: list[str]) -> dict[str, Json]:
    if not isinstance(entry, dict):
        faults.append(f"{at}: must be an object")
        return {}
    unknown = sorted(set(entry) - set(names))
    if unknown:
        faults.append(f"{at}: unknown {', '.join(unknown)}; known: {', '.join(names)}")
    return entry


def _issuer(entry: Json, at: str, faults: list[str]) -> Issuer:
    given = _known(entry, _ISSUER, at, faults)
    issuer = _text(given, "issuer", at, faults, required=True)
    jwks = _text(given, "jwks", at, faults)
    if issuer and not _is_url(issuer.replace(DIRECTORY, "x")):
        faults.append(f"{at}.issuer: must be an https URL without query, as in the token's iss")
    if jwks and not _is_url(jwks, query=True):
        faults.append(f"{at}.jwks: must be an https URL")
    audience = given.get("audience")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or not audiences or not all(map(_is_name, audiences)):
        faults.append(f"{at}.audience: must be a text, or a list of texts, as in the token's aud")
        audiences = []
    rules = _rules(given, at, faults)
    alias = _text(given, "alias", at, faults)
    if alias and not _ALIAS.fullmatch(alias):
        faults.append(f"{at}.alias: must be 1 to 30 of a-z, 0-9 and -")
    if DIRECTORY in issuer and not rules.tenant_map:
        faults.append(
            f"{at}.tenants: an issuer of several directories needs a map from each "
            "directory's id to a tenant"
        )
    return Issuer(
        issuer=issuer,
        audiences=tuple(map(str, audiences)),
        jwks=jwks,
        rules=replace(rules, alias=alias),
    )


def _rules(given: Mapping[str, Json], at: str, faults: list[str]) -> ClaimRules:
    claims = _known(given.get("claims", {}), _CLAIMS, f"{at}.claims", faults)
    named = {
        name: _text(claims, name, f"{at}.claims", faults) for name in claims if name in _CLAIMS
    }
    tenant = _text(given, "tenant", at, faults) or None
    tenants = _map(given, "tenants", at, faults)
    roles = _map(given, "roles", at, faults)
    for name in [*tenants.values(), *filter(None, [tenant])]:
        if not is_tenant(name):
            faults.append(f"{at}: {name!r} is no tenant; 1 to 63 of a-z, 0-9 and -")
    for role in roles.values():
        where, slash, name = role.rpartition("/")
        if name not in ROLES or (slash and not is_tenant(where)):
            faults.append(
                f"{at}.roles: {role!r} is no role; known: {', '.join(ROLES)}, or TENANT/ROLE"
            )
    if tenant and tenants:
        faults.append(f"{at}: `tenant` and `tenants` exclude each other")
    return ClaimRules(
        **{name: text for name, text in named.items() if text},
        tenant=tenant,
        tenant_map=tenants,
        role_map=roles,
    )


def _map(given: Mapping[str, Json], name: str, at: str, faults: list[str]) -> dict[str, str]:
    value = given.get(name, {})
    if not isinstance(value, dict) or not all(map(_is_name, [*value, *value.values()])):
        faults.append(f"{at}.{name}: must be an object of texts")
        return {}
    return {key: str(text) for key, text in value.items()}


def _text(
    given: Mapping[str, Json], name: str, at: str, faults: list[str], *, required: bool = False
) -> str:
    value = given.get(name)
    if value is None and not required:
        return ""
    if isinstance(value, str) and _is_name(value):
        return value
    faults.append(f"{at}.{name}: must be a text")
    return ""


def _is_name(value: Json) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _is_url(text: str, *, query: bool = False) -> bool:
    """https; plain http on this machine only, where tests are."""
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError:
        return False
    secure = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    clean = not (parts.fragment or parts.username or parts.password)
    return secure and bool(host) and clean and (query or not parts.query)
