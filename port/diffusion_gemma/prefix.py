"""What a canvas sees of everything before it, got ready once for all of its steps.

Legend: B batch, G key-value heads, C canvas tokens, S keys, d head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from .aliases import Mask, Pair


@dataclass(frozen=True)
class Prefix:
    """The cache as canvas passes read it, layer by layer.

    Attributes:
        pasts: keys and values [B, G, S, d] in temporal order, or None.
        masks: over all S past keys and the canvas.
        offset: the position of the canvas' first token.
    """

    pasts: Sequence[Pair | None]
    masks: Sequence[Mask]
    offset: int

    def trimmed(self, windows: Sequence[int | None], canvas: int) -> "Prefix":
        """Only what each layer's window reaches, cut now instead of in every step; evaluated.

        Args:
            windows: by layer; None for full attention.
            canvas: C.
        """
        pasts: list[Pair | None] = []
        masks: list[Mask] = []
        for past, mask, window in zip(self.pasts, self.masks, windows, strict=True):
            near = None if past is None else nearest(past, mask, window, canvas)
            pasts.append(None if near is None else near[0])
            masks.append(mask if near is None else near[1])
        mx.eval(pasts, [mask for mask in masks if isinstance(mask, mx.array)])
        return Prefix(pasts, masks, self.offset)


def nearest(past: Pair, mask: Mask, window: int | None, canvas: int) -> tuple[Pair, Mask]:
    """On sliding layers, drop past keys that the mask hides anyway: the cost is the window, not the context."""
    reach = 0 if window is None else window - 1
    if reach == 0 or past[0].shape[2] <= reach:
        return past, mask
    keys, values = (part[:, :, -reach:, :] for part in past)
    return (keys, values), mask[..., -(reach + canvas) :] if isinstance(mask, mx.array) else mask
