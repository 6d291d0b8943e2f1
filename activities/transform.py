"""`transform` tasks: the engine has resolved the expressions, the result is the output.

An activity like any other, so that claim, retry, size limits and history are the same for it.
"""

from __future__ import annotations

from orchestrator.domain.jsontypes import Json


async def transform(input: Json) -> Json:
    """Its input."""
    return input
