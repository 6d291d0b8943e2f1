"""`notify`: who is told when an execution has ended."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from orchestrator.domain.definition_types import Model, fault

MAX_NOTIFICATIONS: Final = 10
SECRET_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_-]{0,126}$"


def _url(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    host = rest.partition("/")[0]
    if "${" in value:
        raise fault("BAD_URL", "a webhook's url is written out, without expressions")
    if not separator or scheme.lower() not in ("http", "https") or not host:
        raise fault("BAD_URL", "must be an http or https URL", "write https://host/path")
    if "@" in host:
        raise fault("BAD_URL", "the url holds credentials", "sign with `secret` instead")
    return value


def _distinct(value: list[Any]) -> list[Any]:
    if len(set(value)) < len(value):
        raise fault("BAD_VALUE", "a status is named twice")
    return value


class Webhook(Model):
    """A URL that is told by POST."""

    url: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_url)]
    secret: Annotated[str, Field(pattern=SECRET_PATTERN)] | None = None
    """Name of the tenant's secret that signs the request (HMAC-SHA-256)."""


class Notification(Model):
    """Who is told, and of which ends."""

    on: Annotated[
        list[Literal["completed", "failed", "cancelled"]],
        Field(min_length=1),
        AfterValidator(_distinct),
    ]
    webhook: Webhook | None = None
    to: Annotated[str, Field(min_length=1)] | None = None
    """Name of a target of events that gets a CloudEvent instead: one of the two is given."""
    include_output: bool = False
    """Whether the execution's output is sent, too; else no payload is."""
