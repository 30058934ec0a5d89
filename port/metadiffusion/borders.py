"""Tensors as they cross the model's borders: numpy outside, MLX inside, the same bits. Floats are float32 here."""

import hashlib
from collections.abc import Sequence

import ml_dtypes
import mlx.core as mx
import numpy as np

Trace = dict[str, np.ndarray]
KINDS = {"float32": "F32", "bfloat16": "BF16"}


def to_numpy(x: mx.array) -> np.ndarray:
    """An MLX array, evaluated, as numpy."""
    return np.array(x.view(mx.uint16)).view(ml_dtypes.bfloat16) if x.dtype == mx.bfloat16 else np.array(x)


def to_mlx(x: np.ndarray) -> mx.array:
    """A numpy array as MLX."""
    if x.dtype == ml_dtypes.bfloat16:
        return mx.array(np.ascontiguousarray(x).view(np.uint16)).view(mx.bfloat16)
    return mx.array(x)


def optional(x: np.ndarray) -> mx.array | None:
    """A tensor whose size 0 stands for its absence."""
    return to_mlx(x) if x.size else None


def rows(texts: Sequence[str], width: int) -> np.ndarray:
    """Texts as UTF-8 rows of equal width, uint8 [n, width], filled with zeros.

    Raises:
        ValueError: a text is longer than a row.
    """
    if longest := max((text for text in texts if len(text.encode()) > width), key=len, default=""):
        raise ValueError(f"{longest!r} is longer than a row of {width} bytes")
    packed = b"".join(text.encode().ljust(width, b"\0") for text in texts)
    return np.frombuffer(packed, np.uint8).reshape(len(texts), width)


def digest(x: np.ndarray) -> bytes:
    """sha256 of a tensor's dtype, as safetensors spells it, shape and little-endian bytes."""
    kind, shape = KINDS[str(x.dtype)], "x".join(map(str, x.shape))
    return hashlib.sha256(f"{kind}:{shape}:".encode() + x.tobytes()).digest()


def judged(logits: mx.array) -> Trace:
    """Logits as they are, as a distribution, and as a choice."""
    found = to_numpy(logits)
    return {"logits": found, "distribution": found, "best": to_numpy(mx.argmax(logits, axis=-1).astype(mx.int32))}
