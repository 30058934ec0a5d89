"""The vision tower's parameters: held under their names, packed or plain as the checkpoint has them.

Legend: D the tower's hidden size.
"""

from .config import ModelConfig, VisionConfig
from .linear import Linear
from .ops import RMSNorm
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


class VisionLayer:
    """One layer of the tower: attention with norms on queries and keys, a gated network, four norms.

    Args:
        scope: `...vision_tower.encoder.layers.<layer>`.
        vision: the configuration.
    """

    def __init__(self, scope: Scope, vision: VisionConfig) -> None:
        hidden, inner, clipped = vision.hidden_size, vision.intermediate_size, vision.use_clipped_linears
        queries = vision.num_attention_heads * vision.head_dim
        keys = vision.num_key_value_heads * vision.head_dim
        attn, mlp, eps = scope / "self_attn", scope / "mlp", vision.rms_norm_eps
        self.q_proj = ClippedLinear(attn / "q_proj", hidden, queries, clipped=clipped)
        self.k_proj = ClippedLinear(attn / "k_proj", hidden, keys, clipped=clipped)
        self.v_proj = ClippedLinear(attn / "v_proj", hidden, keys, clipped=clipped)
        self.o_proj = ClippedLinear(attn / "o_proj", queries, hidden, clipped=clipped)
        self.q_norm = RMSNorm(attn / "q_norm", vision.head_dim, eps)
        self.k_norm = RMSNorm(attn / "k_norm", vision.head_dim, eps)
        self.gate_proj = ClippedLinear(mlp / "gate_proj", hidden, inner, clipped=clipped)
        self.up_proj = ClippedLinear(mlp / "up_proj", hidden, inner, clipped=clipped)
        self.down_proj = ClippedLinear(mlp / "down_proj", inner, hidden, clipped=clipped)
        self.input_layernorm = RMSNorm(scope / "input_layernorm", hidden, eps)
        self.post_attention_layernorm = RMSNorm(scope / "post_attention_layernorm", hidden, eps)
        self.pre_feedforward_layernorm = RMSNorm(scope / "pre_feedforward_layernorm", hidden, eps)
        self.post_feedforward_layernorm = RMSNorm(scope / "post_feedforward_layernorm", hidden, eps)


class VisionTower:
    """Patch embedding, layers, standardization and the projection into the language model's width.

    Args:
        scope: `model.encoder`.
        config: the configuration, with a `vision_config`.
        vision: that section.
    """

    def __init__(self, scope: Scope, config: ModelConfig, vision: VisionConfig) -> None:
        tower, hidden = scope / "vision_tower", vision.hidden_size
        patches = tower / "patch_embedder"
        self.input_proj = Linear(patches / "input_proj", 3 * vision.patch_size**2, hidden)
        # One table for columns, one for rows.
        self.position_embedding_table = patches.param(
            "position_embedding_table", (2, vision.position_embedding_size, hidden)
        )
        self.layers = [VisionLayer(tower / f"encoder.layers.{i}", vision) for i in range(vision.num_hidden_layers)]
        self.std_bias = tower.param("std_bias", (hidden,)) if vision.standardize else None
        self.std_scale = tower.param("std_scale", (hidden,)) if vision.standardize else None
        projection = scope / "embed_vision" / "embedding_projection"
        self.embedding_projection = Linear(projection, hidden, config.text_config.hidden_size)
