"""MLX arrays to the harness' numpy tensors and back."""

import ml_dtypes
import mlx.core as mx
import numpy as np


def to_numpy(x: mx.array) -> np.ndarray:
    """The same bits as a numpy array; evaluates `x`. MLX's index type uint32 stays uint32."""
    if x.dtype == mx.bfloat16:
        return np.array(x.view(mx.uint16)).view(ml_dtypes.bfloat16)
    return np.array(x)


def to_mlx(x: np.ndarray) -> mx.array:
    """The same bits as an MLX array (float64 included, which only MLX's CPU device computes)."""
    if x.dtype == ml_dtypes.bfloat16:
        return mx.array(np.ascontiguousarray(x).view(np.uint16)).view(mx.bfloat16)
    if x.dtype == np.float64:
        return mx.array(x, dtype=mx.float64)
    return mx.array(x)
