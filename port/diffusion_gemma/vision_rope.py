"""Rotary positions in the plane: the first half of a head's channels turns with the column, the second with the row.

Legend: B batch, P patches, H heads, d head width, c channels of one axis.
"""

import mlx.core as mx

from .grid import Grid


class PlaneRope:
    """Angles by place, for one picture; every layer turns by the same.

    Args:
        grid: the patches.
        width: d; a fourth of it, rounded down, is the number of angles an axis.
        base: the slowest wavelength, in patches, over 2 pi.
        dtype: that of the activations; cosines and sines are rounded to it.
    """

    def __init__(self, grid: Grid, width: int, base: float, dtype: mx.Dtype) -> None:
        self._channels = 2 * (width // 4)
        exponents = (2.0 / self._channels) * mx.arange(self._channels // 2).astype(mx.float32)
        wavelengths = mx.power(base, exponents)
        self._turns = []
        for place_P in grid.places:
            angles = place_P[:, None].astype(mx.float32) / wavelengths
            twice = [mx.concatenate([f(angles), f(angles)], axis=-1).astype(dtype) for f in (mx.cos, mx.sin)]
            self._turns.append([x[None, :, None] for x in twice])  # [1, P, 1, c]

    def __call__(self, x_BPHd: mx.array) -> mx.array:
        """Turn queries or keys; same shape and dtype, channels beyond both axes dropped as in the reference."""
        parts = mx.split(x_BPHd, [self._channels, 2 * self._channels], axis=-1)[:2]
        turned = []
        for part, (cos, sin) in zip(parts, self._turns, strict=True):
            first, second = mx.split(part, 2, axis=-1)
            # Halves pair within an axis: a pair across both would mix a column's angle into a row's.
            turned.append(part * cos + mx.concatenate([-second, first], axis=-1) * sin)
        return mx.concatenate(turned, axis=-1)
