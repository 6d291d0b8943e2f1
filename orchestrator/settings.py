"""Environment -> frozen settings. Every fault is listed at once, at start, with its mend."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

PREFIX = "WEFT_"


class Settings(BaseSettings):
    """What can be set from outside, as `WEFT_<NAME>`. Times in milliseconds."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    backend: Literal["local"] = "local"
    data_dir: Path = Path(".weft")
    worker: str = Field(default="", max_length=128)
    secrets_file: Path | None = None
    lease_ms: int = Field(default=30_000, ge=1_000, le=3_600_000)
    silence_ms: int = Field(default=60_000, ge=100)
    outbox_grace_ms: int = Field(default=60_000, ge=100)
    retry_grace_ms: int = Field(default=10_000, ge=100)

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
    def worker_name(self) -> str:
        """This process in leases and attempts: `WEFT_WORKER`, or host and process id."""
        return self.worker or f"{socket.gethostname()}:{os.getpid()}"


class SettingsError(Exception):
    """The environment is not usable; the message lists every fault."""


def load_settings(env: Mapping[str, str] | None = None) -> Settings:
    """Read `env` (default: the process environment). Raises `SettingsError`."""
    given = os.environ if env is None else env
    values = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in given.items()
        if name.startswith(PREFIX)
    }
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        faults = [
            f"{PREFIX}{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}"
            for fault in error.errors()
        ]
        raise SettingsError("settings are not usable:\n  " + "\n  ".join(faults)) from None
