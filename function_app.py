"""The composition root that the Functions worker imports: settings -> engine -> blueprints.

Importing it reads no setting and connects to nothing: the worker imports it before its event loop
serves anything, and a fault in the settings must be told by `/health`, not by an app without
functions. The activities' modules are imported: each code workflow in them is a function.
"""

from __future__ import annotations

import os

from orchestrator import bootstrap, bootstrap_code, logs, settings_ignored
from orchestrator.engine.core import Engine
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.settings import load_settings

code = bootstrap_code.load()


async def build() -> Engine:
    """The engine of this process, from its environment; called by the first trigger."""
    # First: a misspelt name is often why another one is missing.
    settings_ignored.tell(os.environ)
    settings = load_settings()
    logs.shape(settings.log_form)
    return await bootstrap.build(settings, code=code.workflows, orchestrations=code.hub)


app = compose(EngineProvider(build, learn=code.hub.learn), code.orchestrators)
