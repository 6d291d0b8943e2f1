"""What holds for all tests.

Property tests have no time limit of their own: on a machine that is busy with something else they
would fail for being slow, not for being wrong. pytest's limit per test stays.

Typer's test runner makes the whole command line anew for each call, a tenth of a second of hundreds
of tests. Real processes make it once, and so do the tests of one.
"""

from __future__ import annotations

from functools import cache

import typer.testing
from hypothesis import HealthCheck, settings

# The profile that is active is the parent: with CI in the environment that is Hypothesis's own
# `ci`, whose examples are the same in every run.
settings.register_profile(
    "weft",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=40,  # hundreds of properties: the whole suite has to stay quick
)
settings.load_profile("weft")

typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]
