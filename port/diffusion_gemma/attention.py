"""Grouped-query attention: causal over the prompt for the encoder, both ways over prompt and canvas for the decoder.

Legend: B batch, T tokens, C canvas tokens, D hidden, H heads, G key-value heads, S keys, d head width.
"""

import mlx.core as mx

from .aliases import Mask, Pair
from .cache import Cache
from .config import TextConfig
from .linear import Linear
from .ops import RMSNorm, unit_rms
from .prefix import nearest
from .rope import Rope
from .weights import Scope


class Attention:
    """One layer's attention, with norms on queries, keys and values, and scores that are not scaled.

    Args:
        scope: `...self_attn`.
        text: the configuration.
        layer: its number, which decides window, heads and rotation.
    """

    def __init__(self, scope: Scope, text: TextConfig, layer: int) -> None:
        self.window = text.sliding_window if text.is_sliding(layer) else None
        self._heads, self._kv_heads = text.num_attention_heads, text.kv_heads(layer)
        self._width = width = text.head_size(layer)
        self._eps = text.rms_norm_eps
        hidden, bias = text.hidden_size, text.attention_bias
        self.q_proj = Linear(scope / "q_proj", hidden, self._heads * width, bias=bias)
        self.k_proj = Linear(scope / "k_proj", hidden, self._kv_heads * width, bias=bias)
        # Full layers have no projection for values: they reuse that of the keys.
        self.v_proj = Linear(scope / "v_proj", hidden, self._kv_heads * width, bias=bias) if self.window else None
        self.o_proj = Linear(scope / "o_proj", self._heads * width, hidden, bias=bias)
        self.q_norm = RMSNorm(scope / "q_norm", width, self._eps)
        self.k_norm = RMSNorm(scope / "k_norm", width, self._eps)
        self.rope = Rope(width, text.rope(layer))

    def _project(self, x_BTD: mx.array, offset: int) -> tuple[mx.array, mx.array, mx.array]:
        """Queries [B, H, T, d], keys and values [B, G, T, d]: projected, normed, then turned."""
        batch, tokens, _ = x_BTD.shape
        q_BTHd = self.q_proj(x_BTD).reshape(batch, tokens, self._heads, self._width)
        k_BTGd = self.k_proj(x_BTD).reshape(batch, tokens, self._kv_heads, self._width)
        # The raw projection: before the keys' norm and rotation.
        v_BTGd = k_BTGd if self.v_proj is None else self.v_proj(x_BTD).reshape(k_BTGd.shape)
        q_BHTd = self.rope(self.q_norm(q_BTHd).transpose(0, 2, 1, 3), offset)
        k_BGTd = self.rope(self.k_norm(k_BTGd).transpose(0, 2, 1, 3), offset)
        return q_BHTd, k_BGTd, unit_rms(v_BTGd, self._eps).transpose(0, 2, 1, 3)

    def _mix(self, q_BHTd: mx.array, k_BGSd: mx.array, v_BGSd: mx.array, mask: Mask) -> mx.array:
        batch, _, tokens, _ = q_BHTd.shape
        mixed_BHTd = mx.fast.scaled_dot_product_attention(q_BHTd, k_BGSd, v_BGSd, scale=1.0, mask=mask)
        return self.o_proj(mixed_BHTd.transpose(0, 2, 1, 3).reshape(batch, tokens, -1))

    def encode(self, x_BTD: mx.array, mask: Mask, cache: Cache) -> mx.array:
        """A pass over prompt tokens, which the cache keeps.

        Args:
            x_BTD: normed hidden states.
            mask: over the keys that the cache will return.
            cache: written.

        Returns:
            floats [B, T, D] in the dtype of x.
        """
        q_BHTd, k_BGTd, v_BGTd = self._project(x_BTD, cache.offset)
        k_BGSd, v_BGSd = cache.update(k_BGTd, v_BGTd)
        return self._mix(q_BHTd, k_BGSd, v_BGSd, mask)

    def decode(self, x_BCD: mx.array, mask: Mask, past: Pair | None, offset: int) -> mx.array:
        """A pass over the canvas, which reads the prompt's keys and values and leaves no trace.

        Args:
            x_BCD: normed hidden states.
            mask: over all S past keys and the canvas.
            past: keys and values [B, G, S, d] in temporal order, or None.
            offset: the position of the canvas' first token.

        Returns:
            floats [B, C, D] in the dtype of x.
        """
        q_BHCd, k_BGCd, v_BGCd = self._project(x_BCD, offset)
        if past is not None:
            (past_k, past_v), mask = nearest(past, mask, self.window, x_BCD.shape[1])
            k_BGCd = mx.concatenate([past_k, k_BGCd], axis=2)
            v_BGCd = mx.concatenate([past_v, v_BGCd], axis=2)
        return self._mix(q_BHCd, k_BGCd, v_BGCd, mask)
