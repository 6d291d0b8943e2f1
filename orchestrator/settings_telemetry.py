"""Settings of telemetry, under the names that Azure and OpenTelemetry give them everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class TelemetrySettings(BaseModel):
    """Where traces and metrics go: to Application Insights if it is named, else to a collector."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    insights_connection: SecretStr = Field(
        default=SecretStr(""),
        alias="APPLICATIONINSIGHTS_CONNECTION_STRING",
        description="Application Insights, which then gets traces and metrics, under the identity "
        "of `APPLICATIONINSIGHTS_AUTHENTICATION_STRING`",
    )
    otlp_endpoint: str = Field(
        default="",
        alias="OTEL_EXPORTER_OTLP_ENDPOINT",
        pattern=r"^$|^https?://\S+$",
        description="Without Application Insights: an OTLP collector over HTTP, such as "
        "`http://localhost:4318`. Its headers: `OTEL_EXPORTER_OTLP_HEADERS`. Neither of both: "
        "nothing is exported",
    )
    service: str = Field(
        default="weft",
        alias="OTEL_SERVICE_NAME",
        description="Name of this app in traces and metrics",
    )

    @property
    def enabled(self) -> bool:
        """Whether anything is exported."""
        return bool(self.insights_connection.get_secret_value() or self.otlp_endpoint)


def telemetry_values(given: Mapping[str, str]) -> dict[str, Any]:
    """What of the environment is for `TelemetrySettings`; an empty setting is none."""
    names = (field.alias for field in TelemetrySettings.model_fields.values())
    return {name: given[name] for name in names if name is not None and given.get(name)}
