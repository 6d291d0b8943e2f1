"""Environment -> frozen settings. Every fault is listed at once, at start, with its mend.

A setting that is found wrong one at a time costs one deployment each; one that is found wrong by
its first use fails in the middle of somebody's execution.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from orchestrator import settings_rules as rules
from orchestrator.domain.retention import Retention, parse_age, parse_ages
from orchestrator.domain.status import ExecutionStatus
from orchestrator.settings_auth import EasyClaims, Issuers, Tenant, auth_faults
from orchestrator.settings_azure import AzureSettings
from orchestrator.settings_egress import LOOPBACK, Networks
from orchestrator.settings_events import PublishTargets
from orchestrator.settings_limits import LimitSettings
from orchestrator.settings_telemetry import TelemetrySettings, telemetry_values

PREFIX = "WEFT_"
BACKEND = "WEFT_BACKEND"
DEFAULT_TENANT = "default"
"""Of the development identity and of tokens of `weft token`."""
LogFormat: TypeAlias = Literal["text", "json"]


def _ages(text: str) -> str:
    parse_ages(text)
    return text


def _age(text: str) -> str:
    parse_age(text)
    return text


class Settings(LimitSettings, BaseSettings):
    """What can be set from outside, as `WEFT_<NAME>`. Times in milliseconds."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    backend: Literal["local", "azure"] = Field(
        default="local",
        description="`local`: SQLite and files. `azure`: Cosmos DB, Service Bus, Blob Storage. "
        "Must be set under a Functions host",
    )
    data_dir: Path = Field(
        default=Path(".weft"), description="Folder of the local backend; created when needed"
    )
    worker: str = Field(
        default="",
        max_length=128,
        description="Name of this process in leases and attempts. Left out: host and process id",
    )
    secrets_file: Path | None = Field(
        default=None,
        description='Private file (mode 600) with secrets, `{"tenant": {"name": "value"}}`',
    )
    secrets_ttl_ms: int = Field(
        default=300_000,
        ge=0,
        le=86_400_000,
        description="How long a process uses a secret without reading it again: a rotated one is "
        "taken up within this",
    )
    lease_ms: int = Field(
        default=30_000,
        ge=1_000,
        le=3_600_000,
        description="A worker that does not renew its task within this is taken for dead",
    )
    silence_ms: int = Field(
        default=60_000,
        ge=100,
        description="The sweeper looks after an open execution without a commit for this long",
    )
    outbox_grace_ms: int = Field(
        default=60_000, ge=100, description="The sweeper sends an outbox older than this"
    )
    retry_grace_ms: int = Field(
        default=10_000,
        ge=100,
        description="The sweeper sends a retry whose message is this late",
    )
    breaker_failures: int = Field(
        default=10,
        ge=0,
        description="A circuit breaker opens after this many failures of a dependency within its "
        "window. 0: only by hand",
    )
    breaker_percent: int = Field(
        default=50, ge=1, le=100, description="… if they are this share of all outcomes"
    )
    breaker_window_ms: int = Field(
        default=60_000, ge=1_000, le=3_600_000, description="The window of a circuit breaker"
    )
    breaker_open_ms: int = Field(
        default=30_000,
        ge=100,
        le=3_600_000,
        description="How long a breaker is open before one task tries; doubled while that fails",
    )
    breaker_max_open_ms: int = Field(
        default=300_000, ge=100, le=86_400_000, description="… up to this"
    )
    breaker_probe_ms: int = Field(
        default=60_000,
        ge=1_000,
        le=3_600_000,
        description="When another task may try because the one that tries has not ended",
    )
    retention: Annotated[str, AfterValidator(_ages)] = Field(
        default="30d",
        description="How long executions are kept after their end: a duration, `never`, or "
        "`completed=7d,failed=90d,cancelled=never`",
    )
    archive: bool = Field(
        default=True,
        description="Whether a compressed copy of what is removed goes to the payload store first",
    )
    archive_retention: Annotated[str, AfterValidator(_age)] = Field(
        default="365d",
        description="How long such a copy is kept: a duration, or `never` (it is never removed)",
    )
    audit_days: int = Field(
        default=0,
        ge=0,
        le=36_500,
        description="Audit records are removed after this many days. 0: never",
    )
    publish_targets: PublishTargets = Field(
        default={},
        description="Where `publish` tasks may send events: `NAME=queue:QUEUE`, `NAME=topic:TOPIC` "
        "or `NAME=eventgrid:https://HOST/api/events`, separated by commas. Queues and topics are "
        "of the own namespace. The local backend puts all of them into its own queue `events`",
    )
    egress_allow: Networks | None = Field(
        default=None,
        description="Networks that `http` tasks may reach although they are not public, such as "
        "`10.1.0.0/16`, separated by commas. Left out: loopback with the local backend, else none",
    )
    auth_issuers: Issuers = Field(
        default=(),
        description="Whose bearer tokens are accepted: a JSON list, see docs/security.md. Left out "
        "with the local backend: the development identity and tokens of `weft token`",
    )
    auth_easy: bool = Field(
        default=False,
        description="`true`: App Service Authentication sits in front of this app, so its header "
        "`X-MS-CLIENT-PRINCIPAL` says who asks. Otherwise the header is ignored",
    )
    auth_easy_claims: EasyClaims | None = Field(
        default=None,
        description="How that header is read: a JSON object with the fields of an issuer that are "
        "about claims",
    )
    auth_local: bool = Field(
        default=False,
        description="`true`: tokens of `weft token` with this `WEFT_DATA_DIR` are accepted, and "
        "nobody is let in without a token. Refused in Azure",
    )
    events_tenant: Tenant = Field(
        default=DEFAULT_TENANT,
        description="Whose events those are that come by the queue `events` or by Event Grid",
    )
    platform_tenant: Tenant | None = Field(
        default=None,
        description="Administrators of this tenant are the platform's: they set limits of tenants. "
        "Left out: `default` with the local backend, else nobody can",
    )
    trace_ratio: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Share of new traces that is recorded, 0 to 1. Whoever continues a trace does "
        "as its beginner decided. Left out: 0.1 in Azure, else 1",
    )
    log_format: LogFormat | None = Field(
        default=None,
        description="`json`: one object a line; `text`: for people. Left out: `json` in Azure, "
        "else `text`",
    )
    telemetry: TelemetrySettings = TelemetrySettings()
    """Where traces and metrics go. Its settings have no prefix."""
    azure: AzureSettings | None = None
    """Set exactly if `backend` is `azure`. Its settings have no prefix, see `settings_azure`."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load_settings` passes: tests must not depend on the process environment."""
        return (init_settings,)

    @property
    def egress_networks(self) -> tuple[str, ...]:
        """Networks (CIDR) that are not public and that http tasks may reach nevertheless."""
        if self.egress_allow is not None:
            return self.egress_allow
        return LOOPBACK if self.backend == "local" else ()

    @property
    def platform(self) -> str:
        """The tenant whose administrators are the platform's; empty: none."""
        return self.platform_tenant or (DEFAULT_TENANT if self.backend == "local" else "")

    @property
    def auth_development(self) -> bool:
        """Whether whoever reaches the port may do everything: the embedded mode, as it comes."""
        asked = self.auth_issuers or self.auth_easy or self.auth_local
        return self.backend == "local" and not asked

    @property
    def traced(self) -> float:
        """Share of new traces that is recorded."""
        if self.trace_ratio is not None:
            return self.trace_ratio
        return 0.1 if self.backend == "azure" else 1.0

    @property
    def log_form(self) -> LogFormat:
        """What a log record looks like."""
        return self.log_format or ("json" if self.backend == "azure" else "text")

    @property
    def worker_name(self) -> str:
        """This process in leases and attempts: `WEFT_WORKER`, or host and process id."""
        return self.worker or f"{socket.gethostname()}:{os.getpid()}"

    @property
    def kept(self) -> Retention:
        """`WEFT_RETENTION`, `WEFT_ARCHIVE` and `WEFT_ARCHIVE_RETENTION`."""
        ages = parse_ages(self.retention)
        return Retention(
            completed_ms=ages[ExecutionStatus.COMPLETED],
            failed_ms=ages[ExecutionStatus.FAILED],
            cancelled_ms=ages[ExecutionStatus.CANCELLED],
            archive=self.archive,
            archive_ms=parse_age(self.archive_retention),
        )


class SettingsError(Exception):
    """The environment is not usable; the message lists every fault."""


def load_settings(env: Mapping[str, str] | None = None) -> Settings:
    """Read `env` (default: the process environment). Raises `SettingsError`.

    Without `WEFT_BACKEND` it is `local`, but only outside a Functions host: an app that was meant
    for Cosmos DB must not quietly keep its state on the disk of one instance.
    """
    given = os.environ if env is None else env
    values: dict[str, Any] = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in given.items()
        if name.startswith(PREFIX)
    }
    values.pop("azure", None)
    values["telemetry"] = telemetry_values(given)
    faults = _backend_faults(given)
    if given.get(BACKEND) == "azure":
        wrong = rules.faults(given)
        faults += wrong
        if not wrong:
            values["azure"] = _azure(given)
    faults += auth_faults(given)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        faults += [
            f"{_name(fault['loc'])}: {fault['msg']}" for fault in error.errors(include_input=False)
        ]
    else:
        if not faults:
            return settings
    raise SettingsError("settings are not usable:\n  " + "\n  ".join(faults))


def _name(place: tuple[int | str, ...]) -> str:
    """The setting that a fault is about."""
    if place[0] == "telemetry":
        return str(place[-1])
    return f"{PREFIX}{'_'.join(map(str, place)).upper()}"


def _backend_faults(given: Mapping[str, str]) -> list[str]:
    backend = given.get(BACKEND)
    if backend is None and any(name in given for name in rules.FUNCTIONS_HOST):
        return [f"{BACKEND}: missing under a Functions host; set it to azure (or local, to try)"]
    if backend == "local" and rules.CLOUD_HOST in given:
        return [
            f"{BACKEND}: local in Azure would keep all state on the disk of one instance; set it "
            "to azure"
        ]
    return []


def _azure(given: Mapping[str, str]) -> AzureSettings:
    values: dict[str, Any] = {
        field.alias: given[field.alias]
        for field in AzureSettings.model_fields.values()
        if field.alias is not None and given.get(field.alias)
    }
    # All that are set say the same.
    values["AZURE_CLIENT_ID"] = next(iter(rules.client_ids(given).values()), "")
    values["managed_identity"] = rules.managed_identity(given)
    return AzureSettings.model_validate(values)
