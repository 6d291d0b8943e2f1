"""Tenants' secrets from Key Vault, read when used and remembered for a few minutes.

Key Vault ignores case in names and knows only letters, digits and hyphens. Tenants and names of
ours differ in more than that, so they are encoded: with mere replacement `a_b`'s `c` and `a`'s
`b_c` would be one secret, given to the wrong tenant.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final

from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.keyvault.secrets.aio import SecretClient

from orchestrator.ports import Clock, SecretNotFound, Throttled, Unavailable

KEEP_MS: Final = 5 * 60 * 1000
"""How long a value is used without asking again: a rotated secret is taken up within this."""
KEEP_MISSING_MS: Final = 30 * 1000
"""The same for a secret that does not exist: it is usually created just then."""
MAX_KEPT: Final = 1_000
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
    """`Secrets` of one vault. Values are kept in memory only, never logged."""

    def __init__(
        self, *, vault_url: str, credential: AsyncTokenCredential, clock: Clock, **options: Any
    ) -> None:
        """`credential` is not closed here. `options`: for the SDK client. Touches no network."""
        self._client = SecretClient(vault_url, credential, **options)
        self._clock = clock
        self._kept: dict[str, tuple[int, str | None]] = {}  # until (epoch ms), value
        self._asking: dict[str, asyncio.Task[str | None]] = {}

    async def get(self, tenant: str, name: str) -> str:
        """Raises `SecretNotFound`, also for a disabled secret; `Throttled`, `Unavailable`."""
        value = None
        if tenant and name:
            value = await self._remembered(secret_name(tenant, name))
        if value is None:
            raise SecretNotFound(f"tenant {tenant!r:.80} has no secret {name!r:.80}")
        return value

    async def ping(self) -> None:
        """See `ports_telemetry.Pinging`. The answer that there is no such secret is an answer."""
        await self._ask("weft-health")

    async def close(self) -> None:
        """Release the connections, forget all values."""
        for task in self._asking.values():
            task.cancel()
        self._kept.clear()
        await self._client.close()

    async def _remembered(self, name: str) -> str | None:
        kept = self._kept.get(name)
        if kept is not None and self._clock.now() < kept[0]:
            return kept[1]
        task = self._asking.get(name)
        if task is None:
            # One question for all that wait: a wide map would ask a thousand times at once.
            task = self._asking[name] = asyncio.create_task(self._ask(name))
            task.add_done_callback(lambda done: self._answered(name, done))
        return await asyncio.shield(task)

    def _answered(self, name: str, task: asyncio.Task[str | None]) -> None:
        self._asking.pop(name, None)
        if not task.cancelled():
            task.exception()  # looked at, in case everyone who waited has given up

    async def _ask(self, name: str) -> str | None:
        try:
            value = (await self._client.get_secret(name)).value
        except ResourceNotFoundError:
            value = None
        except HttpResponseError as error:
            if not _is_disabled(error):
                raise _translated(error) from error
            value = None
        except AzureError as error:
            raise Unavailable(f"Key Vault: {type(error).__name__}") from error
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        keep_ms = KEEP_MISSING_MS if value is None else KEEP_MS
        self._kept[name] = (self._clock.now() + keep_ms, value)
        return value


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
