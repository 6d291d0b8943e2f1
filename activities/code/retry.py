"""When a code workflow's activity is tried again: the platform's policy, as Python says it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from activities.code.values import duration_ms
from orchestrator.domain.defaults import (
    DEFAULT_BACKOFF_COEFFICIENT,
    DEFAULT_INITIAL_INTERVAL_MS,
    DEFAULT_JITTER,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_INTERVAL_MS,
    MAX_ATTEMPTS,
)
from orchestrator.domain.durations import format_duration
from orchestrator.domain.workflow import Jitter, RetryPolicy


@dataclass(frozen=True, kw_only=True)
class Retry:
    """As `retry` of a definition; what is left out is the platform's. Intervals are durations as
    text (`1s`, `5m`). Raises `ValueError` for what no policy may be."""

    max_attempts: int = DEFAULT_MAX_ATTEMPTS  # the first one included
    initial_interval: str = format_duration(DEFAULT_INITIAL_INTERVAL_MS)
    backoff_coefficient: float = DEFAULT_BACKOFF_COEFFICIENT
    max_interval: str | None = None
    jitter: str = str(DEFAULT_JITTER)
    retryable: Iterable[str] | None = None  # failure types; None: all but `non_retryable`
    non_retryable: Iterable[str] = ()

    def __post_init__(self) -> None:
        self.policy()

    def policy(self) -> RetryPolicy:
        """The same for `domain/retry.py`."""
        if not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            raise ValueError(f"max_attempts must be 1 to {MAX_ATTEMPTS:,}")
        if not self.backoff_coefficient >= 1:
            raise ValueError("backoff_coefficient must be at least 1")
        if self.jitter not in {str(one) for one in Jitter}:
            raise ValueError(f"jitter must be one of {', '.join(Jitter)}")
        initial = duration_ms(self.initial_interval)
        longest = (
            max(initial, DEFAULT_MAX_INTERVAL_MS)
            if self.max_interval is None
            else duration_ms(self.max_interval)
        )
        return RetryPolicy(
            max_attempts=self.max_attempts,
            initial_interval_ms=initial,
            backoff_coefficient=self.backoff_coefficient,
            max_interval_ms=longest,
            jitter=Jitter(self.jitter),
            retryable=None if self.retryable is None else frozenset(self.retryable),
            non_retryable=frozenset(self.non_retryable),
        )


def policy_doc(policy: RetryPolicy) -> dict[str, Any]:
    """The policy as JSON, for the instance that retries."""
    return {
        "maxAttempts": policy.max_attempts,
        "initialMs": policy.initial_interval_ms,
        "coefficient": policy.backoff_coefficient,
        "maxMs": policy.max_interval_ms,
        "jitter": str(policy.jitter),
        "retryable": None if policy.retryable is None else sorted(policy.retryable),
        "nonRetryable": sorted(policy.non_retryable),
    }


def policy_from(doc: dict[str, Any]) -> RetryPolicy:
    """Inverse of `policy_doc`."""
    retryable = doc["retryable"]
    return RetryPolicy(
        max_attempts=doc["maxAttempts"],
        initial_interval_ms=doc["initialMs"],
        backoff_coefficient=doc["coefficient"],
        max_interval_ms=doc["maxMs"],
        jitter=Jitter(doc["jitter"]),
        retryable=None if retryable is None else frozenset(retryable),
        non_retryable=frozenset(doc["nonRetryable"]),
    )
