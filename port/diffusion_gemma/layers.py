"""A transformer layer: attention, then a dense network and experts side by side.

Legend: B batch, T tokens, N = B * T, D hidden.
"""

from collections.abc import Callable

import mlx.core as mx

from .aliases import Mask, Pair
from .attention import Attention
from .cache import Cache
from .config import TextConfig
from .lanes import by_rows
from .mlp import MLP
from .moe import Experts, Router
from .ops import RMSNorm
from .weights import Param, Scope


class Layer:
    """One layer, used by the encoder and by the decoder; only the scalar at its end differs between them.

    Args:
        scope: `model.decoder.layers.<layer>`.
        encoder_scope: `model.encoder.language_model.layers.<layer>`, which holds the encoder's scalar alone.
        text: the configuration.
        layer: its number.
    """

    def __init__(self, scope: Scope, encoder_scope: Scope, text: TextConfig, layer: int) -> None:
        def norm(name: str) -> RMSNorm:
            return RMSNorm(scope / name, text.hidden_size, text.rms_norm_eps)

        self._scopes = scope, encoder_scope
        self.self_attn = Attention(scope / "self_attn", text, layer)
        self.mlp = MLP(scope / "mlp", text.hidden_size, text.intermediate_size)
        self.router = Router(scope / "router", text)
        self.experts = Experts(scope / "experts", text)
        self.input_layernorm = norm("input_layernorm")
        self.post_attention_layernorm = norm("post_attention_layernorm")
        self.pre_feedforward_layernorm = norm("pre_feedforward_layernorm")
        self.pre_feedforward_layernorm_2 = norm("pre_feedforward_layernorm_2")
        self.post_feedforward_layernorm_1 = norm("post_feedforward_layernorm_1")
        self.post_feedforward_layernorm_2 = norm("post_feedforward_layernorm_2")
        self.post_feedforward_layernorm = norm("post_feedforward_layernorm")
        self.layer_scalar = scope.param("layer_scalar", (1,))
        self.encoder_scalar = encoder_scope.param("layer_scalar", (1,))

    def encode(self, h_BTD: mx.array, mask: Mask, cache: Cache) -> mx.array:
        """A pass over prompt tokens, which the cache keeps: floats [B, T, D] to the same shape and dtype."""
        return self._run(h_BTD, lambda x: self.self_attn.encode(x, mask, cache), self.encoder_scalar)

    def decode(self, h_BCD: mx.array, mask: Mask, past: Pair | None, offset: int) -> mx.array:
        """A pass over the canvas, which only reads `past`: floats [B, C, D] to the same shape and dtype."""
        return self._run(h_BCD, lambda x: self.self_attn.decode(x, mask, past, offset), self.layer_scalar)

    def release(self) -> None:
        """Forget every weight; the next pass reads them again."""
        for scope in self._scopes:
            scope.release()

    def _run(self, h_BTD: mx.array, attend: Callable[[mx.array], mx.array], scalar: Param) -> mx.array:
        h_BTD = h_BTD + self.post_attention_layernorm(attend(self.input_layernorm(h_BTD)))
        return by_rows(lambda rows_BTD: self._feed_forward(rows_BTD, scalar), h_BTD)

    def _feed_forward(self, h_BTD: mx.array, scalar: Param) -> mx.array:
        """What no token's neighbours have a part in: floats [B, T, D] to the same shape and dtype."""
        dense_BTD = self.post_feedforward_layernorm_1(self.mlp(self.pre_feedforward_layernorm(h_BTD)))
        flat_ND = h_BTD.reshape(-1, h_BTD.shape[-1])
        # The router reads the residual as it is; only the experts get it normed.
        chosen = self.router.select(self.router.scores(flat_ND))
        sparse_ND = self.experts(self.pre_feedforward_layernorm_2(flat_ND), *chosen)
        sparse_BTD = self.post_feedforward_layernorm_2(sparse_ND.reshape(h_BTD.shape))
        return (h_BTD + self.post_feedforward_layernorm(dense_BTD + sparse_BTD)) * scalar.array
