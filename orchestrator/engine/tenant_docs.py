"""Documents of a tenant that its administrators replace as a whole: egress lists, grants, limits.

Container `catalog`, partition (tenantId):

    {kind}    {kind}    the content as JSON text in that property; a revision, who and when

One document each, because what is in it is changed together: an ETag (the revision) keeps two
administrators from undoing each other's work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from orchestrator.domain import jsonvalues
from orchestrator.domain.errors import PreconditionError, UnavailableError
from orchestrator.domain.jsontypes import Json
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


def _said(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T]):
    """A kind of document."""

    name: str
    view: Callable[[Engine, str, dict[str, Any] | None], T]
    """What is shown of a tenant's document, or of there being none."""
    forget: Callable[[Engine, str], None]
    """This process reads the tenant's again."""
    audited: Callable[[str], str] = _said
    """What the audit says of the content, before and after."""


async def find(engine: Engine, tenant: str, kind: str) -> Document | None:
    """The document, if it was ever written. Raises what the store raises."""
    found = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), [kind])
    return found.get(kind)


async def put(
    engine: Engine, tenant: str, kind: Kind[T], content: Json, *, if_match: str | None, by: str
) -> tuple[T, str]:
    """Store `content` in place of whatever is there, damaged or not; it as it is shown now, and its
    ETag. The same content again changes nothing. `if_match`: the ETag that the caller knows, None
    or `*` for any. Raises `PreconditionError`, `UnavailableError`."""
    name, text = kind.name, jsonvalues.dumps(content).decode()
    replaced = ""
    written: dict[str, Any] | None = None
    for _ in range(CHANGE_ATTEMPTS):
        found = await find(engine, tenant, name)
        before = None if found is None else found.body
        if written is not None and before == written:
            break  # the answer was lost, the write was not
        if if_match not in (None, "*", etag(before)):
            raise PreconditionError(
                f"the {name} have changed since they were read; read them again",
            )
        if before is not None and before.get(name) == text:
            return kind.view(engine, tenant, before), etag(before)
        replaced = "" if before is None else str(before.get(name, ""))
        written = {
            "id": name,
            "type": name,
            "tenantId": tenant,
            "v": SCHEMA_VERSION,
            name: text,
            "revision": int(etag(before)) + 1,
            "updatedAt": engine.clock.now(),
            "updatedBy": by,
        }
        try:
            if found is None:
                await patiently(engine, engine.store.create, CATALOG, (tenant,), written)
            else:
                await patiently(
                    engine, engine.store.replace, CATALOG, (tenant,), written, if_match=found.etag
                )
        except (Conflict, PreconditionFailed, NotFound):
            written = None  # somebody else was faster
            continue
        except Unclear:
            continue  # somebody else, or our own write with its answer lost: the next round sees
        break
    else:
        raise UnavailableError(f"the {name} are being changed by many at once; try again")
    kind.forget(engine, tenant)
    await audit.record(
        engine,
        tenant,
        action=f"{name}.put",
        execution="",
        by=by,
        resource=f"{name}:tenant",
        details={
            "before": kind.audited(replaced) if replaced else "",
            "after": kind.audited(text),
        },
    )
    return kind.view(engine, tenant, written), etag(written)


async def show(engine: Engine, tenant: str, kind: Kind[T]) -> tuple[T, str]:
    """What is there, and its ETag. Raises `UnavailableError`: it is damaged."""
    found = await find(engine, tenant, kind.name)
    body = None if found is None else found.body
    view = readable(tenant, kind.name, lambda: kind.view(engine, tenant, body))
    return view, etag(body)


def readable(tenant: str, kind: str, read: Callable[[], T]) -> T:
    """What `read` makes of the document. Raises `UnavailableError` if it is damaged."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnavailableError(
            f"the stored {kind} of tenant {tenant!r} cannot be read; replace them: "
            f"PUT /v1/tenants/{tenant}/{kind}, or `weft` with `set --replace`"
        ) from error


def etag(body: Mapping[str, Any] | None) -> str:
    """Of the document, or of its absence."""
    revision = 0 if body is None else body.get("revision")
    return str(revision if isinstance(revision, int) else 0)


def revised(body: dict[str, Any] | None) -> dict[str, Any]:
    """The fields of `Revised`."""
    if body is None:
        return {}
    return {
        "revision": body["revision"],
        "updated_at": body["updatedAt"],
        "updated_by": body["updatedBy"],
    }
