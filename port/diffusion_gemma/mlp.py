"""The dense feed-forward network: gated, tanh GELU."""

import mlx.core as mx

from .linear import Linear
from .ops import geglu
from .weights import Scope


class MLP:
    """down(gelu(gate(x)) * up(x)).

    Args:
        scope: the module's place; claims `gate_proj`, `up_proj`, `down_proj`.
        hidden: width of input and output.
        inner: width between.
    """

    def __init__(self, scope: Scope, hidden: int, inner: int) -> None:
        self.gate_proj = Linear(scope / "gate_proj", hidden, inner)
        self.up_proj = Linear(scope / "up_proj", hidden, inner)
        self.down_proj = Linear(scope / "down_proj", inner, hidden)

    def __call__(self, x_BTD: mx.array) -> mx.array:
        """Floats [..., D] to the same shape and dtype."""
        return self.down_proj(geglu(self.gate_proj(x_BTD), self.up_proj(x_BTD)))
