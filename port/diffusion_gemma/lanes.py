"""Two lanes on the CPU: halves of the rows of one piece of work, each on a stream, which is a thread, of its own.

MLX computes CPU operations one after the other on one thread. Where every row of a result depends on its own row alone,
halves give the same bits as the whole, in half the time. The engine opens the lanes; training, a watched run, another
device, and few rows have one.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import mlx.core as mx

_LEAST = 16  # rows for each lane; below, waiting for one another costs more than it gains
_held = threading.local()


@contextmanager
def two() -> Iterator[None]:
    """Let `by_rows` use two lanes on this thread, if this is a CPU with two cores."""
    before = getattr(_held, "lanes", None)
    _held.lanes = _streams()
    try:
        yield
    finally:
        _held.lanes = before


def _streams() -> tuple[mx.Stream, mx.Stream] | None:
    """This thread's own two: a stream belongs to the thread that made it."""
    device = mx.default_device()
    if device.type != mx.DeviceType.cpu or (os.cpu_count() or 1) < 2:
        return None
    if not hasattr(_held, "second"):
        _held.second = mx.new_stream(device)
    return mx.default_stream(device), _held.second


def by_rows(function: Callable[[mx.array], mx.array], rows: mx.array) -> mx.array:
    """`function(rows)`, in two lanes where they are open and it is worth it.

    Args:
        function: gives for each index of the last axis but one what it gives for that index alone.
        rows: [..., rows, width].
    """
    count, lanes = rows.shape[-2], getattr(_held, "lanes", None)
    if lanes is None or count < 2 * _LEAST:
        return function(rows)
    parts = []
    for lane, half in zip(lanes, mx.split(rows, [count // 2], axis=-2), strict=True):
        with mx.stream(lane):
            parts.append(function(half))
    return mx.concatenate(parts, axis=-2)
