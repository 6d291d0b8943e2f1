"""What ended long ago is archived and removed, and can be put back."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import orjson
import pytest

from orchestrator.domain.errors import ConflictError, NotFoundError
from orchestrator.domain.retention import DAY_MS, DEFAULT_MS, Retention, parse_ages
from orchestrator.domain.status import ExecutionStatus
from orchestrator.engine import archive, audit_reads, letters_bulk, replay, restoring, retain
from orchestrator.engine.archive import ArchiveFilter
from orchestrator.engine.audit_reads import AuditFilter
from orchestrator.engine.core import Tunables
from orchestrator.engine.views import ExecutionView
from orchestrator.ports import Query
from tests.support.archives import archived
from tests.support.definitions import flow, retry, task
from tests.support.faults import FaultyStore
from tests.support.lists import catch_up, rows
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

LARGE = "x" * 70_000


def _work(call: Any) -> Any:
    if call.input == "fail":
        raise ValueError("no")
    return LARGE


def _tunables(**rules: Any) -> Tunables:
    return Tunables(retention=Retention(**rules))


async def _ended(world: World, input: Any = "ok", **options: Any) -> str:
    """An execution with a history, a large output, and a dead letter if it is to fail."""
    await world.publish(flow(a=task("work", input="${input}", retry=retry(1))))
    id = (await world.start("flow", input, **options)).id
    await world.run_until_quiet(60_000)
    return id


async def _stored(world: World, id: str) -> dict[str, Any]:
    found = await world.sqlite.query("executions", Query(partition=(TENANT, id), limit=1_000))
    return {doc.id: doc.body for doc in found}


async def _pass(world: World) -> dict[str, int]:
    await catch_up(world)
    report = await retain.run(world.engine)
    return {name: count for name, count in report.model_dump().items() if count}


async def _view(world: World, id: str) -> ExecutionView:
    return await world.view(id)


async def test_nothing_goes_before_its_time_and_everything_after(make: MakeWorld) -> None:
    world = await make(work=_work)
    id = await _ended(world)
    await world.clock.advance(DEFAULT_MS - 60_000)
    assert await _pass(world) == {}
    await world.clock.advance(120_000)
    assert await _pass(world) == {"archived": 1}
    assert await _stored(world, id) == {}
    assert await rows(world) == {}
    with pytest.raises(NotFoundError):
        await world.view(id)
    assert await _pass(world) == {}


async def test_an_open_execution_stays_however_old(make: MakeWorld) -> None:
    world = await make()
    await world.publish(flow(s={"type": "signal", "signal": "go"}))
    id = (await world.start("flow")).id
    await world.settle()
    await world.clock.advance(400 * DAY_MS)
    assert await _pass(world) == {}
    assert (await world.view(id)).status is ExecutionStatus.RUNNING


async def test_each_end_has_its_own_age(make: MakeWorld) -> None:
    world = await make(
        work=_work, tunables=_tunables(completed_ms=DAY_MS, failed_ms=None, archive=False)
    )
    done, failed = await _ended(world), await _ended(world, "fail")
    await world.clock.advance(400 * DAY_MS)
    assert await _pass(world) == {"removed": 1}
    assert (await _stored(world, done), (await world.view(failed)).status) == ({}, "FAILED")


async def test_without_an_archive_the_payloads_go_too(make: MakeWorld) -> None:
    world = await make(work=_work, tunables=_tunables(archive=False))
    await _ended(world)
    assert world.payloads.data
    await world.clock.advance(31 * DAY_MS)
    assert await _pass(world) == {"removed": 1}
    assert not world.payloads.data


async def test_the_archive_is_gzip_ndjson_of_every_document_and_is_listed(make: MakeWorld) -> None:
    world = await make(work=_work)
    id = await _ended(world, "fail", tags={"team": "a"}, started_by="eve")
    before = await _stored(world, id)
    key = await archived(world.engine, TENANT, id)
    (view,), after = await archive.page(
        world.engine, TENANT, ArchiveFilter(workflow="flow"), limit=10, after=None
    )
    assert (view.id, view.execution, view.status, after) == (key, id, "FAILED", None)
    assert (view.tags, view.started_by, view.documents) == ({"team": "a"}, "eve", len(before))
    data = await archive.text(world.engine, TENANT, key)
    first, *lines = [orjson.loads(line) for line in gzip.decompress(data).splitlines()]
    assert (first["type"], first["id"], len(data)) == ("weft-archive", key, view.bytes)
    assert {line["id"]: line for line in lines} == before
    assert lines[-1]["id"] == id
    for other in (ArchiveFilter(workflow="w"), ArchiveFilter(status=ExecutionStatus.COMPLETED)):
        assert (await archive.page(world.engine, TENANT, other, limit=10, after=None))[0] == []
    assert (await archive.page(world.engine, "t2", ArchiveFilter(), limit=1, after=None))[0] == []


async def test_restored_is_as_it_was_and_can_be_retried(make: MakeWorld) -> None:
    """Its time begins again."""
    failing = [True]

    def work(call: Any) -> Any:
        if failing[0]:
            raise ValueError("no")
        return LARGE

    world = await make(work=work)
    id = await _ended(world)
    was, documents = await world.view(id), await _stored(world, id)
    key = await archived(world.engine, TENANT, id)
    await world.clock.advance(60 * DAY_MS)
    assert await restoring.restore(world.engine, TENANT, key, by="me") == was
    now = await _stored(world, id)
    assert now.pop(id).pop("restoredAt") == world.clock.now()
    documents.pop(id)
    assert now == documents
    await world.verified(id)
    assert await restoring.restore(world.engine, TENANT, key, by="me") == was
    with pytest.raises(NotFoundError):
        await archive.show(world.engine, TENANT, key)
    assert await _pass(world) == {}
    failing[0] = False
    await letters_bulk.retry_execution(world.engine, TENANT, id, by="me")
    await world.run_until_quiet(60_000)
    assert (await world.view(id)).status is ExecutionStatus.COMPLETED
    await world.verified(id)


async def test_large_payloads_of_a_restored_execution_are_there(make: MakeWorld) -> None:
    world = await make(work=_work)
    definition = flow(a=task("work")) | {"output": "${tasks.a.output}"}
    await world.publish(definition)
    id = (await world.start("flow")).id
    await world.settle()
    key = await archived(world.engine, TENANT, id)
    assert (await restoring.restore(world.engine, TENANT, key, by="me")).output == LARGE


async def test_an_id_that_is_in_use_again_is_not_overwritten(make: MakeWorld) -> None:
    """The idempotency key may start a new one; removing the old archive leaves it its payloads."""
    world = await make(work=_work)
    id = await _ended(world, key="k")
    key = await archived(world.engine, TENANT, id)
    await world.clock.advance(1)
    assert await _ended(world, key="k") == id
    with pytest.raises(ConflictError) as refused:
        await restoring.restore(world.engine, TENANT, key, by="me")
    assert refused.value.code == "EXECUTION_EXISTS"
    payloads = set(world.payloads.data)
    await archive.delete(world.engine, TENANT, key, by="me")
    left = payloads - set(world.payloads.data)
    assert len(left) == 1  # the archive's text
    second = await archived(world.engine, TENANT, id)
    assert second != key


async def test_archives_end_too_and_deleting_one_erases_its_data(make: MakeWorld) -> None:
    world = await make(work=_work)
    first, second = await _ended(world), await _ended(world)
    await world.clock.advance(31 * DAY_MS)
    assert await _pass(world) == {"archived": 2}
    found, _ = await archive.page(world.engine, TENANT, ArchiveFilter(), limit=9, after=None)
    assert {one.execution for one in found} == {first, second}
    await archive.delete(world.engine, TENANT, found[0].id, by="me", reason="ticket")
    with pytest.raises(NotFoundError):
        await archive.delete(world.engine, TENANT, found[0].id, by="me")
    await world.clock.advance(365 * DAY_MS)
    assert await _pass(world) == {"expired": 1}
    assert not world.payloads.data


async def test_whoever_takes_it_up_again_while_it_is_archived_wins(make: MakeWorld) -> None:
    """The mark needs the ETag that was read; once it is there, nobody can."""
    world = await make(work=_work)
    id = await _ended(world, "fail")
    taken: list[Any] = []
    real = world.payloads.put

    async def put(tenant: str, execution: str, name: str, data: bytes) -> str:
        if not taken and name == "archive":
            taken.append(await letters_bulk.retry_execution(world.engine, TENANT, id, by="me"))
        return await real(tenant, execution, name, data)

    world.payloads.put = put  # pyright: ignore[reportAttributeAccessIssue]
    now = world.clock.now()
    failed = ExecutionStatus.FAILED
    assert await retain.remove(world.engine, (TENANT, id), failed, now) is None
    assert taken
    await world.run_until_quiet(60_000)
    await world.verified(id)
    doc = (await _stored(world, id))[id]
    marked = {**doc, "archiving": {"at": now, "ref": None}}
    await world.sqlite.replace("executions", (TENANT, id), marked)
    world.engine.aggregates.drop((TENANT, id))
    for again in (
        letters_bulk.retry_execution(world.engine, TENANT, id, by="me"),
        replay.replay(world.engine, TENANT, id, by="me"),
    ):
        with pytest.raises(ConflictError) as refused:
            await again
        assert refused.value.code == "ARCHIVED"


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("after", [True, False])
async def test_a_process_that_dies_anywhere_leaves_the_rest_to_the_next_pass(
    make: MakeWorld, after: bool
) -> None:
    """Before or after each of its writes: the archive is whole, nothing is left of the rest."""
    deaths = 0
    while True:
        world = await make(work=_work, wrap_store=FaultyStore)
        id = await _ended(world, "fail")
        before = await _stored(world, id)
        await catch_up(world)
        await world.clock.advance(31 * DAY_MS)
        count = [0]

        def rule(
            name: str, args: tuple[Any, ...], count: list[int] = count, at: int = deaths
        ) -> None:
            if name in ("create", "replace", "upsert", "delete"):
                count[0] += 1
                if count[0] - 1 == at:
                    raise Died

        store: Any = world.engine.store
        setattr(store, "after" if after else "before", rule)
        try:
            await retain.run(world.engine)
        except Died:
            deaths += 1
        else:
            assert deaths > 5
            return
        setattr(store, "after" if after else "before", lambda name, args: None)
        await retain.run(world.engine)
        await retain.run(world.engine)
        assert (await _stored(world, id), await rows(world)) == ({}, {})
        (view,), _ = await archive.page(world.engine, TENANT, ArchiveFilter(), limit=9, after=None)
        lines = gzip.decompress(await archive.text(world.engine, TENANT, view.id)).splitlines()
        assert {orjson.loads(line)["id"] for line in lines[1:]} == set(before)


async def test_a_pass_leaves_one_audit_record_per_tenant_and_says_how_many(
    make: MakeWorld,
) -> None:
    world = await make(work=_work)
    for _ in range(3):
        await _ended(world)
    await world.clock.advance(31 * DAY_MS)
    await _pass(world)
    found, _ = await audit_reads.page(world.engine, TENANT, AuditFilter(), limit=9, after=None)
    kept = [one for one in found if one.by == retain.BY]
    assert [(one.action, one.details) for one in kept] == [("retention.archived", {"count": 3})]


async def test_newer_code_s_executions_are_left_to_it(make: MakeWorld) -> None:
    world = await make(work=_work)
    id = await _ended(world)
    await catch_up(world)
    doc = (await _stored(world, id))[id]
    await world.sqlite.replace("executions", (TENANT, id), {**doc, "v": 99})
    await world.clock.advance(31 * DAY_MS)
    assert (await retain.run(world.engine)).archived == 0
    assert id in await _stored(world, id)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("30d", (30, 30, 30)),
        ("never", (None, None, None)),
        ("failed=90d", (30, 90, 30)),
        ("completed=7d, cancelled=never", (7, 30, None)),
    ],
)
def test_what_the_setting_may_say(text: str, wanted: tuple[Any, ...]) -> None:
    ages = parse_ages(text)
    found = [ages[status] for status in (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED)]
    found.append(ages[ExecutionStatus.CANCELLED])
    assert tuple(age if age is None else age // DAY_MS for age in found) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("30", "never"),
        ("soon", "never"),
        ("paused=3d", "completed, failed or cancelled"),
        ("failed=3d,failed=4d", "twice"),
    ],
)
def test_what_it_may_not_say(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_ages(text)


def test_the_rules_name_every_end() -> None:
    rules = replace(Retention(), completed_ms=1, failed_ms=2, cancelled_ms=3)
    ends = (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED)
    assert [rules.keep_ms(end) for end in ends] == [1, 2, 3]
