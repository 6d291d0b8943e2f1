"""Two tenants with something of every kind in one of them, and people with little permission."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from http_client import Client, Got
from http_support import make_client

from orchestrator.domain.authz import ALL_SCOPES, Grant, Principal, Scope
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import breakers_act, catalog, project, submit
from orchestrator.functions.http_routes import Route
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports import ActivityCall
from tests.support.archives import archived
from tests.support.bulks import registry
from tests.support.definitions import flow, retry, task
from tests.support.identities import Doors, admin
from tests.support.world import FakeActivities, World

ACME, BETA = "acme", "beta"
PLATFORM = "platform"
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {}}
TRIGGER = {"workflow": "billing-run", "match": {"type": "order.placed"}}
SCHEDULE = {"workflow": "billing-run", "cron": "0 9 * * *"}
HELD = (Scope.READ,)


def person(*scopes: Scope, tenant: str = ACME, subject: str = "eve", **more: Any) -> Principal:
    """Somebody with one grant."""
    grant = Grant(tenant=tenant, scopes=frozenset(scopes), **more)
    return Principal(subject=subject, tenants=(tenant,), grants=(grant,))


def people() -> dict[str, Principal]:
    """Everybody of these tests, by the name that the header `as` has."""
    found = {
        "root": admin(ACME, "root"),
        "beta": admin(BETA, "root"),
        "platform": admin(PLATFORM, "pat"),
        "platform-viewer": person(Scope.READ, Scope.OPERATE, tenant=PLATFORM),
        "nobody": Principal(subject="nobody", tenants=(ACME,)),
        "stateless": Principal(subject="stateless"),
        "both": Principal(
            subject="both",
            tenants=(ACME, BETA),
            grants=(
                Grant(tenant=ACME, scopes=ALL_SCOPES),
                Grant(tenant=BETA, scopes=frozenset(HELD)),
            ),
        ),
        "billing": person(*ALL_SCOPES, workflows=("billing-*",)),
        "reader": person(Scope.READ, workflows=("billing-*",)),
        "red": person(Scope.READ, Scope.OPERATE, tags=(("team", "red"),)),
        "own": person(Scope.READ, Scope.EXECUTE, Scope.OPERATE, subject="own", own=True),
    }
    for scope in Scope:
        name = scope.value.removeprefix("workflow:")
        found[f"only-{name}"] = person(scope)
        found[f"all-but-{name}"] = person(*(ALL_SCOPES - {scope}))
    return found


def boom(call: ActivityCall) -> Any:
    raise ValueError("no")


@dataclass
class Place:
    """A platform with its API, and the ids of what is in tenant `acme`."""

    world: World
    client: Client
    ids: dict[str, str]

    async def ask(self, who: str, method: str, url: str, **more: Any) -> Got:
        headers = {**more.pop("headers", {}), **({"as": who} if who else {})}
        return await self.client(method, url, headers=headers, **more)

    async def route(self, who: str, route: Route, **more: Any) -> Got:
        """Call a route about what there is in `acme`, with a body that is right."""
        body = BODIES.get(route.name, {} if route.method in ("POST", "PUT") else None)
        if route.name == "send_events":
            more["headers"] = {"Content-Type": "application/cloudevents+json"}
        return await self.ask(who, route.method, self.path(route), json=body, **more)

    def path(self, route: Route) -> str:
        """The address of a route, filled in."""
        return "/" + re.sub(r"{(\w+)}", lambda found: self.ids[found[1]], route.path)

    async def start(self, workflow: str, by: str, **tags: str) -> str:
        found = await submit.start(
            self.world.engine, ACME, workflow, None, tags=tags, started_by=by
        )
        return found.id

    async def project(self) -> None:
        """Let lists catch up."""
        page = await self.world.engine.store.changes(EXECUTIONS, None, 10_000)
        await project.project_documents(
            self.world.engine, [document.body for document in page.documents]
        )


BODIES: dict[str, Any] = {
    "publish_workflow": flow("other", a=task("noop")),
    "send_signal": {"name": "go"},
    "bulk_deadletters": {"action": "fail", "filter": {"workflow": "billing-run"}, "reason": "x"},
    "bulk_executions": {"action": "cancel", "filter": {"workflow": "billing-run"}, "reason": "x"},
    "create_schedule": {"name": "n", **SCHEDULE},
    "update_schedule": SCHEDULE,
    "create_trigger": {"name": "n", **TRIGGER},
    "put_trigger": TRIGGER,
    "test_trigger": EVENT,
    "send_events": EVENT,
    "put_grants": {"grants": []},
    "put_egress": {"onlyHosts": ["a.example"]},
    "put_limits": {"openExecutions": 5},
}


async def place(folder: Any) -> Place:
    """A workflow of each kind with a dead letter; a schedule, a trigger and a breaker."""
    activities = FakeActivities(noop=lambda call: None, boom=boom)
    world = await World(folder, activities).open()
    world.engine.authenticator = Doors(**people())
    world.engine.platform_tenant = PLATFORM
    world.engine.code = registry()
    for name in ("billing-run", "orders"):
        source = flow(name, a=task("boom", retry=retry(1)))
        await catalog.publish(world.engine, ACME, source)

    async def build() -> Any:
        return world.engine

    made = Place(world, make_client(EngineProvider(build)), {})
    old = await made.start("billing-run", "eve", team="blue")
    await world.run_until_quiet()
    archive = await archived(world.engine, ACME, old)
    execution = await made.start("billing-run", "eve", team="blue")
    await world.run_until_quiet()
    root = "root"
    assert (await made.ask(root, "PUT", "/v1/triggers/t", json=TRIGGER)).status == 201
    assert (
        await made.ask(root, "POST", "/v1/schedules", json={"name": "s", **SCHEDULE})
    ).status == 201
    await breakers_act.open_(world.engine, ACME, "pay.example", by="x", reason="")
    (letter,) = (await made.ask(root, "GET", "/v1/deadletters")).json()["items"]
    made.ids.update(
        name="billing-run", n="1", id=execution, taskId="a", letterId=letter["id"],
        schedule="s", triggerName="t", dependency="pay.example", tenantId=ACME,
        archiveId=archive,
    )  # fmt: skip
    return made
