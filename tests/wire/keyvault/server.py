"""Key Vault as far as `KeyVaultSecrets` uses it: Get Secret, after the REST reference.

A request without a token is 401 with a `WWW-Authenticate` challenge that names tenant and resource;
names ignore case and are 1 to 127 of letters, digits and hyphens; missing is 404 `SecretNotFound`;
disabled is 403 `Forbidden` with the inner code `SecretDisabled`.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

from aiohttp import web

from tests.wire.http_service import TOKEN, HttpService

_NAME: Final = re.compile(r"[0-9A-Za-z-]{1,127}")
_CHALLENGE: Final = (
    'Bearer authorization="https://login.example/00000000-0000-0000-0000-000000000001", '
    'resource="https://vault.azure.net"'
)


class KeyVaultServer(HttpService):
    """One vault. `set` what it holds."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(tls)
        self._values: dict[str, str] = {}
        self.disabled: set[str] = set()
        self.route("GET", "/secrets/{name}/", self._get)
        self.route("GET", "/secrets/{name}", self._get)

    def set(self, name: str, value: str) -> None:
        """Create. Raises `ValueError` for a name that Key Vault refuses or has."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"Key Vault has no name {name!r}")
        if name.lower() in self._values:
            raise ValueError(f"{name!r} would overwrite another secret")
        self._values[name.lower()] = value

    def replace(self, name: str, value: str) -> None:
        """A new version of a secret that exists."""
        del self._values[name.lower()]
        self.set(name, value)

    async def _get(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "Unauthorized", headers={"WWW-Authenticate": _CHALLENGE})
        if not _NAME.fullmatch(name):
            return _error(400, "BadParameter")
        if name.lower() in self.disabled:
            return _error(403, "Forbidden", inner="SecretDisabled")
        value = self._values.get(name.lower())
        if value is None:
            return _error(404, "SecretNotFound")
        return web.json_response(
            {
                "value": value,
                "id": f"{self.url}/secrets/{name}/0123456789abcdef0123456789abcdef",
                "attributes": {"enabled": True, "created": 1, "updated": 1},
            }
        )


def _error(
    status: int, code: str, *, inner: str = "", headers: dict[str, str] | None = None
) -> web.Response:
    error: dict[str, object] = {"code": code, "message": "as asked"}
    if inner:
        error["innererror"] = {"code": inner}
    return web.json_response({"error": error}, status=status, headers=headers)
