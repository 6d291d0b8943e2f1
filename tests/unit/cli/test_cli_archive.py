"""`weft archive`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_fake_api import FakeApi

ITEM = {
    "id": "e-1",
    "execution": "e",
    "workflow": "flow\x1b[2J",
    "version": 1,
    "status": "FAILED",
    "createdAt": "2026-10-30T12:00:00.000Z",
    "endedAt": "2026-10-30T12:00:05.000Z",
    "archivedAt": "2026-11-30T13:00:00.000Z",
    "tags": {},
    "startedBy": "eve",
    "documents": 7,
    "bytes": 1234,
}


def test_list_passes_the_filters(api: FakeApi, weft: Any) -> None:
    api.on("GET", "/v1/archive", {"items": [ITEM], "nextCursor": None})
    result = weft("archive", "list", "--workflow", "flow", "--status", "FAILED")
    assert result.exit_code == 0
    for part in ("e-1", "FAILED", "12:00:05", "1234"):
        assert part in result.stdout
    assert "\x1b" not in result.stdout
    assert api.last("GET").query == {"workflow": "flow", "status": "FAILED", "limit": "20"}
    api.on("GET", "/v1/archive", {"items": [], "nextCursor": None})
    assert "No archives" in weft("archive", "list").stdout


def test_download_writes_what_came(api: FakeApi, weft: Any, tmp_path: Path) -> None:
    api.on("GET", "/v1/archive/e-1/content", {"any": "bytes"})
    target = tmp_path / "a.gz"
    assert weft("archive", "download", "e-1", "--output", str(target)).exit_code == 0
    assert json.loads(target.read_bytes()) == {"any": "bytes"}


def test_download_of_what_is_not_there_writes_nothing(
    api: FakeApi, weft: Any, tmp_path: Path
) -> None:
    error = {"error": {"code": "ARCHIVE_NOT_FOUND", "message": "no such archive"}}
    api.on("GET", "/v1/archive/e-2/content", error, status=404)
    target = tmp_path / "a.gz"
    result = weft("archive", "download", "e-2", "--output", str(target))
    assert (result.exit_code, target.exists()) == (3, False)


def test_restore_says_what_is_back(api: FakeApi, weft: Any) -> None:
    api.on("POST", "/v1/archive/e-1/restore", {"id": "e", "status": "FAILED"})
    result = weft("archive", "restore", "e-1", "--reason", "ticket")
    assert (result.exit_code, "restored: e" in result.stdout) == (0, True)


@pytest.mark.parametrize(("answer", "gone"), [("n\n", False), ("y\n", True)])
def test_delete_asks_first(api: FakeApi, weft: Any, answer: str, gone: bool) -> None:
    api.on("DELETE", "/v1/archive/e-1", {})
    result = weft("archive", "delete", "e-1", input=answer)
    asked = [seen for seen in api.requests if seen.method == "DELETE"]
    assert (len(asked) == 1, result.exit_code == 0) == (gone, gone)
    assert weft("archive", "delete", "e-1", "--yes").exit_code == 0
