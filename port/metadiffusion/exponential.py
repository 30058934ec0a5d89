"""The exponential, and what is made of it: a gated unit, a softmax, the logarithm of a sum.

Apart from Apple's, MLX has no vectors for `exp` on a CPU: a number takes it 12 ns, which adds up to a fifth of a
forward pass of the seed's size. Its sums and products the compiler does turn into vectors, so `exp` is written as such
here: a sixth of that, and within one unit in the last place, where MLX's own is within 33. On other devices, and for
other dtypes than float32, everything here is MLX's own.
"""

import math
import sys

import mlx.core as mx
from mlx import nn

# e^x = 2^n e^f. 2^n is written into the exponent's bits; n ln 2 is taken off x in two parts, of which the first has so
# few bits that its products are exact (Cody and Waite 1980).
_HIGH = round(math.log(2) * 2**12) / 2**12
_LOW = math.log(2) - _HIGH
_TAYLOR = [1 / math.factorial(k) for k in range(8)]  # of e^f, |f| <= ln(2) / 2: what is left out is below 2^-27
_ROUND = 1.5 * 2**23 + 127  # added, it leaves the nearest whole number and the exponent's offset in the lowest bits
_NOTHING, _MOST = -88.0, 88.0  # below, the exponent's bits are those of 0; above, they are as large as they can be


@mx.compile
def _vectors(x: mx.array) -> mx.array:
    x = mx.minimum(mx.maximum(x, _NOTHING), _MOST)
    counted = x * (1 / math.log(2)) + _ROUND
    n = counted - _ROUND
    f = x - n * _HIGH - n * _LOW
    series = f * _TAYLOR[-1] + _TAYLOR[-2]
    for coefficient in _TAYLOR[-3::-1]:
        series = series * f + coefficient
    return series * (counted.view(mx.int32) << 23).view(mx.float32)


@mx.custom_function
def _exp(x: mx.array) -> mx.array:
    return _vectors(x)


@_exp.vjp
def _exp_back(_x: mx.array, wanted: mx.array, made: mx.array) -> mx.array:
    return wanted * made


def by_vectors(x: mx.array) -> bool:
    """Whether MLX would take the exponential of `x` one number at a time."""
    return sys.platform != "darwin" and mx.default_device().type == mx.DeviceType.cpu and x.dtype == mx.float32


def gated(gate: mx.array, up: mx.array) -> mx.array:
    """silu(gate) * up, all of one shape."""
    return gate / (1 + _exp(-gate)) * up if by_vectors(gate) else nn.silu(gate) * up


def softmax(x: mx.array) -> mx.array:
    """Over the last axis."""
    if not by_vectors(x):
        return mx.softmax(x, axis=-1, precise=True)
    e = _exp(x - _top(x))
    return e / e.sum(axis=-1, keepdims=True)


def logsumexp(x: mx.array) -> mx.array:
    """Over the last axis, which goes."""
    if not by_vectors(x):
        return mx.logsumexp(x, axis=-1)
    top = _top(x)
    return top[..., 0] + mx.log(_exp(x - top).sum(axis=-1))


def largest_share(x: mx.array) -> mx.array:
    """The largest of softmax(x) over the last axis, which goes."""
    if not by_vectors(x):
        return mx.softmax(x, axis=-1, precise=True).max(axis=-1)
    return 1 / _exp(x - x.max(axis=-1, keepdims=True)).sum(axis=-1)


def _top(x: mx.array) -> mx.array:
    # Whatever is taken off is put back, so it has no part in a derivative.
    return mx.stop_gradient(x.max(axis=-1, keepdims=True))
