"""The queues behind the tests' broker, without any protocol: nothing may get lost in them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, ORCHESTRATION_QUEUE, QUEUES
from tests.wire.servicebus.queues import LockLost, Queue, Stored, build

QUEUE = ORCHESTRATION_QUEUE

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 20), st.integers(0, 90_000)),
        st.tuples(
            st.sampled_from(["take", "complete", "abandon", "release", "bury", "renew", "lose"]),
            st.integers(0, 3),
            st.just(0),
        ),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 400_000)),
    ),
    max_size=60,
)


@given(STEPS)
def test_no_message_is_lost_nor_delivered_to_two_at_once(steps: list[tuple[str, int, int]]) -> None:
    """Whatever happens: every accepted message is completed, or in the queue, or a dead letter."""
    queues = build(QUEUES)
    queue, dead = queues[QUEUE], queues[QUEUE + DEAD_LETTER_SUFFIX]
    now, names = 1_000_000, itertools.count()
    accepted: set[str] = set()
    completed: set[str] = set()
    held: list[tuple[str, str, int]] = []  # token, message id, until
    for step, which, amount in steps:
        token, id, until = held[which % len(held)] if held else ("none", "", 0)
        if step == "send":
            name = f"{which}" if which < 10 else f"fresh{next(names)}"
            message = Stored(message_id=name, body=b"", due_at=now + amount)
            if queue.accept(message, now) is not None:
                accepted.add(name)
        elif step == "wait":
            now += amount
        elif step == "take":
            queue.advance(now)
            if (taken := queue.take(now)) is not None:
                taken_id = taken[1].message.message_id
                assert not any(id == taken_id and until > now for _, id, until in held)
                held.append((taken[0], taken_id, taken[1].until))
        elif step == "lose":
            queue.lose_locks(now)
            held = []
        else:
            try:
                _settle(queue, step, token, now)
            except LockLost:
                assert until <= now or token == "none"
            else:
                assert until > now
                held.remove((token, id, until))
                if step == "renew":
                    held.append((token, id, now + QUEUES[QUEUE].lock_seconds * 1000))
                if step == "complete":
                    completed.add(id)
        there = [message.message_id for message in [*queue.messages(), *dead.messages()]]
        assert set(there) | completed == accepted


def _settle(queue: Queue, step: str, token: str, now: int) -> None:
    match step:
        case "complete":
            queue.complete(token, now)
        case "abandon":
            queue.abandon(token, now)
        case "release":
            queue.release(token, now)
        case "bury":
            queue.dead_letter(token, "r", "d", now)
        case _:
            queue.renew(token, now)
