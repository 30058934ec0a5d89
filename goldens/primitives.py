"""The primitive operations a backend is known by: each one named, on inputs that are the same on every platform.

Inputs come from the raw integers of PCG64, scaled by powers of two, so that no float is rounded before the primitive
under test. Shapes go from a single row to a few megabytes: kernels, blocking and summation order change with size,
and small probes agree where large ones do not.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

Probe = tuple[str, Callable[[], Any]]  # gives an mx.array, or a tuple of them

GROUP = 64  # elements that share a scale and a bias in quantized weights
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}


def probes() -> Iterator[Probe]:
    """Every primitive as (name, computation); names are stable, and read ``primitive/dtype/detail``."""
    for name, dtype in DTYPES.items():
        yield from _matmul(name, dtype)
        yield from _quantized(name, dtype)
        yield from _gathered(name, dtype)
        yield from _attention(name, dtype)
        yield from _normalised(name, dtype)
        yield from _elementwise(name, dtype)
        yield from _reduced(name, dtype)
        yield from _drawn(name, dtype)
    yield from _ordered()
    yield from _compiled()


def integers(count: int, seed: int, bits: int) -> np.ndarray:
    """``count`` unsigned integers of ``bits`` bits (uint64), from PCG64's raw stream, which numpy keeps stable."""
    return np.random.PCG64(seed).random_raw(count) >> np.uint64(64 - bits)


def floats(shape: tuple[int, ...], dtype: mx.Dtype, seed: int, scale: float = 1.0) -> mx.array:
    """Uniform multiples of a power of two in [-scale, scale); ``scale`` is a power of two; exact in ``dtype``."""
    bits = 8 if dtype == mx.bfloat16 else 20
    whole = integers(math.prod(shape), seed, bits).astype(np.float64) - (1 << (bits - 1))
    exact = (whole * (scale / (1 << (bits - 1)))).astype(np.float32)
    return mx.array(exact.reshape(shape)).astype(dtype)


def quantized(shape: tuple[int, ...], bits: int, dtype: mx.Dtype, seed: int) -> tuple[mx.array, mx.array, mx.array]:
    """Packed weights of ``bits`` bits a value with scales and biases, standing for a matrix of ``shape``."""
    *rows, columns = shape
    packed = (*rows, columns * bits // 32)
    words = integers(math.prod(packed), seed, 32).astype(np.uint32).reshape(packed)
    groups = (*rows, columns // GROUP)
    scale = 2.0 ** (-bits - 2)
    return mx.array(words), floats(groups, dtype, seed + 1, scale), floats(groups, dtype, seed + 2, scale)


def _matmul(name: str, dtype: mx.Dtype) -> Iterator[Probe]:
    for m, k, n in ((1, 192, 320), (7, 320, 192), (33, 2816, 64), (256, 704, 512)):
        yield f"matmul/{name}/{m}x{k}x{n}", partial(mx.matmul, floats((m, k), dtype, 1), floats((n, k), dtype, 2).T)
    x, w = floats((2, 3, 17, 64), dtype, 3), floats((2, 3, 64, 29), dtype, 4)
    yield f"matmul/{name}/batched", partial(mx.matmul, x, w)


def _quantized(name: str, dtype: mx.Dtype) -> Iterator[Probe]:
    for bits in (4, 8):
        packing: dict[str, Any] = {"group_size": GROUP, "bits": bits}
        for m, k, n in ((1, 192, 320), (7, 320, 192), (2, 2816, 128), (64, 704, 128)):
            weights = quantized((n, k), bits, dtype, 10)
            size = f"quantized_matmul/{name}/{bits}bit/{m}x{k}x{n}"
            for transpose, width, way in ((True, k, "transposed"), (False, n, "plain")):
                x = floats((m, width), dtype, 13)
                yield f"{size}/{way}", partial(mx.quantized_matmul, x, *weights, transpose=transpose, **packing)
        weights = quantized((96, 320), bits, dtype, 14)
        yield f"dequantize/{name}/{bits}bit", partial(mx.dequantize, *weights, **packing)


def _gathered(name: str, dtype: mx.Dtype) -> Iterator[Probe]:
    for bits in (4, 8):
        weights = quantized((16, 64, 192), bits, dtype, 20)
        packing: dict[str, Any] = {"group_size": GROUP, "bits": bits, "transpose": True}
        for rows, ordered in ((3, False), (40, False), (40, True)):
            x = floats((rows, 1, 1, 192), dtype, 23)
            chosen = integers(rows, 24, 4).astype(np.uint32).reshape(rows, 1)
            packing |= {"rhs_indices": mx.array(np.sort(chosen, axis=0) if ordered else chosen)}
            yield (
                f"gather_qmm/{name}/{bits}bit/{rows}{'/sorted' if ordered else ''}",
                partial(mx.gather_qmm, x, *weights, sorted_indices=ordered, **packing),
            )


def _attention(name: str, dtype: mx.Dtype) -> Iterator[Probe]:
    for queries, keys, width in ((1, 130, 64), (7, 130, 64), (64, 192, 256)):
        q, k, v = (floats((1, h, n, width), dtype, 30 + h) for h, n in ((4, queries), (2, keys), (1, keys)))
        v = mx.concatenate([v, -v], axis=1)
        seen = mx.array((integers(queries * keys, 34, 2) > 0).reshape(1, 1, queries, keys))
        for kind, mask in (("full", None), ("causal", "causal"), ("masked", seen)):
            yield (
                f"sdpa/{name}/{queries}x{keys}x{width}/{kind}",
                partial(mx.fast.scaled_dot_product_attention, q, k, v, scale=0.25, mask=mask),
            )
    x = floats((1, 3, 40, 64), dtype, 35)
    frequencies = mx.array((2.0 ** np.arange(16)).astype(np.float32))
    rope = partial(mx.fast.rope, x, traditional=False, scale=1.0)
    yield f"rope/{name}/base", partial(rope, dims=64, base=1e4, offset=1021)
    yield f"rope/{name}/partial", partial(rope, dims=32, base=1e6, offset=5)
    yield f"rope/{name}/frequencies", partial(rope, dims=32, base=None, offset=5, freqs=frequencies)


def _normalised(name: str, dtype: mx.Dtype) -> Iterator[Probe]:
    for width in (64, 192, 2816):
        x, w = floats((33, width), dtype, 40, 4.0), floats((width,), dtype, 41, 2.0)
        yield f"rms_norm/{name}/{width}", partial(mx.fast.rms_norm, x, w, 1e-6)
        yield f"rms_norm/{name}/{width}/no_weight", partial(mx.fast.rms_norm, x, None, 1e-6)
    for width in (16, 1000, 16384):
        x = floats((5, width), dtype, 42, 16.0)
        yield f"softmax/{name}/{width}", partial(mx.softmax, x, axis=-1)
        yield f"softmax/{name}/{width}/precise", partial(mx.softmax, x, axis=-1, precise=True)
        yield f"logsumexp/{name}/{width}", partial(mx.logsumexp, x, axis=-1)


def _elementwise(name: str, dtype: mx.Dtype) -> Iterator[Probe]:
    x = floats((9, 1000), dtype, 50, 8.0)
    positive = mx.abs(x) + 0.5
    for op in (mx.exp, mx.tanh, mx.sigmoid, mx.sin, mx.cos, mx.erf, mx.square):
        yield f"{op.__name__}/{name}", partial(op, x)
    for op in (mx.log, mx.sqrt, mx.rsqrt):
        yield f"{op.__name__}/{name}", partial(op, positive)
    yield f"divide/{name}", partial(mx.divide, x, positive[:, ::-1])
    yield f"power/{name}", partial(mx.power, positive, 0.3)
    yield f"gelu/{name}", partial(gelu, x)
    yield f"softcap/{name}", partial(_softcap, x)


def _reduced(name: str, dtype: mx.Dtype) -> Iterator[Probe]:
    x = floats((17, 3001), dtype, 60)
    for axis in (0, 1):
        for op in (mx.sum, mx.mean, mx.cumsum):
            yield f"{op.__name__}/{name}/axis={axis}", partial(op, x, axis=axis)


def _drawn(name: str, dtype: mx.Dtype) -> Iterator[Probe]:
    key = mx.random.key(7)  # a key of our own: the global stream belongs to the caller
    logits = floats((33, 1000), dtype, 70, 4.0)
    yield f"uniform/{name}", partial(mx.random.uniform, shape=(1001,), dtype=dtype, key=key)
    yield f"normal/{name}", partial(mx.random.normal, shape=(1001,), dtype=dtype, key=key)
    yield f"categorical/{name}", partial(mx.random.categorical, logits, key=key)
    if dtype == mx.float32:
        yield "randint", partial(mx.random.randint, 0, 262144, shape=(1001,), key=key)


def _ordered() -> Iterator[Probe]:
    for width in (16, 1000):
        ties = mx.array((integers(9 * width, 80, 2).astype(np.float32) / 4).reshape(9, width))
        yield f"argpartition/ties/{width}", partial(mx.argpartition, ties, kth=-4, axis=-1)
        yield f"argsort/ties/{width}", partial(mx.argsort, ties, axis=-1)
        yield f"argmax/ties/{width}", partial(mx.argmax, ties, axis=-1)
    negative = mx.array(np.array([-0.5, -1.0, -1.5, -2.0, -300.75, -2147483648.0, 1.5, 3e9], np.float32))
    for name, dtype in DTYPES.items():
        yield f"cast/{name}/uint32", partial(negative.astype(dtype).astype, mx.uint32)


def _compiled() -> Iterator[Probe]:
    """What `mx.compile` makes of the same formula; on a CPU that is the work of the machine's C++ compiler."""
    x, y = floats((9, 1000), mx.float32, 50, 8.0), floats((9, 1000), mx.bfloat16, 50, 8.0)
    yield "compile/gelu", partial(mx.compile(_gelu_twice), x, y)


def gelu(x: mx.array) -> mx.array:
    """GELU by tanh (Hendrycks and Gimpel, arXiv 1606.08415, section 2), any shape, in the dtype of ``x``."""
    return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_twice(x: mx.array, y: mx.array) -> tuple[mx.array, mx.array]:
    return gelu(x) * x, gelu(y) * y


def _softcap(x: mx.array) -> mx.array:
    return mx.tanh(x / 30.0) * 30.0
