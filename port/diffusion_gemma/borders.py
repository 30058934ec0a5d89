"""Tensors as they cross the model's borders: numpy outside, MLX inside, the same bits."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import mlx.core as mx
import numpy as np

from port.crossed_borders import Found, Trace

from .aliases import Mask, Pair
from .cache import Cache, GrowingCache, RotatingCache

ABSENT = (0,)  # shape of a mask or a padding that is not there


def to_numpy(x: mx.array) -> np.ndarray:
    """An MLX array, evaluated, as numpy; bfloat16 is `ml_dtypes.bfloat16`."""
    return np.array(x.view(mx.uint16)).view(ml_dtypes.bfloat16) if x.dtype == mx.bfloat16 else np.array(x)


def to_mlx(x: np.ndarray) -> mx.array:
    """A numpy array as MLX, with its bits and its dtype."""
    if x.dtype == ml_dtypes.bfloat16:
        return mx.array(np.ascontiguousarray(x).view(np.uint16)).view(mx.bfloat16)
    return mx.array(x)


def text_bytes(text: str) -> np.ndarray:
    """UTF-8 bytes of a text, uint8 [n]."""
    return np.frombuffer(text.encode("utf-8"), np.uint8)


def rows(texts: list[str], width: int) -> np.ndarray:
    """Texts as UTF-8 rows of equal width, uint8 [n, width], filled with zeros.

    Raises:
        ValueError: a text is longer than a row; it would otherwise be cut, and two could look alike.
    """
    encoded = [text.encode("utf-8") for text in texts]
    if longest := max((row for row in encoded if len(row) > width), key=len, default=b""):
        raise ValueError(f"{longest!r} has {len(longest)} bytes; a row has {width}")
    return np.frombuffer(b"".join(row.ljust(width, b"\0") for row in encoded), np.uint8).reshape(len(texts), width)


def digest(dtype: str, x: np.ndarray) -> bytes:
    """sha256 of a tensor's dtype, as safetensors spells it, shape and little-endian bytes."""
    return hashlib.sha256(f"{dtype}:{'x'.join(map(str, x.shape))}:".encode() + x.tobytes()).digest()


def flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """Nested JSON as dotted names and canonical JSON values; empty containers have no leaves."""
    children: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list | tuple):
        children = ((str(i), item) for i, item in enumerate(value))
    else:
        return {prefix: json.dumps(value, sort_keys=True)}
    dot = f"{prefix}." if prefix else ""
    return {name: text for key, item in children for name, text in flatten(item, f"{dot}{key}").items()}


def number(value: int) -> np.ndarray:
    """A 0-d int32."""
    return np.array(value, np.int32)


def mask_in(mask: Mask) -> Found:
    """A mask as the product has it: kind 0 none, 1 "causal", 2 an array of booleans."""
    if isinstance(mask, mx.array):
        return {"mask": mask, "mask_kind": number(2)}
    return {"mask": np.zeros(ABSENT, bool), "mask_kind": number(0 if mask is None else 1)}


def mask_out(mask: np.ndarray, kind: np.ndarray) -> Mask:
    """The product's form of a mask that was recorded by kind."""
    return to_mlx(mask) if int(kind) == 2 else (None, "causal")[int(kind)]


def written_out(mask: Mask, queries: int, keys: int) -> np.ndarray:
    """Any form of a mask as booleans [B or 1, 1, queries, keys]; the causal diagonal ends at the last key."""
    if isinstance(mask, mx.array):
        return np.broadcast_to(to_numpy(mask), (mask.shape[0], 1, queries, keys)).copy()
    whole = np.ones((1, 1, queries, keys), bool)
    return whole if mask is None else np.tril(whole, keys - queries)


def optional(x: np.ndarray) -> mx.array | None:
    """An array, or None where its size is zero."""
    return to_mlx(x) if x.size else None


def given(x: mx.array | None) -> np.ndarray | mx.array:
    """An array, or one of size zero for None."""
    return np.zeros(ABSENT, bool) if x is None else x


def cursor(cache: Cache) -> np.ndarray:
    """Offset and write index of a cache, int32 [2]."""
    return np.array([cache.offset, cache.cursor], np.int32)


def restore(window: int | None, keys: np.ndarray, values: np.ndarray, at: np.ndarray, *, ordered: bool) -> Cache:
    """A cache as it stood before a pass.

    Args:
        window: of a sliding layer, or None.
        keys: the buffer [B, G, S, d]; empty when nothing was written.
        values: likewise.
        at: its cursor.
        ordered: whether the buffer is in temporal order, whatever the cursor says.
    """
    if keys.shape[2] == 0:
        return GrowingCache() if window is None else RotatingCache(window)
    held = to_mlx(keys), to_mlx(values)
    if window is None:
        return GrowingCache(*held)
    return RotatingCache(window, *held, offset=int(at[0]), cursor=keys.shape[2] if ordered else int(at[1]))


def restore_all(
    windows: Sequence[int | None], keys: Trace, values: Trace, at: np.ndarray, *, ordered: bool
) -> list[Cache]:
    """`restore` for all layers: buffers by the layer's number, cursors int32 [L, 2]."""
    return [
        restore(window, keys[str(i)], values[str(i)], cursor_, ordered=ordered)
        for i, (window, cursor_) in enumerate(zip(windows, at, strict=True))
    ]


def buffers(cache: Cache, empty: tuple[int, int, int, int], dtype: mx.Dtype) -> Pair:
    """Keys and values as they lie in a cache; empty ones of the given shape and dtype before the first pass."""
    if cache.keys is None or cache.values is None:
        nothing = mx.zeros(empty, dtype=dtype)
        return nothing, nothing
    return cache.keys, cache.values


def visible(cache: Cache) -> Pair:
    """Keys and values that a canvas sees.

    Raises:
        ValueError: nothing was written yet.
    """
    pair = cache.seen()
    if pair is None:
        raise ValueError("an empty cache shows nothing: run an encoder pass first")
    return pair


def cache_gives(cache: Cache, keys: mx.array, values: mx.array) -> Found:
    """What `kv_cache` reports of an updated cache."""
    seen_keys, seen_values = visible(cache)
    given = {"keys": keys, "values": values}
    return {**given, "seen_keys": seen_keys, "seen_values": seen_values, "cursor": cursor(cache)}


def shown(caches: Sequence[Cache]) -> dict[str, mx.array]:
    """keys.* and values.* of every layer, as a canvas sees them."""
    pairs = {str(i): visible(cache) for i, cache in enumerate(caches)}
    keys = {f"keys.{name}": pair[0] for name, pair in pairs.items()}
    return {**keys, **{f"values.{name}": pair[1] for name, pair in pairs.items()}}


def by_id(choice: Trace) -> Trace:
    """Experts and weights in canonical order: a set has none of its own."""
    ids, joined = choice["experts"].astype(np.int32), choice["weights"]
    order = np.argsort(ids, axis=-1)
    return {"experts": np.take_along_axis(ids, order, -1), "weights": np.take_along_axis(joined, order, -1)}
