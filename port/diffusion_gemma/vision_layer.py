"""A layer of the vision tower: attention, then a gated network, each between two norms.

Legend: B batch, P patches, W the tower's hidden size.
"""

import mlx.core as mx
from mlx import nn

from .clipped import ClippedLinear
from .config import VisionConfig
from .grid import Grid
from .ops import RMSNorm
from .vision_attention import VisionAttention
from .vision_rope import PlaneRope
from .weights import Scope


class VisionMLP:
    """The gated network.

    Args:
        scope: `...mlp`.
        vision: the configuration.
    """

    def __init__(self, scope: Scope, vision: VisionConfig) -> None:
        hidden, inner, clipped = vision.hidden_size, vision.intermediate_size, vision.use_clipped_linears
        self.gate_proj = ClippedLinear(scope / "gate_proj", hidden, inner, clipped=clipped)
        self.up_proj = ClippedLinear(scope / "up_proj", hidden, inner, clipped=clipped)
        self.down_proj = ClippedLinear(scope / "down_proj", inner, hidden, clipped=clipped)

    def __call__(self, x_BPW: mx.array) -> mx.array:
        """Floats [B, P, W] to the same shape and dtype."""
        # Not the language model's `geglu`: here the reference compiles the GELU alone, so the product rounds by itself.
        return self.down_proj(nn.gelu_approx(self.gate_proj(x_BPW)) * self.up_proj(x_BPW))


class VisionLayer:
    """One layer of the tower.

    Args:
        scope: `...vision_tower.encoder.layers.<layer>`.
        vision: the configuration.
    """

    def __init__(self, scope: Scope, vision: VisionConfig) -> None:
        def norm(name: str) -> RMSNorm:
            return RMSNorm(scope / name, vision.hidden_size, vision.rms_norm_eps)

        self.self_attn = VisionAttention(scope / "self_attn", vision)
        self.mlp = VisionMLP(scope / "mlp", vision)
        self.input_layernorm = norm("input_layernorm")
        self.post_attention_layernorm = norm("post_attention_layernorm")
        self.pre_feedforward_layernorm = norm("pre_feedforward_layernorm")
        self.post_feedforward_layernorm = norm("post_feedforward_layernorm")

    def __call__(self, h_BPW: mx.array, grid: Grid, rope: PlaneRope) -> mx.array:
        """Floats [B, P, W] to the same shape and dtype."""
        h_BPW = h_BPW + self.post_attention_layernorm(self.self_attn(self.input_layernorm(h_BPW), grid, rope))
        return h_BPW + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(h_BPW)))
