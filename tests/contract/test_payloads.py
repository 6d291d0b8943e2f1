"""The payload store: what is put comes back, and nothing else."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.adapters.local.file_payloads import MIN_FREE_BYTES, DiskFull, FilePayloads
from orchestrator.adapters.payload_names import encode_name
from orchestrator.ports import PayloadNotFound, PayloadStore, Unavailable


async def test_payloads_come_back_and_equal_data_gives_an_equal_reference(
    payloads: PayloadStore,
) -> None:
    data = b'{"big": "' + b"x" * 200_000 + b'"}'
    ref = await payloads.put("t", "e", "task:a", data)
    assert await payloads.get(ref) == data
    assert await payloads.put("t", "e", "task:a", data) == ref
    other = await payloads.put("t", "e", "task:a", b"other")
    assert other != ref
    assert await payloads.get(ref) == data
    assert await payloads.get(other) == b"other"
    assert await payloads.get(await payloads.put("t", "e", "empty", b"")) == b""


async def test_references_of_one_execution_do_not_depend_on_another(payloads: PayloadStore) -> None:
    refs = [
        await payloads.put(tenant, execution, "n", b"same")
        for tenant, execution in (("t", "e"), ("t", "e2"), ("t2", "e"), ("T", "e"), ("t/e", ""))
    ]
    assert len(set(refs)) == len(refs)


async def test_delete_removes_all_of_one_execution_and_nothing_else(
    payloads: PayloadStore,
) -> None:
    gone = [await payloads.put("t", "e", "n", f"data {at}".encode()) for at in range(7)]
    kept = [
        await payloads.put(tenant, execution, "n", b"data 0")
        for tenant, execution in (("t", "e2"), ("t", ""), ("t2", "e"), ("T", "e"), ("t", "e/x"))
    ]
    for _ in range(2):  # the second finds nothing
        await payloads.delete("t", "e")
        for ref in gone:
            with pytest.raises(PayloadNotFound):
                await payloads.get(ref)
    for ref in kept:
        assert await payloads.get(ref) == b"data 0"
    assert await payloads.put("t", "e", "n", b"data 0") == gone[0]
    assert await payloads.get(gone[0]) == b"data 0"
    await payloads.delete("..", "..")
    assert await payloads.get(gone[0]) == b"data 0"


@pytest.mark.parametrize(
    "change",
    [
        lambda ref: "",
        lambda ref: "weft-blob:v1:t/e/" + "0" * 64,
        lambda ref: ref.replace("v1", "v2"),
        lambda ref: ref[:-1],
        lambda ref: ref + "\n",
        lambda ref: ref[:-1] + ("0" if ref[-1] != "0" else "1"),
        lambda ref: ref.upper(),
        lambda ref: "weft-file:v1:../../" + "0" * 64,
        lambda ref: "weft-file:v1:t/../../../etc/passwd",
        lambda ref: "weft-file:v1:/etc/" + "a" * 64,
        lambda ref: "\ud800\u0000",
    ],
)
async def test_foreign_malformed_and_missing_references_are_not_found(
    payloads: PayloadStore, change: object
) -> None:
    ref = await payloads.put("t", "e", "n", b"data")
    with pytest.raises(PayloadNotFound):
        await payloads.get(change(ref))  # type: ignore[operator]


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.text(max_size=300), st.text(max_size=300))
async def test_any_tenant_and_execution_text_stays_inside_the_root(
    tmp_path: Path, tenant: str, execution: str
) -> None:
    files = FilePayloads(tmp_path / "payloads")
    ref = await files.put(tenant, execution, "n", b"data")
    assert await files.get(ref) == b"data"
    assert ref.isascii()
    assert os.listdir(tmp_path) == ["payloads"]


@given(st.text(), st.text())
def test_encoded_names_are_distinct_ignoring_case_and_no_path(first: str, second: str) -> None:
    name = encode_name(first)
    assert name
    assert name == name.lower()
    assert "/" not in name
    assert "." not in name
    assert len(name) <= 120
    assert (first == second) == (name == encode_name(second))


def overwrite(file: Path, data: bytes) -> None:
    file.write_bytes(data)


async def test_a_damaged_file_is_not_found_and_put_mends_it(tmp_path: Path) -> None:
    files = FilePayloads(tmp_path)
    ref = await files.put("t", "e", "n", b"data")
    file = Path(glob.glob(f"{tmp_path}/*/*/*")[0])
    for damage in (b"da", b"dat4"):
        overwrite(file, damage)
        with pytest.raises(PayloadNotFound):
            await files.get(ref)
        assert await files.put("t", "e", "n", b"data") == ref
        assert await files.get(ref) == b"data"
    assert os.listdir(file.parent) == [file.name]  # no left-over parts


def make_unreadable(file: Path) -> None:
    file.unlink()
    file.mkdir()  # also root, who may read anything, cannot read a folder


async def test_what_the_disk_refuses_is_unavailable_and_never_not_found(tmp_path: Path) -> None:
    """Too many open files once ended whatever needed a payload, as if it were gone for good."""
    files = FilePayloads(tmp_path / "payloads")
    ref = await files.put("t", "e", "n", b"data")
    file = Path(glob.glob(f"{tmp_path}/*/*/*/*")[0])
    make_unreadable(file)
    for refused in (files.get(ref), files.put("t", "e", "n", b"data")):
        with pytest.raises(Unavailable, match="payload not") as caught:
            await refused
        assert str(tmp_path) not in str(caught.value)
    nowhere = tmp_path / "file"
    nowhere.write_bytes(b"")
    with pytest.raises(Unavailable, match="not removed"):
        await FilePayloads(nowhere).delete("t", "e")


async def test_a_disk_that_is_nearly_full_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health was ok while every write was refused."""
    for free in (MIN_FREE_BYTES, MIN_FREE_BYTES - 1):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        ping = FilePayloads(tmp_path).ping()
        if free == MIN_FREE_BYTES:
            await ping
        else:
            with pytest.raises(DiskFull):
                await ping
