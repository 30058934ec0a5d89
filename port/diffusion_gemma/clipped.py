"""Projections of the vision tower, which may clip what goes in and what comes out."""

import mlx.core as mx

from .linear import Linear
from .weights import Param, Scope

_BOUNDS = ("input_min", "input_max", "output_min", "output_max")


class ClippedLinear:
    """A projection under `<name>.linear`, with the four scalar bounds of its input and output where the config clips.

    Args:
        scope: the module's place.
        inputs: width of the input.
        outputs: width of the output.
        clipped: whether the bounds exist.
    """

    def __init__(self, scope: Scope, inputs: int, outputs: int, *, clipped: bool) -> None:
        self.linear = Linear(scope / "linear", inputs, outputs)
        self.bounds: dict[str, Param] = {name: scope.param(name, ()) for name in _BOUNDS if clipped}

    def __call__(self, x: mx.array) -> mx.array:
        """Floats [..., inputs] to [..., outputs], in the dtype of x."""
        return self._clip(self.linear(self._clip(x, "input")), "output")

    def _clip(self, x: mx.array, side: str) -> mx.array:
        if not self.bounds:
            return x
        return mx.clip(x, self.bounds[f"{side}_min"].array, self.bounds[f"{side}_max"].array)
