"""Documents of a tenant that its administrators replace as a whole: grants, limits.

Container `catalog`, partition (tenantId):

    {kind}    {kind}    the content as JSON text in that property; a revision, who and when

One document each, because what is in it is changed together: an ETag (the revision) keeps two
administrators from undoing each other's work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from orchestrator.domain.errors import PreconditionError, UnavailableError
from orchestrator.domain.topology import CATALOG, SCHEMA_VERSION
from orchestrator.engine import audit
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import Instant, View
from orchestrator.ports import Conflict, Document, NotFound, PreconditionFailed

CHANGE_ATTEMPTS: Final = 20

T = TypeVar("T")


class Revised(View):
    """Who wrote it last, and when."""

    revision: int = 0
    updated_at: Instant | None = None
    updated_by: str | None = None


async def find(engine: Engine, tenant: str, kind: str) -> Document | None:
    """The document, if it was ever written. Raises what the store raises."""
    found = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), [kind])
    return found.get(kind)


async def put(
    engine: Engine,
    tenant: str,
    kind: str,
    text: str,
    *,
    if_match: str | None,
    by: str,
    forget: Callable[[str], None],
    details: Callable[[str], Mapping[str, str | int]],
) -> dict[str, Any]:
    """Store `text`; the body that holds now. The same text again changes nothing. `if_match`: the
    ETag that the caller knows, None or `*` for any. `details`: for the audit, from the text that
    was there ("" if none). Raises `PreconditionError`, `UnavailableError`."""
    for _ in range(CHANGE_ATTEMPTS):
        found = await find(engine, tenant, kind)
        if if_match not in (None, "*", etag(None if found is None else found.body)):
            raise PreconditionError(
                f"the {kind} have changed since they were read; read them again",
            )
        if found is not None and found.body[kind] == text:
            return found.body
        body: dict[str, Any] = {
            "id": kind,
            "type": kind,
            "tenantId": tenant,
            "v": SCHEMA_VERSION,
            kind: text,
            "revision": (found.body["revision"] if found else 0) + 1,
            "updatedAt": engine.clock.now(),
            "updatedBy": by,
        }
        try:
            if found is None:
                await patiently(engine, engine.store.create, CATALOG, (tenant,), body)
            else:
                await patiently(
                    engine, engine.store.replace, CATALOG, (tenant,), body, if_match=found.etag
                )
        except (Conflict, PreconditionFailed, NotFound, Unclear):
            continue  # somebody else, or our own write with its answer lost: the next round sees
        forget(tenant)
        await audit.record(
            engine,
            tenant,
            action=f"{kind}.put",
            execution="",
            by=by,
            resource=f"{kind}:tenant",
            details=details(found.body[kind] if found else ""),
        )
        return body
    raise UnavailableError(f"the {kind} are being changed by many at once; try again")


async def show(
    engine: Engine, tenant: str, kind: str, view: Callable[[dict[str, Any] | None], T]
) -> T:
    """What `view` makes of the document (None: there is none). Raises `UnavailableError`: it is
    damaged."""
    found = await find(engine, tenant, kind)
    body = None if found is None else found.body
    return readable(tenant, kind, lambda: view(body))


def readable(tenant: str, kind: str, read: Callable[[], T]) -> T:
    """What `read` makes of the document. Raises `UnavailableError` if it is damaged."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnavailableError(
            f"the stored {kind} of tenant {tenant!r} cannot be read; replace them: "
            f"PUT /v1/tenants/{tenant}/{kind}"
        ) from error


def etag(body: dict[str, Any] | None) -> str:
    """Of the document, or of its absence."""
    return str(0 if body is None else body["revision"])


def revised(body: dict[str, Any] | None) -> dict[str, Any]:
    """The fields of `Revised`."""
    if body is None:
        return {}
    return {
        "revision": body["revision"],
        "updated_at": body["updatedAt"],
        "updated_by": body["updatedBy"],
    }
