"""Whether and when a failed attempt is tried again: a pure decision, acted on by the worker.

Delays are real (the worker schedules a message), so they must be right at the edges: the exponent
is bounded before anything is multiplied (attempt 1,100 or coefficient 1e308 must not overflow and
end the chain), then the cap applies, then the jitter. Jitter comes from a hash of the task's key
and the attempt, never from a random source: the same attempt decided twice gets the same delay.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

from orchestrator.domain.failure import Failure
from orchestrator.domain.workflow import Jitter, RetryPolicy

MAX_DELAY_MS: Final = 30 * 24 * 3600 * 1000
"""Platform maximum of one backoff delay, whatever `maxInterval` says: 30 days."""

MAX_RETRY_AFTER_MS: Final = 24 * 3600 * 1000
"""Platform maximum of a delay that a dependency asks for (`Retry-After`): 1 day. It may exceed the
policy's `maxInterval`, because the dependency knows; not this, because it may be wrong."""

DECORRELATED_FACTOR: Final = 3
"""Decorrelated jitter draws from [initial, 3 x the delay before], after Marc Brooker's
"Exponential Backoff And Jitter" (AWS Architecture Blog, 2015)."""

_DECORRELATED_STEPS: Final = 64
"""Delays walked back for decorrelated jitter: 3**64 exceeds every cap, so the walk has long met the
cap by then and a longer one would only cost time."""

_UNIT: Final = 1 << 64


def is_retryable(policy: RetryPolicy, failure: Failure) -> bool:
    """Whether `failure` may be tried again at all. `nonRetryable` wins over `retryable`; a failure
    that says so itself (`retryable` False) is never tried again."""
    if not failure.retryable or failure.type in policy.non_retryable:
        return False
    return policy.retryable is None or failure.type in policy.retryable


def next_delay(
    policy: RetryPolicy, *, attempt: int, key: str, retry_after_ms: int | None = None
) -> int | None:
    """Milliseconds until the attempt after `attempt` (the one that failed, from 1); None when no
    attempt is left.

    `key` names the task of this execution (its idempotency key): it seeds the jitter.
    `retry_after_ms`: what the dependency asked for; positive values replace the backoff up to
    `MAX_RETRY_AFTER_MS`, others are ignored. Whether the failure is retryable is `is_retryable`'s
    to say.
    """
    if attempt >= policy.max_attempts:
        return None
    if retry_after_ms is not None and retry_after_ms > 0:
        return min(retry_after_ms, MAX_RETRY_AFTER_MS)
    full = backoff(policy, attempt)
    if policy.jitter is Jitter.FULL:
        return _scale(full, _fraction(key, attempt))
    if policy.jitter is Jitter.EQUAL:
        half = full // 2
        return half + _scale(full - half, _fraction(key, attempt))
    if policy.jitter is Jitter.DECORRELATED:
        return _decorrelated(policy, attempt, key)
    return full


def backoff(policy: RetryPolicy, attempt: int) -> int:
    """The delay after `attempt` before jitter: initial x coefficient^(attempt-1), at most
    `maxInterval` and `MAX_DELAY_MS`. Milliseconds."""
    cap = _cap(policy)
    initial = policy.initial_interval_ms
    if initial <= 0:
        return 0
    if initial >= cap:
        return cap
    exponent, coefficient = max(0, attempt - 1), policy.backoff_coefficient
    if coefficient <= 1 or exponent == 0:
        return initial
    # Compared as logarithms: the power itself may be beyond any float.
    if exponent * math.log(coefficient) >= math.log(cap / initial):
        return cap
    return min(cap, int(initial * coefficient**exponent))


def _cap(policy: RetryPolicy) -> int:
    return max(0, min(policy.max_interval_ms, MAX_DELAY_MS))


def _decorrelated(policy: RetryPolicy, attempt: int, key: str) -> int:
    """Each delay drawn from [initial, 3 x the one before], capped. The chain is walked again from
    its seed, so nothing but the attempt number has to be stored."""
    cap = _cap(policy)
    initial = min(policy.initial_interval_ms, cap)
    delay = initial
    for step in range(max(1, attempt - _DECORRELATED_STEPS), attempt + 1):
        spread = max(0, delay * DECORRELATED_FACTOR - initial)
        delay = min(cap, initial + _scale(spread, _fraction(key, step)))
    return delay


def _scale(span: int, fraction: int) -> int:
    """`span` x `fraction` / 2^64, in whole milliseconds, 0..span."""
    return (span + 1) * fraction // _UNIT


def _fraction(key: str, attempt: int) -> int:
    """0..2^64-1, evenly spread over keys and attempts."""
    seed = f"{key}\n{attempt}".encode("utf-8", errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big")
