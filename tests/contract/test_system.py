"""Ids: unique, sortable, short. The clock: milliseconds."""

from __future__ import annotations

import re
import threading
import time

import pytest

from orchestrator.adapters.local.system import SystemClock, SystemIds


def test_ids_are_short_unique_and_only_grow() -> None:
    ids = SystemIds()
    made = [ids.new() for _ in range(5_000)]
    assert made == sorted(set(made))
    assert all(re.fullmatch(r"[a-z0-9-]{1,40}", id) for id in made)


def test_ids_of_threads_and_processes_differ() -> None:
    ids, others = SystemIds(), SystemIds()
    made: list[str] = []

    def make() -> None:
        made.extend([ids.new() for _ in range(1_000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made += [others.new() for _ in range(1_000)]
    assert len(set(made)) == 5_000


def test_ids_grow_although_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = SystemIds()
    made: list[str] = []
    for now in (2_000, 1_000, 3_000):
        monkeypatch.setattr(time, "time_ns", lambda now=now: now * 1_000_000)
        made += [ids.new(), ids.new()]
    assert made == sorted(set(made))
    assert made[0][:10] < made[-1][:10]  # later ids sort later because of their time


async def test_clock_counts_milliseconds_and_negative_sleeps_return() -> None:
    clock = SystemClock()
    before = time.time()
    assert before * 1000 - 1 <= clock.now() <= time.time() * 1000
    await clock.sleep(-5)
    await clock.sleep(1)
