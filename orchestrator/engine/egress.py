"""A tenant's egress lists: stored, and remembered for a second by whoever sends requests.

The document `egress` of `tenant_docs`. While it cannot be read nothing is sent: a list that
narrows must not be open for the time of an outage. The attempt fails and is tried again.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from orchestrator.domain.egress import ANYWHERE, Egress, EgressModel
from orchestrator.engine import tenant_docs
from orchestrator.engine.core import Engine
from orchestrator.engine.remembered import Remembered
from orchestrator.engine.tenant_docs import Revised

KIND: Final = "egress"


class EgressView(Revised):
    """A tenant's egress lists."""

    tenant: str
    only_hosts: list[str] | None = Field(
        default=None, description="Hosts that may be called, no others; null: any"
    )
    networks: list[str] = Field(
        default_factory=list[str],
        description="Networks that may be reached although they are not public",
    )


class EgressBook:
    """One engine's memory of the lists; see `Engine.part`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known = Remembered(engine, self._load)
        self.of = self._known.of
        self.forget = self._known.forget
        self.close = self._known.close

    async def _load(self, tenant: str) -> Egress:
        """What newer code wrote and this cannot read is a `ValueError`: nothing is sent."""
        found = await tenant_docs.find(self._engine, tenant, KIND)
        return ANYWHERE if found is None else _read(found.body).egress()


async def show(engine: Engine, tenant: str) -> tuple[EgressView, str]:
    """The lists, and their ETag. Raises `UnavailableError`: damaged."""
    return await tenant_docs.show(engine, tenant, _LISTS)


async def put(
    engine: Engine, tenant: str, wanted: EgressModel, *, if_match: str | None, by: str
) -> tuple[EgressView, str]:
    """Replace both, as `tenant_docs.put` does."""
    return await tenant_docs.put(engine, tenant, _LISTS, wanted.stored(), if_match=if_match, by=by)


def _read(body: dict[str, Any]) -> EgressModel:
    return EgressModel.model_validate_json(body[KIND])


def _view(engine: Engine, tenant: str, body: dict[str, Any] | None) -> EgressView:
    model = EgressModel() if body is None else _read(body)
    return EgressView(
        tenant=tenant,
        only_hosts=model.only_hosts,
        networks=model.networks,
        **tenant_docs.revised(body),
    )


def _forget(engine: Engine, tenant: str) -> None:
    engine.part(EgressBook).forget(tenant)


_LISTS: Final = tenant_docs.Kind(name=KIND, view=_view, forget=_forget)
