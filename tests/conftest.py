"""What holds for all tests.

Property tests have no time limit of their own: on a machine that is busy with something else they
would fail for being slow, not for being wrong. pytest's limit per test stays.

Typer's test runner makes the whole command line anew for each call, a tenth of a second of hundreds
of tests. Real processes make it once, and so do the tests of one.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Generator

import pytest
import typer.testing
from httpx._config import create_ssl_context
from hypothesis import HealthCheck, settings

from tests.support.disk import not_waited_for

# The profile that is active is the parent: with CI in the environment that is Hypothesis's own
# `ci`, whose examples are the same in every run.
settings.register_profile(
    "weft",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=40,  # hundreds of properties: the whole suite has to stay quick
)
settings.load_profile("weft")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests are half a million objects that stay: Python's collector need not look at
    them again and again, neither while they are made nor in every test that runs afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def disk() -> Generator[None]:
    """See `tests/support/disk.py`."""
    with not_waited_for():
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Generator[None]:
    """Each client of httpx reads the certificates of all authorities, 20 ms each time."""
    with pytest.MonkeyPatch.context() as patch:
        place = "httpx._transports.default.create_ssl_context"
        patch.setattr(place, functools.cache(create_ssl_context))
        yield


typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]
