"""Seeded tensors, drawn without a numeric backend so that every platform gets the same bytes.

Raw PCG64 words, products and quotients of float64 and one rounding to bfloat16: nothing here depends on a BLAS,
a vector width or a library's idea of a normal distribution. Quantized tensors are drawn as their packed words;
there is no dense original.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from goldens.nano.architecture import GROUP

SEED = "lockstep nano 1"
Array = npt.NDArray[np.generic]
Shape = tuple[int, ...]


def _words(name: str, count: int) -> npt.NDArray[np.uint64]:
    """`count` raw 64-bit words of the generator that belongs to `name`."""
    seed = int.from_bytes(hashlib.sha256(f"{SEED}: {name}".encode()).digest(), "little")
    return np.random.PCG64(seed).random_raw(count)


def uniform(name: str, shape: Shape) -> npt.NDArray[np.float64]:
    """Uniform draws in [0, 1) of 53 bits each; shape as given, float64."""
    words = _words(name, math.prod(shape)) >> np.uint64(11)
    return (words.astype(np.float64) * 2.0**-53).reshape(shape)


def _bfloat16(values: npt.NDArray[np.float64]) -> Array:
    return values.astype(np.float32).astype(ml_dtypes.bfloat16)


def around(name: str, shape: Shape, centre: float = 1.0, near: float = 0.05, far: float = 0.4) -> Array:
    """Bfloat16 draws at `centre * (1 +- [near, far])`: never `centre` itself, so never a neutral 1."""
    draw = 2.0 * uniform(name, shape) - 1.0
    offset = np.where(draw < 0, -near, near) + (far - near) * draw
    return _bfloat16(centre * (1.0 + offset))


def dense(name: str, shape: Shape, rms: float) -> Array:
    """Bfloat16 draws, uniform and symmetric, of root mean square `rms`."""
    return _bfloat16((2.0 * uniform(name, shape) - 1.0) * (rms * math.sqrt(3.0)))


@dataclass(frozen=True)
class Quantized:
    """An affine-quantized matrix in MLX's layout: value = scale * code + bias, `GROUP` columns to a group.

    `words` uint32 [..., out, columns * bits / 32] (lowest bits first), `scales` and `biases` bfloat16
    [..., out, columns / GROUP].
    """

    words: Array
    scales: Array
    biases: Array


def quantized(name: str, shape: Shape, bits: int, gain: float) -> Quantized:
    """A quantized matrix whose product with a vector of rms 1 has rms close to `gain`.

    Args:
        name: module path, which seeds the draw.
        shape: of the matrix it stands for, [..., out, columns]; columns a multiple of `GROUP`.
        bits: 4 or 8.
        gain: see above; the entries' standard deviation is gain / sqrt(columns).
    """
    *rows, columns = shape
    raw = _words(f"{name}.weight", math.prod(rows) * columns * bits // 64)
    words = raw.astype("<u8", copy=False).view("<u4").reshape(*rows, columns * bits // 32)
    levels = 2**bits - 1
    deviation = math.sqrt((4.0**bits - 1.0) / 12.0)  # of a uniform integer code
    step = gain / math.sqrt(columns) / deviation
    groups = (*rows, columns // GROUP)
    scales = _bfloat16(step * (0.75 + 0.5 * uniform(f"{name}.scales", groups)))
    # Centred up to a quarter of a deviation per group, so that a bias taken from the scale alone is wrong.
    shift = 0.5 * deviation * (uniform(f"{name}.biases", groups) - 0.5)
    biases = _bfloat16(scales.astype(np.float64) * (shift - levels / 2.0))
    return Quantized(words, scales, biases)
