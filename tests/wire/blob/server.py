"""Blob Storage as far as the payload store uses it, after its REST reference.

Put Blob: `x-ms-blob-type: BlockBlob`; with `If-None-Match: *` an existing blob is 409
`BlobAlreadyExists`, and nothing changes. Get Blob: `x-ms-range` is answered with 206 and
`Content-Range`; a range of an empty blob is 416 `InvalidRange`; a missing blob is 404
`BlobNotFound`, a missing container 404 `ContainerNotFound`. Delete Blob is 202. List Blobs gives
names that begin with `prefix`, two at a time, and where the rest begins. Create Container is 409
for one that exists. Errors carry `x-ms-error-code` and an XML body. Signatures are not checked;
that there is one, is.
"""

from __future__ import annotations

import re
import ssl
from typing import Final
from xml.sax.saxutils import escape

from aiohttp import web

from tests.wire.http_service import HttpService

ACCOUNT: Final = "testaccount"
ACCOUNT_KEY: Final = "a2V5"
PAGE: Final = 2  # names in one answer to List Blobs

_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")


class BlobServer(HttpService):
    """One account. `blobs`: what its one container holds, by path; no name: not created yet."""

    def __init__(self, container: str = "payloads", tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.container = container
        self.blobs: dict[str, bytes] = {}
        self.types: dict[str, str] = {}
        self.route("PUT", f"/{ACCOUNT}/{{container}}", self._create)
        path = f"/{ACCOUNT}/{{container}}/{{blob:.+}}"
        self.route("PUT", path, self._put)
        self.route("GET", path, self._get)
        self.route("DELETE", path, self._delete)
        self.route("GET", f"/{ACCOUNT}/{{container}}", self._list)

    @property
    def account_url(self) -> str:
        return f"{self.url}/{ACCOUNT}"

    @property
    def connection_string(self) -> str:
        scheme = self.url.partition(":")[0]
        return (
            f"DefaultEndpointsProtocol={scheme};AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
            f"BlobEndpoint={self.account_url};"
        )

    async def _create(self, request: web.Request) -> web.Response:
        if request.query.get("restype") != "container":
            return _error(400, "InvalidQueryParameterValue")
        if self.container:
            return _error(409, "ContainerAlreadyExists")
        self.container = request.match_info["container"]
        return web.Response(status=201, headers=_headers())

    async def _put(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        name = request.match_info["blob"]
        if request.headers["x-ms-blob-type"] != "BlockBlob" or request.query:
            return _error(400, "InvalidHeaderValue")  # the payload store uploads in one request
        if request.headers.get("If-None-Match") == "*" and name in self.blobs:
            return _error(409, "BlobAlreadyExists")
        self.blobs[name] = await request.read()
        self.types[name] = request.headers.get("x-ms-blob-content-type", "")
        return web.Response(status=201, headers=_headers())

    async def _get(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        data = self.blobs.get(request.match_info["blob"])
        if data is None:
            return _error(404, "BlobNotFound")
        found = _RANGE.fullmatch(request.headers.get("x-ms-range", ""))
        if found is None:
            return web.Response(body=data, headers=_headers())
        first, last = int(found[1]), min(int(found[2]), len(data) - 1)
        if first >= len(data):
            return _error(416, "InvalidRange")
        part = data[first : last + 1]
        headers = _headers() | {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        return web.Response(status=206, body=part, headers=headers)

    async def _delete(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        if self.blobs.pop(request.match_info["blob"], None) is None:
            return _error(404, "BlobNotFound")
        return web.Response(status=202, headers=_headers())

    async def _list(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        query = request.query
        if (query.get("restype"), query.get("comp")) != ("container", "list"):
            return _error(400, "InvalidQueryParameterValue")
        begin, after = query.get("prefix", ""), query.get("marker", "")
        names = sorted(name for name in self.blobs if name.startswith(begin) and name > after)
        page, rest = names[:PAGE], names[PAGE:]
        blobs = "".join(f"<Blob><Name>{escape(name)}</Name><Properties/></Blob>" for name in page)
        marker = f"<NextMarker>{escape(page[-1])}</NextMarker>" if rest else "<NextMarker/>"
        text = (
            '<?xml version="1.0" encoding="utf-8"?>'
            f'<EnumerationResults ContainerName="{self.container}"><Prefix>{escape(begin)}</Prefix>'
            f"<Blobs>{blobs}</Blobs>{marker}"
            "</EnumerationResults>"
        )
        return web.Response(text=text, content_type="application/xml", headers=_headers())

    def _refused(self, request: web.Request) -> web.Response | None:
        scheme = request.headers.get("Authorization", "").partition(" ")[0]
        if scheme not in ("SharedKey", "Bearer"):
            return _error(401, "NoAuthenticationInformation")
        if request.match_info["container"] != self.container:
            return _error(404, "ContainerNotFound")
        return None


def _headers() -> dict[str, str]:
    return {
        "ETag": '"0x8D"',
        "Last-Modified": "Mon, 30 Nov 2026 01:00:00 GMT",
        "x-ms-request-id": "1",
        "x-ms-version": "2021-12-02",
        "x-ms-blob-type": "BlockBlob",
    }


def _error(status: int, code: str) -> web.Response:
    return web.Response(
        status=status,
        headers={"x-ms-error-code": code},
        content_type="application/xml",
        text=f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code>'
        "<Message>as asked</Message></Error>",
    )
