"""The small float functions that several modules share."""

from functools import partial

import mlx.core as mx
from mlx import nn

from .weights import Param, Scope


class RMSNorm:
    """Root-mean-square norm times a weight (no one added), over the last axis.

    Args:
        scope: the module's place; claims `weight` of shape [width].
        width: the last axis' length.
        eps: added to the mean square.
    """

    def __init__(self, scope: Scope, width: int, eps: float) -> None:
        self._weight: Param = scope.param("weight", (width,))
        self._eps = eps

    @property
    def dtype(self) -> mx.Dtype:
        """The dtype of the weight, which is that of the model's activations."""
        return self._weight.array.dtype

    @property
    def weight(self) -> mx.array:
        """Floats [width]."""
        return self._weight.array

    def __call__(self, x: mx.array) -> mx.array:
        """Floats [..., width] to the same shape and dtype."""
        return mx.fast.rms_norm(x, self._weight.array, self._eps)


def unit_rms(x: mx.array, eps: float) -> mx.array:
    """The norm without a weight: floats [..., D] to the same shape and dtype."""
    return mx.fast.rms_norm(x, None, eps)


@partial(mx.compile, shapeless=True)
def _geglu(gate: mx.array, up: mx.array) -> mx.array:
    return nn.gelu_approx(gate) * up


def geglu(gate: mx.array, up: mx.array) -> mx.array:
    """gelu(gate) * up with the tanh form of GELU; same shape and dtype as the arguments.

    Compiled, as the reference is, so that on every backend one fused kernel does the roundings.
    """
    return _geglu(gate, up)
