"""Reading many documents: queries and the change feed, each of one partition or one range.

As documented: a query names its whole partition key, or a range id with or without a part of its
effective keys; neither is 400/1004 (the SDK would then ask for a query plan, which our adapter
never needs, so there is none here). A page has at most `x-ms-max-item-count` rows and 4 MB, and
`x-ms-continuation` when there is more. The change feed gives latest versions in order of change
within a range, no deletes, from the ETag of the last answer; it never cuts a transaction; nothing
new is 304 with an ETag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tests.wire.cosmos import charges, sql
from tests.wire.cosmos.documents import Item, Key
from tests.wire.cosmos.state import Container
from tests.wire.cosmos.wire import Answer, Refused

MAX_PAGE_BYTES = 4 * 1024 * 1024
PAGE_ROWS = 100  # if the client names no number


def scope(container: Container, headers: Mapping[str, str]) -> list[tuple[Key, Item]]:
    """The living documents that a request looks at."""
    living = container.documents.living()
    key = headers.get("x-ms-documentdb-partitionkey")
    if key is not None:
        values = tuple(orjson.loads(key))
        if len(values) != len(container.paths):
            raise Refused(400, "Partition key provided is not the whole key", sub_status=1001)
        return [(place, item) for place, item in living if place[0] == values]
    id = headers.get("x-ms-documentdb-partitionkeyrangeid")
    if id is None:
        raise Refused(
            400, "Cross partition query needs a query plan, and there is none", sub_status=1004
        )
    found = container.ranges.find(id.rpartition(",")[2])
    if found is None:
        raise Refused(410, f"Range {id} is gone", sub_status=1002)
    low = max(found.min, headers.get("x-ms-start-epk", found.min))
    high = min(found.max, headers.get("x-ms-end-epk", found.max))
    return [(place, item) for place, item in living if low <= item.effective_key < high]


def query(
    container: Container,
    headers: Mapping[str, str],
    content: dict[str, Any],
    foreign: list[dict[str, Any]],
) -> Answer:
    """One page of a query."""
    try:
        select = sql.parse(content["query"], content.get("parameters") or [])
    except sql.BadQuery as error:
        raise Refused(400, f"Syntax error, {error}: {content['query']}") from error
    container.check_order(select.order)
    items = {id(item.body): item for _, item in scope(container, headers)}
    rows = select.sort([item.body for item in items.values() if select.matches(item.body)])
    if select.counts:
        return _page(container, [str(len(rows)).encode()], charges.count(len(rows)), {})
    start = int(headers.get("x-ms-continuation", "at:0").removeprefix("at:"))
    limit = _limit(headers)
    parts: list[bytes] = []
    size = 0
    for row in rows[start:]:
        raw = items[id(row)].to_json()
        if parts and (len(parts) == limit or size + len(raw) > MAX_PAGE_BYTES):
            break
        parts.append(raw)
        size += len(raw)
    end = start + len(parts)
    if start == 0:
        parts = [orjson.dumps({**row, "_etag": '"f"', "_rid": "f"}) for row in foreign] + parts
    more = {"x-ms-continuation": f"at:{end}"} if end < len(rows) else {}
    return _page(container, parts, charges.query(size, len(parts)), more)


def change_feed(container: Container, headers: Mapping[str, str]) -> Answer:
    """One page of the change feed of one range."""
    since = headers.get("if-none-match", '"0"').strip('"')
    if since == "*":
        raise Refused(501, "a feed from now on is not needed here")
    after = int(since)
    changed = [item for _, item in scope(container, headers) if item.place[0] > after]
    changed.sort(key=lambda item: item.place)
    limit = _limit(headers)
    page: list[Item] = []
    for item in changed:
        if len(page) >= limit and item.place[0] != page[-1].place[0]:
            break
        page.append(item)
    if not page:
        return Answer(
            304, charge=charges.change_feed(0), headers={"etag": f'"{container.documents.lsn}"'}
        )
    parts = [item.to_json() for item in page]
    size = sum(map(len, parts))
    return _page(container, parts, charges.change_feed(size), {"etag": f'"{page[-1].place[0]}"'})


def _limit(headers: Mapping[str, str]) -> int:
    asked = int(headers.get("x-ms-max-item-count", PAGE_ROWS))
    return asked if asked > 0 else PAGE_ROWS


def _page(
    container: Container, parts: list[bytes], charge: float, headers: dict[str, str]
) -> Answer:
    body = b'{"_rid":"%b","Documents":[%b],"_count":%d}' % (
        container.rid.encode(),
        b",".join(parts),
        len(parts),
    )
    return Answer(200, body, round(charge, 2), headers)
