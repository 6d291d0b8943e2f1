"""The one place that builds the graph of objects: settings in, `Engine` out.

Tests call it too, with fakes for some ports, so that the wiring itself is tested.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from orchestrator.adapters.local.env_secrets import EnvSecrets
from orchestrator.adapters.local.file_payloads import FilePayloads
from orchestrator.adapters.local.sqlite_broker import SqliteBroker
from orchestrator.adapters.local.sqlite_store import SqliteStore
from orchestrator.adapters.local.system import SystemClock, SystemIds
from orchestrator.bootstrap_auth import open_front
from orchestrator.domain.breakers import BreakerRules
from orchestrator.engine import log_redaction
from orchestrator.engine.core import Closing, Engine, Tunables
from orchestrator.engine.metrics import Metrics
from orchestrator.engine.metrics_catalog import Catalog
from orchestrator.ports import (
    ActivityRunner,
    Clock,
    DocumentStore,
    Ids,
    PayloadStore,
    Secrets,
    Transport,
)
from orchestrator.ports_durable import CodeWorkflows, Empty, Orchestrations
from orchestrator.ports_events import EventSink
from orchestrator.ports_telemetry import Backlog, NoTracer, Pinging, Tracer
from orchestrator.settings import Settings

log = logging.getLogger(__name__)

STORE_FILE = "weft.db"
BROKER_FILE = "broker.db"
PAYLOADS_FOLDER = "payloads"


async def build(
    settings: Settings,
    *,
    store: DocumentStore | None = None,
    transport: Transport | None = None,
    payloads: PayloadStore | None = None,
    secrets: Secrets | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    activities: ActivityRunner | None = None,
    code: CodeWorkflows | None = None,
    orchestrations: Orchestrations | None = None,
) -> Engine:
    """An engine on the running event loop; every port that is not given comes from the settings.
    `await engine.close()` releases all of them. Raises `OSError` or `StoreError` if the data
    directory or the database cannot be used."""
    clock, metrics = clock or SystemClock(), Metrics()
    if activities is None:
        # Imported here: importing the users' activities is slow and may fail; only this needs it.
        from activities.runner import default_runner

        activities = default_runner(egress_allow=settings.egress_networks)
    ports = await _ports(
        settings,
        clock,
        metrics,
        store=store,
        transport=transport,
        payloads=payloads,
        secrets=secrets,
    )
    probes = {"broker": ports.transport, "payloads": ports.payloads, "secrets": ports.secrets}
    log_redaction.install()
    front = open_front(settings, clock=clock)
    engine = Engine(
        store=ports.store,
        transport=ports.transport,
        payloads=ports.payloads,
        secrets=ports.secrets,
        activities=activities,
        clock=clock,
        ids=ids or SystemIds(),
        worker=settings.worker_name,
        metrics=metrics,
        tracer=_tracer(settings, metrics),
        backlog=ports.transport if isinstance(ports.transport, Backlog) else None,
        probes={name: one for name, one in probes.items() if isinstance(one, Pinging)},
        others=(*ports.others, front),
        authenticator=front,
        events_tenant=settings.events_tenant,
        platform_tenant=settings.platform,
        sink=ports.sink,
        code=code or Empty(),
        orchestrations=orchestrations,
        event_targets=frozenset(settings.publish_targets),
        tunables=_tunables(settings),
    )
    if ports.warm_up is not None:
        engine.spawn(ports.warm_up(), "weft-warm-up")
    if settings.auth_issuers:
        engine.spawn(front.warm_up(), "weft-issuer-keys")
    if front.warning:
        log.warning(front.warning, extra={"action": "auth.development"})
    return engine


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ports:
    """What `Engine` is built with of one backend. `others`: see there."""

    store: DocumentStore
    transport: Transport
    payloads: PayloadStore
    secrets: Secrets
    sink: EventSink | None = None
    others: tuple[Closing, ...] = ()
    warm_up: Callable[[], Coroutine[Any, Any, None]] | None = None


async def _ports(
    settings: Settings,
    clock: Clock,
    metrics: Metrics,
    *,
    store: DocumentStore | None,
    transport: Transport | None,
    payloads: PayloadStore | None,
    secrets: Secrets | None,
) -> _Ports:
    """The ports that are given, and those of the backend for the others."""
    if settings.azure is not None:
        # Imported here: the SDKs are slower to import than the rest of Weft together.
        from orchestrator import bootstrap_azure

        opened = await bootstrap_azure.open_ports(
            settings.azure,
            secrets_file=settings.secrets_file,
            clock=clock,
            metrics=metrics,
            targets=settings.publish_targets,
            store=store,
            transport=transport,
            payloads=payloads,
            secrets=secrets,
        )
        return _Ports(
            store=opened.store,
            transport=opened.transport,
            payloads=opened.payloads,
            secrets=opened.secrets,
            sink=opened.sink,
            others=opened.others,
            warm_up=partial(bootstrap_azure.warm_up, opened.transport),
        )
    folder = settings.data_dir
    folder.mkdir(parents=True, exist_ok=True)
    if store is None:
        store = SqliteStore(folder / STORE_FILE, clock=clock)
        await store.open()
    if transport is None:
        transport = SqliteBroker(folder / BROKER_FILE, clock=clock)
        await transport.open()
    return _Ports(
        store=store,
        transport=transport,
        payloads=payloads or FilePayloads(folder / PAYLOADS_FOLDER),
        secrets=secrets or EnvSecrets(file=settings.secrets_file),
    )


def _tunables(settings: Settings) -> Tunables:
    return Tunables(
        lease_ms=settings.lease_ms,
        silence_ms=settings.silence_ms,
        outbox_grace_ms=settings.outbox_grace_ms,
        retry_grace_ms=settings.retry_grace_ms,
        secrets_ttl_ms=settings.secrets_ttl_ms,
        retention=settings.kept,
        audit_days=settings.audit_days,
        limits=settings.tenant_limits,
        breaker=BreakerRules(
            failures=settings.breaker_failures,
            percent=settings.breaker_percent,
            window_ms=settings.breaker_window_ms,
            open_ms=settings.breaker_open_ms,
            max_open_ms=settings.breaker_max_open_ms,
            probe_ms=settings.breaker_probe_ms,
        ),
    )


def _tracer(settings: Settings, metrics: Metrics) -> Tracer:
    """What exports traces and metrics, if the settings say where to."""
    given = settings.telemetry
    if not given.enabled:
        return NoTracer()
    # Imported here: an SDK that most processes on a laptop never need.
    from orchestrator.adapters.telemetry.exporters import Target, open_tracer

    target = Target(
        connection=given.insights_connection.get_secret_value(),
        otlp=given.otlp_endpoint,
        ratio=settings.traced,
        service=given.service,
        instance=settings.worker_name,
    )
    return open_tracer(target, Catalog(metrics))
