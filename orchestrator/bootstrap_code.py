"""The code workflows of this app, and the task hub that runs them: what must be known before the
first trigger, since each is a function that the host indexes."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.ports_durable import CodeWorkflows, OrchestratorFunction

if TYPE_CHECKING:
    from orchestrator.adapters.azure.durable_client import DurableClient

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeApp:
    """`orchestrators` for `compose`, `workflows` and `hub` for the engine; `hub` is None where
    there is no code workflow."""

    workflows: CodeWorkflows
    orchestrators: tuple[OrchestratorFunction, ...]
    hub: DurableClient | None


def load() -> CodeApp:
    """Import the activities' modules and take what they registered. Never raises: a module that
    cannot be imported stops the engine (`bootstrap.build` imports them too), and `/health` says so;
    raised here it would leave an app without any function."""
    from activities.code.driver import functions
    from activities.code.registry import default_code_registry
    from activities.errors import RegistrationError
    from activities.registry import discover

    try:
        discover()
    except RegistrationError as error:
        log.error("%s", error, extra={"action": "code.load"})
    registry = default_code_registry()
    orchestrators = functions(registry)
    if not orchestrators:
        return CodeApp(workflows=registry, orchestrators=(), hub=None)
    from orchestrator.adapters.azure.durable_client import DurableClient

    return CodeApp(workflows=registry, orchestrators=orchestrators, hub=DurableClient())
