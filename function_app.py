"""The composition root that the Functions worker imports: settings -> engine -> blueprints.

Importing it reads no file and makes no client: the worker imports it before its event loop serves
anything, and a fault in the settings must be told by `/health`, not by an app without functions.
"""

from __future__ import annotations

from orchestrator import bootstrap, logs
from orchestrator.engine.core import Engine
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.settings import load_settings


async def build() -> Engine:
    """The engine of this process, from its environment; called by the first trigger."""
    settings = load_settings()
    logs.shape(settings.log_form)
    return await bootstrap.build(settings)


app = compose(EngineProvider(build))
