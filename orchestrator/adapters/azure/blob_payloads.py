"""Large payloads as blobs: `TENANT/EXECUTION/SHA256`, created once and never changed.

Named by content, so that a repeated `put` is harmless; created with `If-None-Match: *`, so that a
late writer can replace nothing. The container's lifecycle rule may delete by age or by prefix.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from typing import Any, Final

from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.storage.blob import ContentSettings, StorageErrorCode
from azure.storage.blob.aio import BlobServiceClient, ExponentialRetry

from orchestrator.adapters.payload_names import DIGEST, ENCODED, encode_name
from orchestrator.domain.topology import MAX_PAYLOAD_BYTES
from orchestrator.ports import PayloadNotFound, Throttled, Unavailable

PREFIX: Final = "weft-blob:v1:"
ONE_REQUEST_BYTES: Final = MAX_PAYLOAD_BYTES + 1024
"""Every payload goes and comes in one request: in blocks it could be left half-written, and each
block is billed."""
RETRIES: Final = 3
FIRST_WAIT_S: Final = 1
"""The SDK's own 15 s are longer than a claim's lease stays useful."""
BUSY: Final = frozenset({429, 503})

_REF: Final = re.compile(rf"{PREFIX}({ENCODED}/{ENCODED}/({DIGEST}))")
_JSON: Final = ContentSettings(content_type="application/json")


class BlobPayloads:
    """`PayloadStore` in one container, which must exist. All methods may raise `Throttled` and
    `Unavailable`."""

    def __init__(
        self,
        *,
        container: str,
        account_url: str = "",
        credential: AsyncTokenCredential | None = None,
        connection_string: str = "",
        retries: int = RETRIES,
        **options: Any,
    ) -> None:
        """Either `account_url` with a `credential` (not closed here), or the connection string of
        an emulator. `options`: for the SDK client. Touches no network."""
        options |= {
            "max_single_put_size": ONE_REQUEST_BYTES,
            "max_single_get_size": ONE_REQUEST_BYTES,
            "retry_policy": ExponentialRetry(
                initial_backoff=FIRST_WAIT_S, increment_base=2, retry_total=retries
            ),
        }
        if connection_string:
            self._service = BlobServiceClient.from_connection_string(connection_string, **options)
        else:
            self._service = BlobServiceClient(account_url, credential=credential, **options)
        self._container = self._service.get_container_client(container)

    async def ping(self) -> None:
        """See `ports_telemetry.Pinging`. That there is no such blob is an answer; that there is no
        container is a fault."""
        try:
            await self._container.download_blob("weft-health")
        except ResourceNotFoundError as error:
            code: Any = getattr(error, "error_code", "")
            if code != StorageErrorCode.BLOB_NOT_FOUND:
                raise Unavailable("there is no container for payloads") from error
        except AzureError as error:
            raise _translated(error, "no answer") from error

    async def put(self, tenant: str, execution: str, name: str, data: bytes) -> str:
        """Store durably. `name` plays no part: content is what names a payload."""
        digest = hashlib.sha256(data).hexdigest()
        path = f"{encode_name(tenant)}/{encode_name(execution)}/{digest}"
        try:
            await self._container.upload_blob(
                path, data, length=len(data), overwrite=False, content_settings=_JSON
            )
        except ResourceExistsError:
            pass  # the same content, or the answer to an earlier try was lost
        except AzureError as error:
            raise _translated(error, "payload not stored") from error
        return f"{PREFIX}{path}"

    async def get(self, ref: str) -> bytes:
        """Raises `PayloadNotFound`, also for a foreign reference and for damaged content."""
        match = _REF.fullmatch(ref)
        if match is None:
            raise PayloadNotFound("not a reference of this payload store")
        path, digest = match.groups()
        try:
            stream = await self._container.download_blob(path)
            data = await stream.readall()
        except ResourceNotFoundError as error:
            raise PayloadNotFound(f"no payload {digest}") from error
        except AzureError as error:
            raise _translated(error, "payload not read") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise PayloadNotFound(f"payload {digest} is damaged: its content has another hash")
        return data

    async def delete(self, tenant: str, execution: str) -> None:
        """Remove the blobs of the execution. An account with soft delete keeps them for as long as
        that says."""
        begin = f"{encode_name(tenant)}/{encode_name(execution)}/"
        try:
            async for name in self._container.list_blob_names(name_starts_with=begin):
                # From the second page on the SDK asks for the prefix that the answer before named.
                if name.startswith(begin):
                    with contextlib.suppress(ResourceNotFoundError):
                        await self._container.delete_blob(name)
        except AzureError as error:
            raise _translated(error, "payloads not removed") from error

    async def close(self) -> None:
        """Release the connections."""
        await self._service.close()


def _translated(error: AzureError, what: str) -> Throttled | Unavailable:
    """The port's error. A payload is safe to store again, so what is unclear needs no third one."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    if status in BUSY:
        return Throttled(f"{what}: the storage account answers {status}", retry_after_ms=1_000)
    return Unavailable(f"{what}: {status or type(error).__name__}")
