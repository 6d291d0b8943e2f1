"""Settings that nobody reads because their name is misspelt: told when a process starts.

They are not refused: an older version must start with the settings of a newer one, or a deployment
that brought a new setting could not be taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from typing import Final

from orchestrator.domain.nearest import Nearest
from orchestrator.settings import PREFIX, Settings
from orchestrator.settings_azure import AzureSettings

log = logging.getLogger(__name__)

SECRETS: Final = f"{PREFIX}SECRET_"
"""Secrets of tenants: their names are anybody's."""
COMMAND_LINE: Final = frozenset(f"{PREFIX}{one}" for one in ("URL", "TOKEN", "TENANT", "REASON"))
OWN: Final = ("Payloads__", "KeyVault__")
"""Connections that no Functions extension reads; of the others an extension may know more."""


def known() -> frozenset[str]:
    """The name of every setting."""
    own = Settings.model_fields.keys() - {"azure", "telemetry"}
    azure = {field.alias for field in AzureSettings.model_fields.values() if field.alias}
    return frozenset(f"{PREFIX}{name.upper()}" for name in own) | azure | COMMAND_LINE


def ignored(names: Iterable[str]) -> list[str]:
    """A sentence for each of `names` that looks like a setting and is none, in order."""
    settings, hints = known(), Nearest()
    lines: list[str] = []
    for name in sorted(names):
        ours = name.upper().startswith(PREFIX)
        # The prefix is upper case or it is not seen; what follows it may be written in any case.
        read = name.upper() in settings if name.startswith(PREFIX) else name in settings
        if read or name.startswith(SECRETS) or not (ours or name.startswith(OWN)):
            continue
        hint = hints.hint(name, settings)
        lines.append(f"no setting is called {name}{f'; {hint}' if hint else ''}")
    return lines


def tell(names: Iterable[str]) -> None:
    """Log what `ignored` finds, each name once in the life of the process, and never its value."""
    for line in ignored(names):
        _say(line)


@cache
def _say(line: str) -> None:
    log.warning("%s", line, extra={"action": "settings.ignored"})
