"""Caches are bounded by number and by weight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.lru import Lru


def test_the_least_recently_used_goes_first() -> None:
    cache: Lru[str] = Lru(2)
    cache.put("a", "A")
    cache.put("b", "B")
    cache.get("a")
    cache.put("c", "C")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("A", None, "C")


def test_what_is_heavy_drives_out_what_is_old() -> None:
    cache: Lru[str] = Lru(10, limit=100)
    cache.put("a", "A", 60)
    cache.put("b", "B", 40)
    cache.put("c", "C", 1)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (None, "B", "C")


def test_one_that_is_too_heavy_alone_is_kept_until_the_next() -> None:
    """Items of a map are read one by one: without a cache each would parse the whole chunk."""
    cache: Lru[str] = Lru(10, limit=100)
    cache.put("a", "A", 1)
    cache.put("huge", "H", 1_000)
    assert (len(cache), cache.get("huge")) == (1, "H")
    cache.put("b", "B", 1)
    assert (len(cache), cache.get("b")) == (1, "B")


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 50), st.booleans()),
        max_size=40,
    )
)
def test_overwriting_and_dropping_keep_the_books_straight(
    steps: list[tuple[str, int, bool]],
) -> None:
    """Against a list that is summed up afresh each time."""
    cache: Lru[str] = Lru(4, limit=100)
    model: list[tuple[str, int]] = []  # the most recent last
    for key, weight, drop in steps:
        model = [entry for entry in model if entry[0] != key]
        if drop:
            cache.drop(key)
        else:
            cache.put(key, key, weight)
            model.append((key, weight))
        while len(model) > 4 or (len(model) > 1 and sum(heavy for _, heavy in model) > 100):
            del model[0]
        assert len(cache) == len(model)
    assert all(cache.get(key) == key for key, _ in model)
