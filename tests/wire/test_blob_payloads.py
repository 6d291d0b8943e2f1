"""The blob payload store through the real SDK: what the contract suite does not ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.adapters.azure.blob_payloads import BlobPayloads
from orchestrator.ports import PayloadNotFound, Throttled, Unavailable
from tests.wire import tls
from tests.wire.blob.server import BlobServer
from tests.wire.http_service import StaticCredential


@pytest.fixture
async def server() -> AsyncIterator[BlobServer]:
    async with BlobServer() as running:
        yield running


@pytest.fixture
async def payloads(server: BlobServer) -> AsyncIterator[BlobPayloads]:
    opened = BlobPayloads(
        container=server.container, connection_string=server.connection_string, retries=0
    )
    yield opened
    await opened.close()


# aiohttp's advice against large bytes bodies; the SDK offers no other way, and copying 50 MB takes
# some ten milliseconds.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_payload_is_one_request_each_way_whatever_its_size(
    server: BlobServer, payloads: BlobPayloads
) -> None:
    data = bytes(33 * 1024 * 1024)  # beyond the SDK's own limit of one read
    ref = await payloads.put("t", "e", "n", data)
    assert await payloads.get(ref) == data
    assert [line.partition(" ")[0] for line in server.requests] == ["PUT", "GET"]
    assert set(server.types.values()) == {"application/json"}


async def test_what_is_stored_is_never_replaced(server: BlobServer, payloads: BlobPayloads) -> None:
    ref = await payloads.put("t", "e", "n", b"data")
    (name,) = server.blobs
    server.blobs[name] = b"dat4"
    assert await payloads.put("t", "e", "n", b"data") == ref
    assert server.blobs[name] == b"dat4"
    with pytest.raises(PayloadNotFound, match="damaged"):
        await payloads.get(ref)


async def test_no_text_leaves_its_folder(server: BlobServer, payloads: BlobPayloads) -> None:
    await payloads.put("../t", "e/../../x?y#z", "n", b"data")
    (name,) = server.blobs
    tenant, execution, digest = name.split("/")
    assert (tenant, execution) == ("_2e_2e_2ft", "e_2f_2e_2e_2f_2e_2e_2fx_3fy_23z")
    assert len(digest) == 64


@pytest.mark.parametrize(
    ("status", "error"),
    [(503, Throttled), (429, Throttled), (500, Unavailable), (403, Unavailable)],
)
async def test_faults_of_the_service_become_port_errors(
    server: BlobServer, payloads: BlobPayloads, status: int, error: type[Exception]
) -> None:
    ref = await payloads.put("t", "e", "n", b"data")
    server.fail_next(status)
    with pytest.raises(error):
        await payloads.put("t", "e", "n", b"other")
    server.fail_next(status)
    with pytest.raises(error):
        await payloads.get(ref)


async def test_a_ping_needs_an_answer_and_no_blob(
    server: BlobServer, payloads: BlobPayloads
) -> None:
    await payloads.ping()
    server.fail_next(403)
    with pytest.raises(Unavailable):
        await payloads.ping()
    assert not server.blobs
    server.container = "another"
    with pytest.raises(Unavailable, match="no container"):
        await payloads.ping()


async def test_a_service_that_is_not_there_is_unavailable(payloads: BlobPayloads) -> None:
    gone = BlobPayloads(
        container="payloads",
        connection_string="AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:9/a;",
        retries=0,
    )
    with pytest.raises(Unavailable):
        await gone.put("t", "e", "n", b"data")
    await gone.close()


async def test_by_identity_a_token_is_sent_and_the_credential_stays_open(tmp_path: Path) -> None:
    file, credential = tls.certificate(tmp_path), StaticCredential()
    async with BlobServer(tls=tls.server_context(file)) as server:
        payloads = BlobPayloads(
            container=server.container,
            account_url=server.account_url,
            credential=credential,
            connection_verify=str(file),
        )
        assert await payloads.get(await payloads.put("t", "e", "n", b"data")) == b"data"
        await payloads.close()
    assert set(credential.scopes) == {"https://storage.azure.com/.default"}
    assert credential.closed == 0
