"""The mixture of experts: a router that scores, a choice of the best, and the experts' weighted sum.

Legend: N tokens of all rows together, D hidden, F inner width, E experts, K experts a token.
"""

import mlx.core as mx

from .config import TextConfig
from .linear import Linear, Matrix
from .ops import geglu, unit_rms
from .weights import Scope

_SORT_FROM = 64  # assignments from which rows are grouped by expert


class Router:
    """Scores every expert from the raw residual, and picks the best K.

    Args:
        scope: `...router`; claims `proj`, `scale` [D] and `per_expert_scale` [E].
        text: the configuration.
    """

    def __init__(self, scope: Scope, text: TextConfig) -> None:
        self.proj = Linear(scope / "proj", text.hidden_size, text.num_experts)
        self.scale = scope.param("scale", (text.hidden_size,))
        self.per_expert_scale = scope.param("per_expert_scale", (text.num_experts,))
        self._eps = text.rms_norm_eps
        self._root = text.hidden_size**-0.5
        self._chosen = text.top_k_experts

    def scores(self, h_ND: mx.array) -> mx.array:
        """Floats [N, D] to scores [N, E] in the same dtype."""
        # Three roundings: norm, scale, root. Folded into the norm's weight they would be one, and other experts win.
        return self.proj(unit_rms(h_ND, self._eps) * self.scale.array * self._root)

    def select(self, scores_NE: mx.array) -> tuple[mx.array, mx.array]:
        """The K best experts of each token, in the order that the partition leaves them, and their weights.

        Args:
            scores_NE: floats.

        Returns:
            experts [N, K] of uint32; weights [N, K] in the dtype of the scores: softmax over the chosen ones alone,
            times each expert's own scale.
        """
        # Indices carry no gradient; saying so keeps the gathers differentiable in everything else.
        experts_NK = mx.stop_gradient(mx.argpartition(scores_NE, kth=-self._chosen, axis=-1)[..., -self._chosen :])
        weights_NK = mx.softmax(mx.take_along_axis(scores_NE, experts_NK, axis=-1), axis=-1, precise=True)
        return experts_NK, weights_NK * self.per_expert_scale.array[experts_NK]


class Experts:
    """E feed-forward networks, of which each token visits K.

    Args:
        scope: `...experts`; claims `gate_up_proj` [E, 2F, D] and `down_proj` [E, D, F].
        text: the configuration.
    """

    def __init__(self, scope: Scope, text: TextConfig) -> None:
        hidden, self._inner = text.hidden_size, text.moe_intermediate_size
        self.gate_up_proj = Matrix(scope / "gate_up_proj", text.num_experts, 2 * self._inner, hidden)
        self.down_proj = Matrix(scope / "down_proj", text.num_experts, hidden, self._inner)

    def _visit(self, x: mx.array, experts: mx.array, *, ordered: bool) -> mx.array:
        """One network a row: x [..., 1, D], experts [...]."""
        both = self.gate_up_proj.apply_expert(x, experts, ordered=ordered)
        gate, up = both[..., : self._inner], both[..., self._inner :]
        return self.down_proj.apply_expert(geglu(gate, up), experts, ordered=ordered)

    def __call__(self, x_ND: mx.array, experts_NK: mx.array, weights_NK: mx.array) -> mx.array:
        """The weighted sum of the chosen experts.

        Args:
            x_ND: normed hidden states.
            experts_NK: integers; their order is the order of the sum.
            weights_NK: floats.

        Returns:
            floats [N, D] in the dtype of x.
        """
        chosen = experts_NK.shape[-1]
        if experts_NK.size < _SORT_FROM:
            y_NKD = self._visit(x_ND[:, None, None, :], experts_NK, ordered=False)[..., 0, :]
        else:
            flat = experts_NK.flatten()
            order = mx.argsort(flat)
            y = self._visit(x_ND[:, None, :][order // chosen], flat[order], ordered=True)
            y_NKD = mx.unflatten(y[mx.argsort(order)][:, 0, :], 0, (-1, chosen))
        return (y_NKD * weights_NK[..., None]).sum(axis=-2)
