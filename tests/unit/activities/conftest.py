"""The runner that the tests of the http activity share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from activities_support import LIMIT, NOW_MS

from activities.egress import EgressPolicy
from activities.http import HttpActivity
from activities.registry import Registry
from activities.runner import Runner
from orchestrator.settings_egress import LOOPBACK


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    """A runner with an http activity that takes small answers only; closed at the end."""
    http = HttpActivity(policy=EgressPolicy(LOOPBACK), max_response_bytes=LIMIT, now=lambda: NOW_MS)
    registry = Registry()
    registry.register("weft.http", http.run, built_in=True)
    runner = Runner(registry, closers=(http.close,))
    yield runner
    await runner.close()
