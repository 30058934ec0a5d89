"""The reference's caches and masks as plain tensors, and plain tensors as its caches and masks again."""

from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache, RotatingKVCache
from optiq.vlm._mlxvlm.models.diffusion_gemma import language

from .tensors import to_mlx, to_numpy

NO_MASK, CAUSAL, ARRAY = 0, 1, 2
ABSENT = (0,)  # the shape of a mask or padding that is not there


def is_full(layer: Any) -> bool:
    """Whether this decoder layer attends to the whole prompt."""
    return bool(layer.layer_type == "full_attention")


def physical(cache: Any, like: mx.array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(keys, values, cursor) of an encoder cache before a pass; empty `[B, G, 0, d]` where nothing is cached yet."""
    cursor = np.array([cache.offset, getattr(cache, "_idx", cache.offset)], np.int32)
    if cache.keys is None:
        batch, heads, _, size = like.shape
        nothing = to_numpy(mx.zeros((batch, heads, 0, size), like.dtype))
        return nothing, nothing, cursor
    keys, values = cache.keys, cache.values
    if isinstance(cache, KVCache):  # what lies past the offset is unwritten room
        keys, values = keys[..., : cache.offset, :], values[..., : cache.offset, :]
    return to_numpy(keys), to_numpy(values), cursor


def visible(cache: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(keys, values, cursor) that a decoder pass reads, in temporal order."""
    keys, values = language._cache_state(cache)  # noqa: SLF001 -- the oracle's own reading of its caches
    cursor = np.array([cache.offset, getattr(cache, "_idx", cache.offset)], np.int32)
    return to_numpy(keys), to_numpy(values), cursor


def revive(layer: Any, keys: np.ndarray, values: np.ndarray, cursor: np.ndarray, *, decoder: bool) -> Any:
    """The reference's cache of this layer, in the state that `physical` (or, for a decoder pass, `visible`) read."""
    offset, index = (int(n) for n in cursor)
    cache = KVCache() if is_full(layer) else RotatingKVCache(max_size=layer.self_attn.config.sliding_window)
    if keys.shape[2]:
        cache.keys, cache.values = to_mlx(keys), to_mlx(values)
    cache.offset = offset
    if not is_full(layer):
        cache._idx = keys.shape[2] if decoder else index  # noqa: SLF001
    return cache


def mask_in(mask: Any) -> tuple[np.ndarray, np.ndarray]:
    """(mask, mask_kind) as the table spells what the reference hands to attention."""
    if mask is None:
        return np.zeros(ABSENT, bool), np.array(NO_MASK, np.int32)
    if isinstance(mask, str):
        return np.zeros(ABSENT, bool), np.array(CAUSAL, np.int32)
    array = to_numpy(mask)
    return array.reshape((1,) * (4 - array.ndim) + array.shape), np.array(ARRAY, np.int32)


def mask_out(mask: np.ndarray, kind: np.ndarray) -> Any:
    """The reference's form of a mask again."""
    return {NO_MASK: None, CAUSAL: "causal", ARRAY: to_mlx(mask)}[int(kind)]


def written_out(mask: Any, queries: int, keys: int) -> np.ndarray:
    """A mask as booleans `[B, 1, Q, S]`, whatever its form. "causal" aligns the last query to the last key."""
    if mask is None:
        return np.ones((1, 1, queries, keys), bool)
    if isinstance(mask, str):
        return (np.arange(keys)[None, :] <= np.arange(keys - queries, keys)[:, None])[None, None]
    array = mask_in(mask)[0]
    # A row per query is what the reference broadcasts to; the table keeps it written out.
    return np.broadcast_to(array, (array.shape[0], 1, queries, array.shape[3])).copy()


def key_counts(layers: Any, caches: Any) -> np.ndarray:
    """Decoder-visible key counts of a full and of a sliding layer, int32 [2]."""
    counts = {is_full(layer): visible(cache)[0].shape[2] for layer, cache in zip(layers, caches, strict=True)}
    return np.array([counts[True], counts[False]], np.int32)
