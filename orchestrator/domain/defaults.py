"""What holds when a definition says nothing, and the limits on what it may say.

One place, so that documentation, validation and compilation cannot differ. Each field of a retry
policy falls back by itself: task, then the definition's `defaults`, then these.
"""

from __future__ import annotations

from typing import Final

from orchestrator.domain.topology import MAX_ACTIVITY_TIMEOUT_MS
from orchestrator.domain.workflow import Jitter

DEFAULT_TIMEOUT_MS: Final = 5 * 60_000  # of one attempt: under the usual host and proxy limits

DEFAULT_MAX_ATTEMPTS: Final = 3  # the first one included
DEFAULT_INITIAL_INTERVAL_MS: Final = 1_000
DEFAULT_BACKOFF_COEFFICIENT: Final = 2.0
DEFAULT_MAX_INTERVAL_MS: Final = 5 * 60_000  # raised to the initial interval if that is longer
DEFAULT_JITTER: Final = Jitter.FULL  # a crowd of failures must not come back as a crowd

MAX_ATTEMPTS: Final = 10_000
MAX_ATTEMPT_TIMEOUT_MS: Final = MAX_ACTIVITY_TIMEOUT_MS
"""Of one attempt that occupies a worker. The host's lock renewal and function time-out exceed it,
or the broker would deliver a running task again. Longer work belongs into several tasks, a `wait`,
a `signal` or a child workflow."""
