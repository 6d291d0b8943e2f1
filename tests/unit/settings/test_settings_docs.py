"""`docs/azure.md` lists every setting, as the classes describe it.

After a change: `python -m tests.unit.settings.test_settings_docs` writes the new table.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from orchestrator.settings import PREFIX, Settings
from orchestrator.settings_azure import IDENTITY_SETTINGS, AzureSettings
from orchestrator.settings_limits import LimitSettings
from orchestrator.settings_telemetry import TelemetrySettings

LIMITS = LimitSettings.model_fields
PAGE = Path(__file__).parents[3] / "docs" / "azure.md"
BEGIN, END = "<!-- settings -->\n", "<!-- /settings -->\n"


def shown(field: FieldInfo) -> str:
    """The default, as it would be set."""
    if field.is_required():
        return "required"
    default = field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    return f"`{default}`" if default not in ("", None, {}, ()) else ""


def table() -> str:
    """All settings, in the order of the classes; the defaults of limits after the other ones."""
    fields = sorted(Settings.model_fields.items(), key=lambda one: one[0] in LIMITS)
    rows = [
        (f"{PREFIX}{name.upper()}", shown(field), field.description)
        for name, field in fields
        if name not in ("azure", "telemetry")
    ]
    rows += [
        (str(field.alias), shown(field), field.description)
        for kind in (TelemetrySettings, AzureSettings)
        for field in kind.model_fields.values()
        if field.alias is not None
    ]
    rows += [
        (f"{connection}{part}", "", text)
        for connection in ("Cosmos", "ServiceBus")
        for part, text in IDENTITY_SETTINGS.items()
    ]
    names = [name for name, _, _ in rows]
    assert "None" not in names
    assert len(set(names)) == len(names)
    lines = [f"| `{name}` | {default} | {text}. |" for name, default, text in rows]
    return "\n".join(["| Setting | Default | Meaning |", "|---|---|---|", *lines]) + "\n"


def test_the_page_has_the_table_of_the_settings() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table()


if __name__ == "__main__":
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1], "utf-8")
