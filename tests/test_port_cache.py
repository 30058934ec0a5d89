"""The port's caches against a plain list of everything that was ever written."""

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from port.diffusion_gemma.cache import Cache, GrowingCache, RotatingCache, StaticCache
from port.errors import PortError

PASSES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def tokens(start: int, count: int) -> tuple[mx.array, mx.array]:
    """Keys [1, 1, count, 1] that are their own positions; values are the same, negative."""
    keys = mx.arange(start, start + count, dtype=mx.float32)[None, None, :, None]
    return keys, -keys


def positions(pair: tuple[mx.array, mx.array] | None) -> list[int]:
    assert pair is not None
    keys, values = (part.flatten().tolist() for part in pair)
    assert values == [-key for key in keys]
    return [int(key) for key in keys]


def feed(cache: Cache, passes: list[int]) -> None:
    for count in passes:
        cache.update(*tokens(cache.offset, count))


@given(PASSES)
def test_a_growing_cache_shows_everything(passes: list[int]) -> None:
    cache = GrowingCache()
    assert cache.seen() is None
    for count in passes:
        handed = cache.update(*tokens(cache.offset, count))
        assert positions(handed) == positions(cache.seen()) == list(range(cache.offset))
    assert cache.offset == cache.cursor == sum(passes)


@given(PASSES, st.integers(2, 10))
def test_a_rotating_cache_shows_each_token_its_window(passes: list[int], window: int) -> None:
    cache = RotatingCache(window)
    assert cache.seen() is None
    for count in passes:
        before = cache.offset
        handed = positions(cache.update(*tokens(before, count)))
        after = before + count
        assert cache.offset == after
        oldest = max(before - (window - 1), 0)
        # One token is written into the ring, and gets it as it lies; several get the past in order.
        assert (sorted(handed) if count == 1 else handed) == list(range(oldest, after))
        seen = positions(cache.seen())
        assert seen == list(range(after - len(seen), after))
        assert len(seen) >= min(after, window - 1)


def test_one_token_at_a_time_fills_a_ring_and_then_writes_over_the_oldest() -> None:
    cache = RotatingCache(4)
    cursors, orders = [], []
    for position in range(7):
        orders.append(positions(cache.update(*tokens(position, 1))))
        cursors.append(cache.cursor)
        assert cache.keys is not None
        assert cache.keys.shape[2] == 4
    assert orders == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [4, 1, 2, 3], [4, 5, 2, 3], [4, 5, 6, 3]]
    assert cursors == [1, 2, 3, 4, 1, 2, 3]
    assert positions(cache.seen()) == [3, 4, 5, 6]


def test_a_long_pass_is_kept_whole_until_the_next_one_cuts_it() -> None:
    cache = RotatingCache(4)
    feed(cache, [10])
    assert positions(cache.seen()) == list(range(10))
    assert cache.cursor == 10
    assert positions(cache.update(*tokens(10, 2))) == [7, 8, 9, 10, 11]
    assert positions(cache.update(*tokens(12, 1))) == [12, 9, 10, 11]


def test_a_ring_takes_its_slots_in_steps() -> None:
    cache = RotatingCache(600)
    feed(cache, [1])
    assert cache.keys is not None
    assert cache.keys.shape[2] == 256
    feed(cache, [1] * 256)
    assert cache.keys.shape[2] == 512
    feed(cache, [1] * 256)
    assert cache.keys.shape[2] == 600
    assert positions(cache.seen()) == list(range(513))


@given(PASSES, st.integers(2, 10))
def test_what_was_handed_out_stays_as_it_was(passes: list[int], window: int) -> None:
    for cache in (RotatingCache(window), GrowingCache(), StaticCache(sum(passes), window)):
        handed = []
        for count in passes:
            handed.append(cache.update(*tokens(cache.offset, count)))
            handed.append(cache.seen())
        before = [positions(pair) for pair in handed]
        feed_more = not isinstance(cache, StaticCache)
        if feed_more:
            feed(cache, [1, 2, 1])
        assert [positions(pair) for pair in handed] == before


@given(PASSES, st.integers(2, 10))
def test_a_static_cache_hands_out_what_the_others_do(passes: list[int], window: int) -> None:
    pairs = ((StaticCache(sum(passes)), GrowingCache()), (StaticCache(sum(passes), window), RotatingCache(window)))
    for static, other in pairs:
        for count in passes:
            handed = positions(static.update(*tokens(static.offset, count)))
            assert handed == sorted(positions(other.update(*tokens(other.offset, count))))
            reach = min(static.offset, window - 1)
            assert positions(static.seen())[-reach:] == positions(other.seen())[-reach:]
        assert static.offset == static.cursor == other.offset


def test_a_static_cache_never_moves_its_buffer_and_refuses_to_overflow() -> None:
    cache = StaticCache(10)
    feed(cache, [4, 6])
    assert cache.keys is not None
    assert cache.keys.shape[2] == 10
    with pytest.raises(PortError, match=r"11 tokens for 10 slots.*capacity of at least 11"):
        cache.update(*tokens(10, 1))
    assert positions(cache.seen()) == list(range(10))
