"""Large payloads as files: `ROOT/TENANT/EXECUTION/SHA256`, written once and never changed.

Named by content, so that a repeated `put` is harmless and a damaged file is noticed. Tenant and
execution come from outside and are encoded, see `payload_names`.

What the disk or the system refuses (full, no rights, too many open files) is `Unavailable`, never
`PayloadNotFound`: that a payload does not exist is final, and fails whatever needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.adapters.payload_names import DIGEST, ENCODED, encode_name
from orchestrator.ports import PayloadNotFound, Unavailable

PREFIX: Final = "weft-file:v1:"
MIN_FREE_BYTES: Final = 64 * 1024 * 1024
"""With less on the disk it is reported: a payload has up to 50 MiB, a database's log as much."""

_REF: Final = re.compile(rf"{PREFIX}({ENCODED})/({ENCODED})/({DIGEST})")


class DiskFull(Exception):
    """Hardly anything can be stored any more."""


class FilePayloads:
    """`PayloadStore` in a folder, which is created when needed. File work runs in threads."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    async def ping(self) -> None:
        """See `ports_telemetry.Pinging`: the folder can be written to, and has room. Raises
        `OSError`, `DiskFull`."""
        await asyncio.to_thread(self._check)

    def _check(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        if not os.access(self._root, os.W_OK | os.X_OK):
            raise PermissionError
        if shutil.disk_usage(self._root).free < MIN_FREE_BYTES:
            raise DiskFull

    async def put(self, tenant: str, execution: str, name: str, data: bytes) -> str:
        """Store durably: when this returns, a power cut loses nothing. `name` plays no part. Raises
        `Unavailable`."""
        with _translated("not stored"):
            return await asyncio.to_thread(self._put, tenant, execution, data)

    async def get(self, ref: str) -> bytes:
        """Raises `PayloadNotFound`, also for a foreign reference and for a damaged file, and
        `Unavailable`."""
        match = _REF.fullmatch(ref)
        if match is None:
            raise PayloadNotFound("not a reference of this payload store")
        with _translated("not read"):
            return await asyncio.to_thread(self._get, *match.groups())

    async def delete(self, tenant: str, execution: str) -> None:
        """Remove the execution's folder. Raises `Unavailable`."""
        with _translated("not removed"):
            await asyncio.to_thread(self._delete, tenant, execution)

    def _delete(self, tenant: str, execution: str) -> None:
        folder = self._root.joinpath(encode_name(tenant), encode_name(execution))
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
            _sync_folder(folder.parent)

    def _put(self, tenant: str, execution: str, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        names = (encode_name(tenant), encode_name(execution))
        folder = self._root.joinpath(*names)
        target = folder / digest
        if not _is_whole(target, data):
            self._make(folder)
            part = folder / f"{digest}.{secrets.token_hex(8)}.part"
            try:
                with part.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(target)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            _sync_folder(folder)
        return f"{PREFIX}{names[0]}/{names[1]}/{digest}"

    def _get(self, tenant: str, execution: str, digest: str) -> bytes:
        try:
            data = (self._root / tenant / execution / digest).read_bytes()
        except FileNotFoundError:
            raise PayloadNotFound(f"no payload {digest}") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise PayloadNotFound(f"payload {digest} is damaged: its content has another hash")
        return data

    def _make(self, folder: Path) -> None:
        """Create the folders, each synced into its parent: else a power cut could lose the path."""
        missing = [folder]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            _sync_folder(path.parent)


def _is_whole(path: Path, data: bytes) -> bool:
    """Whether an earlier `put` finished; a damaged file is written again."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # its own text names paths of this machine
        reason = error.strerror or type(error).__name__
        raise Unavailable(f"payload {what}: {reason}") from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
