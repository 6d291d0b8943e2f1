"""Every test of durable functions: nothing left open, nothing counted before, and the library's one
sign of a history that does not fit is an error."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from tests.support import durable_hub
from tests.support.durable_app import BROKEN, CALLS


@pytest.fixture(autouse=True)
def durable_world() -> Iterator[None]:
    CALLS.clear()
    BROKEN.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the library's untyped loads
        warnings.filterwarnings("error", "Potential duplicate")
        yield
    durable_hub.close_all()
