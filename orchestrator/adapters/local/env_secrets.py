"""Secrets from the environment or from a private file. For one machine; Azure has Key Vault.

`WEFT_SECRET_TENANT_NAME` works for tenants of `[a-z0-9]` only: with `_` or `-` in a tenant's name
one variable could belong to two tenants, and a secret would be given to the wrong one. All others
use the file, `{"tenant": {"name": "value"}}`, which nobody but its owner may be able to read. It is
read again when it has changed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from orchestrator.ports import SecretNotFound, Unavailable

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
        self._path = None if file is None else Path(file)
        self._stamp: tuple[int, ...] = ()
        self._file: dict[str, dict[str, str]] = {}
        if self._path is not None:
            self._stamp, self._file = _load(self._path)

    async def get(self, tenant: str, name: str) -> str:
        """Raises `SecretNotFound`; `Unavailable` if the file has become unusable."""
        if _TENANT.fullmatch(tenant) and _NAME.fullmatch(name):
            value = self._environ.get(f"{PREFIX}{tenant.upper()}_{name.upper()}")
            if value is not None:
                return value
        value = self._of_file().get(tenant, {}).get(name)
        if value is None:
            raise SecretNotFound(f"tenant {tenant!r:.80} has no secret {name!r:.80}")
        return value

    def _of_file(self) -> dict[str, dict[str, str]]:
        """As it is now: one look at the file, and a read if it is another one than before."""
        if self._path is not None:
            try:
                if _stamp(self._path.stat()) != self._stamp:
                    self._stamp, self._file = _load(self._path)
            except (OSError, SecretsFileError) as error:
                raise Unavailable(f"the secrets file: {type(error).__name__}") from error
        return self._file


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _load(path: Path) -> tuple[tuple[int, ...], dict[str, dict[str, str]]]:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            mode = stat.S_IMODE(found.st_mode)
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
    return _stamp(found), content
