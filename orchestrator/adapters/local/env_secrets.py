"""Secrets from the environment or from a private file. For one machine; Azure has Key Vault.

`WEFT_SECRET_TENANT_NAME` works for tenants of `[a-z0-9]` only: with `_` or `-` in a tenant's name
one variable could belong to two tenants, and a secret would be given to the wrong one. All others
use the file, `{"tenant": {"name": "value"}}`, which nobody but its owner may be able to read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from orchestrator.ports import SecretNotFound

PREFIX: Final = "WEFT_SECRET_"

_TENANT: Final = re.compile(r"[a-z0-9]+")
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")


class SecretsFileError(Exception):
    """The secrets file is missing, readable by others, or malformed. Never shows its content."""


class EnvSecrets:
    """`Secrets` of the environment first, then of the file."""

    def __init__(
        self, environ: Mapping[str, str] | None = None, file: str | Path | None = None
    ) -> None:
        """Reads the file at once, so that a fault is seen at start: raises `SecretsFileError`."""
        self._environ = os.environ if environ is None else environ
        self._file = {} if file is None else _load(Path(file))

    async def get(self, tenant: str, name: str) -> str:
        """Raises `SecretNotFound`."""
        if _TENANT.fullmatch(tenant) and _NAME.fullmatch(name):
            value = self._environ.get(f"{PREFIX}{tenant.upper()}_{name.upper()}")
            if value is not None:
                return value
        value = self._file.get(tenant, {}).get(name)
        if value is None:
            raise SecretNotFound(f"tenant {tenant!r:.80} has no secret {name!r:.80}")
        return value


def _load(path: Path) -> dict[str, dict[str, str]]:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise SecretsFileError(f"{path}: mode {mode:04o} lets others in; chmod 600 it")
            content: Any = orjson.loads(file.read())
    except OSError as error:
        raise SecretsFileError(f"{path}: {error.strerror}") from error
    except orjson.JSONDecodeError:
        raise SecretsFileError(f"{path}: not JSON") from None  # the cause would quote the content
    if not (
        isinstance(content, dict)
        and all(isinstance(names, dict) for names in content.values())
        and all(isinstance(value, str) for names in content.values() for value in names.values())
    ):
        raise SecretsFileError(f'{path}: expected {{"tenant": {{"name": "value"}}}}')
    return content
