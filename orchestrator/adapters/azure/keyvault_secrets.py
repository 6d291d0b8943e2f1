"""Tenants' secrets from Key Vault. `engine/secret_book` remembers them, nothing does here.

Key Vault ignores case in names and knows only letters, digits and hyphens. Tenants and names of
ours differ in more than that, so they are encoded: with mere replacement `a_b`'s `c` and `a`'s
`b_c` would be one secret, given to the wrong tenant.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.keyvault.secrets.aio import SecretClient

from orchestrator.ports import SecretNotFound, Throttled, Unavailable

MAX_NAME_CHARS: Final = 127  # Key Vault

_TENANT: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789")
_NAME: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def secret_name(tenant: str, name: str) -> str:
    """What a secret is called in Key Vault: `acme-eu`'s `API_KEY` is `weft-acme--eu-x-API--KEY`.

    Plain are, in a tenant, `[a-z0-9]`, in a name `[A-Z0-9]`; `--` stands for the tenant's `-` and
    the name's `_`; any other byte is `-` and two hexadecimal digits; `-x-` lies between them. Read
    from the left this has one meaning only, in either case. Longer than Key Vault allows: a hash.
    """
    full = f"weft-{_encode(tenant, _TENANT, '-')}-x-{_encode(name, _NAME, '_')}"
    if len(full) <= MAX_NAME_CHARS:
        return full
    # Nothing encoded can look like this: it has no `-x-`.
    return f"weft-sha256-{hashlib.sha256(full.encode()).hexdigest()}"


class KeyVaultSecrets:
    """`Secrets` of one vault. Values are never logged."""

    def __init__(self, *, vault_url: str, credential: AsyncTokenCredential, **options: Any) -> None:
        """`credential` is not closed here. `options`: for the SDK client. Touches no network."""
        self._client = SecretClient(vault_url, credential, **options)

    async def get(self, tenant: str, name: str) -> str:
        """Raises `SecretNotFound`, also for a disabled secret; `Throttled`, `Unavailable`."""
        value = await self._ask(secret_name(tenant, name)) if tenant and name else None
        if value is None:
            raise SecretNotFound(f"tenant {tenant!r:.80} has no secret {name!r:.80}")
        return value

    async def ping(self) -> None:
        """See `ports_telemetry.Pinging`. The answer that there is no such secret is an answer."""
        await self._ask("weft-health")

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    async def _ask(self, name: str) -> str | None:
        try:
            return (await self._client.get_secret(name)).value
        except ResourceNotFoundError:
            return None
        except HttpResponseError as error:
            if not _is_disabled(error):
                raise _translated(error) from error
            return None
        except AzureError as error:
            raise Unavailable(f"Key Vault: {type(error).__name__}") from error


def _encode(text: str, plain: frozenset[int], hyphenated: str) -> str:
    special = ord(hyphenated)
    return "".join(
        [
            chr(byte) if byte in plain else "--" if byte == special else f"-{byte:02x}"
            for byte in text.encode("utf-8", "surrogatepass")
        ]
    )


def _is_disabled(error: HttpResponseError) -> bool:
    """Key Vault answers 403 for a disabled or expired secret, as for a missing role; only the inner
    code tells them apart, and a missing role must not look like a missing secret."""
    inner = getattr(error.error, "innererror", None) or {}
    return error.status_code == 403 and inner.get("code") in ("SecretDisabled", "ForbiddenByExpiry")


def _translated(error: HttpResponseError) -> Throttled | Unavailable:
    if error.status_code == 429:
        return Throttled("Key Vault answers 429", retry_after_ms=1_000)
    return Unavailable(f"Key Vault answers {error.status_code}")
