"""Archives over HTTP: list them, read one, put its execution back, remove it."""

from __future__ import annotations

from typing import Final

from orchestrator.domain.authz import Scope
from orchestrator.domain.status import TERMINAL_EXECUTION
from orchestrator.engine import archive, restoring
from orchestrator.engine.archive import ArchiveFilter
from orchestrator.engine.views import ExecutionView, Page
from orchestrator.engine.views_archive import ArchiveView
from orchestrator.functions import http_params, requests
from orchestrator.functions.http_routes import Answer, Call, Reply, Routes
from orchestrator.functions.http_shared import BODY_ERRORS, LOCATION, ControlRequest, json_body

ROUTES: Final = Routes("Archive")
GZIP: Final = "application/gzip"
_ENDS: Final = sorted(TERMINAL_EXECUTION)


class RestoreRequest(ControlRequest):
    """Why. May be left out; it stands in the audit."""


_FILTERS: Final = (
    http_params.text_filter(
        "execution", "Only archives of this execution", "019ad1f0-7f2c-7c11-a6f1-0d8a5ec4"
    ),
    http_params.text_filter("workflow", "Only executions of this workflow", "order-fulfilment"),
    http_params.enum_filter("status", "Only executions that ended like this", _ENDS),
)


@ROUTES.add(
    "GET",
    "v1/archive",
    scope=Scope.READ,
    checks=True,
    summary="List archived executions",
    query=(*_FILTERS, *http_params.PAGING),
    replies={200: Reply(description="A page, newest execution first", model=Page[ArchiveView])},
)
async def list_archive(call: Call) -> Answer:
    """Executions that were removed because they ended long ago, each with a compressed copy. All
    filters given must hold."""
    query = call.query
    items, after = await archive.page(
        await call.engine(),
        call.tenant,
        ArchiveFilter(
            execution=query["execution"],
            workflow=query["workflow"],
            status=query["status"],
        ),
        limit=query["limit"],
        after=call.after(),
    )
    sight = await call.principal.sight(Scope.READ)
    shown = [one for one in items if sight.of(one.workflow, one.tags, one.started_by)]
    return call.page(shown, after, Page[ArchiveView])


@ROUTES.add(
    "GET",
    "v1/archive/{archiveId}",
    scope=Scope.READ,
    summary="Show an archived execution",
    replies={200: Reply(description="What the list has of it", model=ArchiveView)},
    errors=(404,),
)
async def show_archive(call: Call) -> Answer:
    """Without its content: see `…/content`."""
    view = await archive.show(await call.engine(), call.tenant, call.path["archiveId"])
    return Answer(body=view)


@ROUTES.add(
    "GET",
    "v1/archive/{archiveId}/content",
    scope=Scope.OPERATE,
    summary="Download an archive",
    replies={200: Reply(description="NDJSON, gzip: a line per document", media=GZIP)},
    errors=(404,),
)
async def read_archive(call: Call) -> Answer:
    """All documents of the execution as they were stored: history, tasks, dead letters, signals;
    inputs and outputs unmasked, but for those that were too large for a document."""
    data = await archive.text(await call.engine(), call.tenant, call.path["archiveId"])
    name = f"{call.path['archiveId']}.ndjson.gz"
    return Answer(
        body=data,
        media=GZIP,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@ROUTES.add(
    "POST",
    "v1/archive/{archiveId}/restore",
    scope=Scope.OPERATE,
    summary="Restore an archived execution",
    body=json_body(RestoreRequest, {"reason": "complaint 4711"}),
    replies={200: Reply(description="It is back", model=ExecutionView, headers=LOCATION)},
    errors=(404, 409, *BODY_ERRORS),
)
async def restore_archive(call: Call) -> Answer:
    """Puts the execution back as it was when it was archived; it can be looked at, replayed and
    retried again, and is kept as long as if it had ended now. Refused (409) if its id is in use
    (EXECUTION_EXISTS), or while it is still being archived (ARCHIVED)."""
    body = await requests.model(call.req, RestoreRequest)
    view = await restoring.restore(
        await call.engine(),
        call.tenant,
        call.path["archiveId"],
        by=call.principal.subject,
        reason=body.reason,
    )
    return Answer(body=view, headers={"Location": f"/v1/executions/{view.id}"})


@ROUTES.add(
    "DELETE",
    "v1/archive/{archiveId}",
    scope=Scope.ADMIN,
    summary="Remove an archive for good",
    replies={204: Reply(description="It is gone")},
    errors=(404,),
)
async def delete_archive(call: Call) -> Answer:
    """Also the payloads that it refers to. This is how an archived execution's data is erased."""
    await archive.delete(
        await call.engine(),
        call.tenant,
        call.path["archiveId"],
        by=call.principal.subject,
    )
    return Answer(status=204)
