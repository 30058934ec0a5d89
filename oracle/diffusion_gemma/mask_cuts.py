"""The reference's masks, written out: of encoder passes, with and without pictures, and of canvas passes.

B batch, T tokens, C canvas, S keys.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from .reference import Reference
from .state import is_full, revive, written_out
from .tensors import to_mlx

Trace = dict[str, np.ndarray]
At = Mapping[str, Any]


def encoder_masks(
    reference: Reference, at: At, *, tokens: np.ndarray, offset: np.ndarray, padding: np.ndarray
) -> Trace:
    """Encoder masks of both layer kinds, written out as booleans [B, 1, T, S]."""
    return _encoder_masks(reference, int(tokens), int(offset), padding, None)


def image_masks(
    reference: Reference, at: At, *, tokens: np.ndarray, offset: np.ndarray, padding: np.ndarray, types: np.ndarray
) -> Trace:
    """Encoder masks again, of a pass whose token types tell pictures."""
    return _encoder_masks(reference, int(tokens), int(offset), padding, to_mlx(types))


def _encoder_masks(
    reference: Reference, tokens: int, offset: int, padding: np.ndarray, types: mx.array | None
) -> Trace:
    layers = reference.model.layers
    window = reference.model.config.text_config.sliding_window
    caches = []
    for block in layers:
        held = offset if is_full(block) else min(offset, window)
        room = np.zeros((1, 1, held, 1), np.float32)
        caches.append(revive(block, room, room, np.array([offset, held]), decoder=False))
    h = mx.zeros((1 if types is None else types.shape[0], tokens, 1))
    attend = to_mlx(padding) if padding.size else None
    result = reference.model.model.encoder._make_encoder_masks(h, caches, attend, mm_token_type_ids=types)  # noqa: SLF001
    return encoder_masks_by_kind(layers, caches, result, tokens, offset)


def encoder_masks_by_kind(layers: Any, caches: Any, result: list[Any], tokens: int, offset: int) -> Trace:
    """The first mask of each layer kind, written out over the keys that attention will see.

    A rotating cache hands over at most window - 1 old keys with several new ones; a single new token is written into
    the ring, whose whole length it then sees.
    """
    gives: Trace = {}
    for block, cache, mask in zip(layers, caches, result, strict=True):
        name = "full" if is_full(block) else "sliding"
        if name in gives:
            continue
        keys = offset + tokens
        if not is_full(block):
            keys = min(keys, cache.max_size if tokens == 1 else cache.max_size - 1 + tokens)
        gives[name] = written_out(mask, tokens, keys)
    return gives


def decoder_masks(
    reference: Reference, at: At, *, tokens: np.ndarray, lengths: np.ndarray, offset: np.ndarray, padding: np.ndarray
) -> Trace:
    """Decoder masks of both layer kinds, written out as booleans [B, 1, C, S + C]."""
    full, sliding = (int(n) for n in lengths)
    caches = []
    for block in reference.model.layers:
        room = np.zeros((1, 1, full if is_full(block) else sliding, 1), np.float32)
        caches.append(revive(block, room, room, np.array([offset, offset]), decoder=True))
    canvas = int(tokens)
    masks = reference.model.model.decoder._make_decoder_masks(  # noqa: SLF001
        mx.zeros((1, canvas, 1)), caches, canvas_padding(padding, canvas)
    )
    return {
        "full": written_out(masks["full_attention"], canvas, full + canvas),
        "sliding": written_out(masks["sliding_attention"], canvas, sliding + canvas),
    }


def canvas_padding(padding: np.ndarray, canvas: int) -> mx.array | None:
    """A prompt's padding with the canvas' own ones behind it; None where there is none."""
    if not padding.size:
        return None
    return to_mlx(np.concatenate([padding, np.ones((padding.shape[0], canvas), bool)], axis=-1))
