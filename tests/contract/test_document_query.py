"""Typed queries: filters, order, keyset paging, partition prefixes."""

from __future__ import annotations

import pytest
from contract_support import TENANT, doc

from orchestrator.domain.topology import CATALOG, EXECUTIONS, VISIBILITY
from orchestrator.ports import Create, DocumentStore, Query, Where


async def fill(store: DocumentStore, *bodies: dict[str, object]) -> None:
    for body in bodies:
        partition = (str(body["tenantId"]), str(body["executionId"]))
        await store.upsert(EXECUTIONS, partition, body)


async def ids(store: DocumentStore, query: Query, container: str = EXECUTIONS) -> list[str]:
    return [document.id for document in await store.query(container, query)]


async def test_prefix_queries_return_no_foreign_rows(store: DocumentStore) -> None:
    """Tenants t, t2, t_x, T and t% each; a list for t is only t's."""
    tenants = ["t", "t2", "t_x", "T", "t%", "s", "t\u0001", "tt"]
    for tenant in tenants:
        for n in range(2):
            execution = f"e{n}"
            body = doc(execution, f"{tenant}:{n}", tenant=tenant, type="execution", createdAt=n)
            await fill(store, body)
    for tenant in tenants:
        expected = [f"{tenant}:0", f"{tenant}:1"]
        assert await ids(store, Query(partition=(tenant,))) == expected
        assert await ids(store, Query(partition=(tenant,), order_by="createdAt")) == expected
        only = Query(where=(Where("tenantId", "=", tenant),), order_by="createdAt")
        assert await ids(store, only) == expected
        assert await ids(store, Query(partition=(tenant, "e1"))) == [f"{tenant}:1"]
        assert await ids(store, Query(partition=(tenant, "e"))) == []
    assert len(await ids(store, Query())) == len(await ids(store, Query(partition=()))) == 16


async def test_filters_compare_and_combine(store: DocumentStore) -> None:
    await fill(
        store,
        *(
            doc("e", f"d{n}", type="task" if n % 2 else "outbox", sweepAt=n, n=n, s=f"{n}", b=n < 3)
            for n in range(6)
        ),
        doc("e", "bare"),
    )
    cases: list[tuple[tuple[Where, ...], list[int]]] = [
        ((Where("type", "=", "task"),), [1, 3, 5]),
        ((Where("sweepAt", "<=", 2),), [0, 1, 2]),
        ((Where("sweepAt", "<", 2), Where("type", "=", "outbox")), [0]),
        ((Where("sweepAt", ">", 3),), [4, 5]),
        ((Where("n", ">=", 4),), [4, 5]),
        ((Where("n", "=", 3), Where("s", "=", "3")), [3]),
        ((Where("s", ">", "3"),), [4, 5]),
        ((Where("b", "=", True),), [0, 1, 2]),
        ((Where("b", "=", False), Where("type", "=", "task")), [3, 5]),
        ((Where("id", ">=", "d4"),), [4, 5]),
        ((Where("missing", "=", 1),), []),
        ((Where("n", "=", 1), Where("n", "=", 2)), []),
    ]
    for where, expected in cases:
        query = Query(partition=(TENANT, "e"), where=where)
        assert await ids(store, query) == [f"d{n}" for n in expected], where
        assert await ids(store, Query(where=where)) == [f"d{n}" for n in expected], where


@pytest.mark.parametrize("field", ["n", "sweepAt"])
async def test_values_of_another_type_never_match(store: DocumentStore, field: str) -> None:
    values = {"int": 1, "float": 1.5, "text": "1", "true": True, "null": None, "list": [1]}
    for name, value in values.items():
        await fill(store, doc("e", name, **{field: value}))
    await fill(store, doc("e", "object", **{field: {"a": 1}}))

    async def matching(op: str, value: str | int | bool) -> list[str]:
        return await ids(store, Query(where=(Where(field, op, value),)))  # type: ignore[arg-type]

    assert await matching("=", 1) == ["int"]
    assert await matching(">=", -5) == ["float", "int"]
    assert await matching("<", 2) == ["float", "int"]
    assert await matching("=", "1") == ["text"]
    assert await matching(">", "") == ["text"]
    assert await matching("<", "zzz") == ["text"]
    assert await matching("=", True) == ["true"]
    assert await matching("=", False) == []
    assert await ids(store, Query(order_by=field)) == ["int", "float", "text"]


async def test_documents_without_the_order_field_are_left_out(store: DocumentStore) -> None:
    await fill(store, doc("e", "a", n=2, sweepAt=2), doc("e", "b"), doc("e", "c", n=1, sweepAt=1))
    for field in ("n", "sweepAt"):
        assert await ids(store, Query(order_by=field)) == ["c", "a"]
        assert await ids(store, Query(order_by=field, descending=True)) == ["a", "c"]
    assert await ids(store, Query(order_by="id", descending=True)) == ["c", "b", "a"]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("field", ["createdAt", "n", "id"])
async def test_keyset_pages_give_every_row_once_although_times_are_equal(
    store: DocumentStore, field: str, descending: bool
) -> None:
    """250 executions with equal times; others come and change between the pages."""
    common = {"tenantId": TENANT, "type": "x", "n": 7}
    for start in range(0, 250, 50):
        creates = [
            Create({"id": f"e{n:03}", "createdAt": n // 100, **common})
            for n in range(start, start + 50)
        ]
        await store.batch(CATALOG, (TENANT,), creates)
    seen: list[str] = []
    after = None
    while True:
        page = await store.query(
            CATALOG,
            Query(
                where=(Where("type", "=", "x"),),
                partition=(TENANT,),
                order_by=field,
                descending=descending,
                after=after,
                limit=100,
            ),
        )
        seen += [document.id for document in page]
        if len(page) < 100:
            break
        last = page[-1]
        after = (last.body[field], last.id)
        # Changed, not moved; and one that sorts before what was seen.
        await store.replace(CATALOG, (TENANT,), {**last.body, "v": 1})
        await store.upsert(
            CATALOG,
            (TENANT,),
            {
                "id": "~" if descending else "!",
                "tenantId": TENANT,
                "type": "x",
                "createdAt": 99 if descending else -1,
                "n": 99 if descending else -1,
            },
        )
    everything = [f"e{n:03}" for n in range(250)]
    assert seen == (everything[::-1] if descending else everything)


async def test_limits_cut_the_list(store: DocumentStore) -> None:
    await store.batch(EXECUTIONS, (TENANT, "e"), [Create(doc("e", f"d{n:02}")) for n in range(30)])
    assert len(await ids(store, Query(limit=7))) == 7
    assert len(await ids(store, Query(limit=1000))) == 30
    with pytest.raises(ValueError, match="limit"):
        await store.query(EXECUTIONS, Query(limit=0))


NAMES = ["tag:region", "tag:app.kubernetes.io-name", "a.b", "é ü", "x') OR ('1' = '1", "$", "[0]"]


@pytest.mark.parametrize("name", NAMES)
async def test_any_property_name_can_be_queried(store: DocumentStore, name: str) -> None:
    await fill(store, doc("e", "a", **{name: "v"}), doc("e", "b", a={"b": "v"}), doc("e", "c"))
    assert await ids(store, Query(where=(Where(name, "=", "v"),))) == ["a"]
    assert await ids(store, Query(where=(Where(name, "=", "w"),))) == []
    assert await ids(store, Query(where=(Where(name, "=", True),))) == []
    assert await ids(store, Query(order_by=name)) == ["a"]
    assert await ids(store, Query(order_by=name, after=("v", "a"))) == []


async def test_values_with_quotes_and_wildcards_are_only_values(store: DocumentStore) -> None:
    for value in ("'", '"', "%", "_", "' OR 1=1 --", "é", "a\nb", "\\u0041"):
        await fill(store, doc("e", "d", s=value, type=value))
        for field in ("s", "type"):
            assert await ids(store, Query(where=(Where(field, "=", value),))) == ["d"]
            assert await ids(store, Query(where=(Where(field, "=", value + "x"),))) == []


@pytest.mark.parametrize("value", ["north", 7, True])
@pytest.mark.parametrize("field", ["tag:env", "tag:app.kubernetes.io", "tag:_", "tag:0", "tag:-"])
async def test_properties_are_named_by_their_whole_name(
    store: DocumentStore, field: str, value: str | int | bool
) -> None:
    """Tags are properties `tag:NAME`; a dot or a colon in a name is no path into the document."""
    await fill(
        store,
        doc("e", "flat", **{field: value}),
        doc(
            "e", "nested", **{"tag": {"env": value}, "tag:app": {"kubernetes": {"io-name": value}}}
        ),
    )
    where = (Where(field, "=", value), Where(field, ">=", value))
    assert await ids(store, Query(where=where)) == ["flat"]


async def test_what_is_due_is_found_across_tenants_in_order(store: DocumentStore) -> None:
    """The scheduler's query: by pages, a schedule that is not due or paused left out."""
    for n in range(30):
        tenant = f"t{n % 3}"
        body = {"id": f"s{n:02}", "tenantId": tenant, "type": "schedule", "dueAt": 100 - n}
        await store.create(CATALOG, (tenant,), body)
    await store.create(CATALOG, ("t0",), {"id": "p", "tenantId": "t0", "type": "schedule"})
    await store.create(CATALOG, ("t0",), {"id": "w", "tenantId": "t0", "type": "x", "dueAt": 1})
    seen: list[str] = []
    after = None
    while True:
        query = Query(
            where=(Where("type", "=", "schedule"), Where("dueAt", "<=", 95)),
            order_by="dueAt",
            after=after,
            limit=7,
        )
        page = await store.query(CATALOG, query)
        seen += [found.id for found in page]
        if len(page) < 7:
            break
        after = (page[-1].body["dueAt"], page[-1].id)
    assert seen == [f"s{n:02}" for n in range(29, 4, -1)]


async def test_a_count_is_the_length_of_the_query(store: DocumentStore) -> None:
    rows = [
        {"id": f"r{n}", "type": "execution", "tenantId": tenant, "status": status, "createdAt": n}
        for tenant in ("t", "t2")
        for n, status in enumerate(["RUNNING", "PAUSED", "RUNNING", "COMPLETED", "RUNNING"])
    ]
    rows.append({"id": "other", "type": "note", "tenantId": "t", "status": "RUNNING"})
    for row in rows:
        await store.create(VISIBILITY, (row["tenantId"],), row)
    running = (Where("type", "=", "execution"), Where("status", "=", "RUNNING"))
    for query, expected in (
        (Query(partition=("t",)), 6),
        (Query(partition=("t",), where=running), 3),
        (Query(partition=("t",), where=running, order_by="createdAt"), 3),
        (Query(partition=("t",), where=running, order_by="createdAt", after=(2, "r2")), 1),
        (Query(partition=("t",), where=running, limit=2), 2),
        (Query(partition=("t",), order_by="createdAt"), 5),
        (Query(partition=("t",), where=(Where("createdAt", ">", 2),)), 2),
        (Query(partition=("t3",)), 0),
    ):
        assert await store.count(VISIBILITY, query) == expected, query
        assert len(await store.query(VISIBILITY, query)) == expected, query
    for wrong in (Query(), Query(partition=("t",), limit=0)):
        with pytest.raises(ValueError, match=r"one partition|at least 1"):
            await store.count(VISIBILITY, wrong)
