"""How `weft --help` looks: which commands belong together, and in which order a person needs them.

Some forty commands in the order of their registration would begin with the rarest. The order is
here, and not in the modules, so that it can be read as a whole.
"""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperOption

from orchestrator.local.cli_auth import AuthGroup

PANELS: Final[dict[str, tuple[str, ...]]] = {
    "On this machine": ("up", "validate", "schema", "token"),
    "Workflows": ("publish", "workflows", "start"),
    "Executions": ("list", "show", "watch", "history", "signal", "signals", "verify"),
    "Steer them": ("pause", "resume", "cancel", "terminate", "retry", "replay", "bulk"),
    "When something failed": ("deadletters", "breakers"),
    "Start by clock or event": ("schedules", "triggers", "events"),
    "Code workflows": ("code", "replay-check"),
    "Run the platform": (
        ("smoke", "tenants", "grants", "audit", "archive", "erase", "reconcile", "rebuild")
    ),
}
_PLACES: Final = {
    name: (at, panel)
    for at, (name, panel) in enumerate(
        (name, panel) for panel, names in PANELS.items() for name in names
    )
}


class Root(AuthGroup):
    """The command group, arranged; see the module."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run one command line and leave with its exit code (`SystemExit`)."""
        command: Any
        for name, command in self.commands.items():
            command.rich_help_panel = _PLACES.get(name, (0, None))[1]
        _plain_flags(self)
        return super().main(*args, **extra)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of `PANELS`."""
        return sorted(self.commands, key=lambda name: _PLACES.get(name, (len(_PLACES), ""))[0])


def _plain_flags(command: Any) -> None:
    """No `<bool>` behind a flag: it looks as if `--watch true` were meant."""
    for param in command.params:
        if isinstance(param, TyperOption) and param.is_flag and param.metavar is None:
            param.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        _plain_flags(inner)
