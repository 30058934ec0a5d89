"""Attention among the patches of one picture.

Legend: B batch, P patches, K patches that the tower has room for, W the tower's hidden size, H heads, G key-value
heads, d head width.
"""

import mlx.core as mx

from .clipped import ClippedLinear
from .config import VisionConfig
from .grid import Grid
from .ops import RMSNorm
from .vision_rope import PlaneRope
from .weights import Scope

FUSED = (64, 80, 128)  # head widths that Metal has a fused kernel for
QKV_EPS = 1e-6  # of the norms on queries, keys and values, whatever rms_norm_eps is: so the reference has it


def _unit(x: mx.array) -> mx.array:
    """The norm without a weight, in float32 all the way, and left in float32."""
    wide = x.astype(mx.float32)
    return wide * mx.rsqrt(mx.mean(wide**2, axis=-1, keepdims=True) + QKV_EPS)


def scaled_norm(x: mx.array, weight: mx.array) -> mx.array:
    """Root-mean-square norm times a weight, rounded once at the end; same shape and dtype as x."""
    return (_unit(x) * weight.astype(mx.float32)).astype(x.dtype)


def plain_norm(x: mx.array) -> mx.array:
    """Root-mean-square norm without a weight, rounded once at the end; same shape and dtype as x."""
    return _unit(x).astype(x.dtype)


def fused_width(width: int) -> int:
    """The width that heads are filled up to with zeros: 80 for the published 72."""
    return next((known for known in FUSED if width <= known), width)


class VisionAttention:
    """One layer's attention: every patch sees every patch, scores are not scaled.

    Args:
        scope: `...self_attn`.
        vision: the configuration.
    """

    def __init__(self, scope: Scope, vision: VisionConfig) -> None:
        self._heads, self._kv_heads, self._width = (
            vision.num_attention_heads,
            vision.num_key_value_heads,
            vision.head_dim,
        )
        hidden, clipped = vision.hidden_size, vision.use_clipped_linears
        queries, keys = self._heads * self._width, self._kv_heads * self._width
        self.q_proj = ClippedLinear(scope / "q_proj", hidden, queries, clipped=clipped)
        self.k_proj = ClippedLinear(scope / "k_proj", hidden, keys, clipped=clipped)
        self.v_proj = ClippedLinear(scope / "v_proj", hidden, keys, clipped=clipped)
        self.o_proj = ClippedLinear(scope / "o_proj", queries, hidden, clipped=clipped)
        self.q_norm = RMSNorm(scope / "q_norm", self._width, QKV_EPS)
        self.k_norm = RMSNorm(scope / "k_norm", self._width, QKV_EPS)

    def __call__(self, x_BPW: mx.array, grid: Grid, rope: PlaneRope) -> mx.array:
        """Floats [B, P, W] to the same shape and dtype."""
        batch, patches, _ = x_BPW.shape
        q_BPHd = self.q_proj(x_BPW).reshape(batch, patches, self._heads, self._width)
        k_BPGd = self.k_proj(x_BPW).reshape(batch, patches, self._kv_heads, self._width)
        v_BPGd = self.v_proj(x_BPW).reshape(k_BPGd.shape)
        q_BPHd = rope(scaled_norm(q_BPHd, self.q_norm.weight))
        k_BPGd = rope(scaled_norm(k_BPGd, self.k_norm.weight))
        mixed_BHPd = self._mix(q_BPHd, k_BPGd, plain_norm(v_BPGd), grid)
        return self.o_proj(mixed_BHPd.transpose(0, 2, 1, 3).reshape(batch, patches, -1))

    def _mix(self, q_BPHd: mx.array, k_BPGd: mx.array, v_BPGd: mx.array, grid: Grid) -> mx.array:
        """Heads filled up to a fused width, keys and values up to the tower's room.

        Padding asks for nothing here: its queries would only be thrown away. As keys it stays, with weights of
        exactly 0, because a kernel's order of sums may depend on their number.
        """
        channels = (0, fused_width(self._width) - self._width)
        places = (0, grid.room - grid.patches)
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (q_BPHd, k_BPGd, v_BPGd))
        q = mx.pad(q, [(0, 0), (0, 0), (0, 0), channels])
        k, v = (mx.pad(x, [(0, 0), (0, 0), places, channels]) for x in (k, v))
        mixed = mx.fast.scaled_dot_product_attention(q, k, v, scale=1.0, mask=grid.mask(q.dtype))
        return mixed[..., : self._width]
