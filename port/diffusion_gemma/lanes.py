"""Two lanes on the CPU: halves of the rows of one operation, each on a stream, which is a thread, of its own.

MLX computes one CPU operation on one thread. Where every row of a result depends on its own row alone, halves give the
same bits as the whole, in half the time. On other devices, and for few rows, there is one lane.
"""

import os
import threading
from collections.abc import Callable

import mlx.core as mx

_LEAST = 16  # rows for each lane; below, waiting for one another costs more than it gains
_held = threading.local()


def _streams() -> tuple[mx.Stream, mx.Stream] | None:
    """This thread's two lanes: a stream belongs to the thread that made it. None where one lane is as good."""
    if mx.default_device().type != mx.DeviceType.cpu or (os.cpu_count() or 1) < 2:
        return None
    if not hasattr(_held, "streams"):
        _held.streams = (mx.default_stream(mx.default_device()), mx.new_stream(mx.default_device()))
    return _held.streams


def by_rows(function: Callable[..., mx.array], *arrays: mx.array, axis: int = 0) -> mx.array:
    """`function(*arrays)`, its rows computed in two lanes where that helps.

    Args:
        function: gives, for each index of `axis`, what it gives for that index alone.
        arrays: all of one length along `axis`.
        axis: of the arguments and of the result.
    """
    rows = arrays[0].shape[axis]
    lanes = _streams() if rows >= 2 * _LEAST else None
    if lanes is None:
        return function(*arrays)
    halves = [mx.split(array, [rows // 2], axis=axis) for array in arrays]
    parts = []
    for lane, half in zip(lanes, zip(*halves, strict=True), strict=True):
        with mx.stream(lane):
            parts.append(function(*half))
    return mx.concatenate(parts, axis=axis)
