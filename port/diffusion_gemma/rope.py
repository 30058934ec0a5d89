"""Rotary positions: the default form, and the proportional one that turns only a part of each head.

Legend: B batch, H heads, T tokens, d head width, r rotated pairs.
"""

from typing import Any

import mlx.core as mx


class Rope:
    """Rotation of queries and keys by their positions; pairs are (i, i + d/2), not neighbours.

    The proportional form (Gemma 4) turns r = fraction * d/2 pairs, at wavelengths relative to the whole d:
    theta^(2j/d) for pair j.

    Args:
        width: d.
        settings: an entry of `rope_parameters`: `rope_type` or `type`, `rope_theta`, `partial_rotary_factor`, `factor`.
    """

    def __init__(self, width: int, settings: dict[str, Any]) -> None:
        self._width = width
        self._theta = settings.get("rope_theta", 10000.0)
        self._wavelengths: mx.array | None = None
        if (settings.get("type") or settings.get("rope_type", "default")) == "proportional":
            self._pairs = int(settings.get("partial_rotary_factor", 1.0) * width // 2)
            exponents_r = mx.arange(0, 2 * self._pairs, 2, dtype=mx.float32) / width
            self._wavelengths = settings.get("factor", 1.0) * (self._theta**exponents_r)
            # Now, not on first use: a lazy array belongs to the thread that made it.
            mx.eval(self._wavelengths)

    def __call__(self, x_BHTd: mx.array, offset: int) -> mx.array:
        """Turn positions offset, offset + 1, ...: floats [B, H, T, d] to the same shape and dtype."""
        if self._wavelengths is None:
            return mx.fast.rope(x_BHTd, self._width, traditional=False, base=self._theta, scale=1.0, offset=offset)
        if self._pairs == 0:
            return x_BHTd
        halves = mx.unflatten(x_BHTd, -1, (2, self._width // 2))
        turned = mx.fast.rope(
            mx.flatten(halves[..., : self._pairs], -2, -1),
            2 * self._pairs,
            traditional=False,
            base=None,
            scale=1.0,
            offset=offset,
            freqs=self._wavelengths,
        )
        turned = mx.unflatten(turned, -1, (2, self._pairs))
        return mx.flatten(mx.concatenate([turned, halves[..., self._pairs :]], axis=-1), -2, -1)
