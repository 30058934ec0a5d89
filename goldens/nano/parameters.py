"""Every tensor of the nano checkpoint by its name, with the magnitudes that keep it alive.

Chosen so that hidden states stay between about 0.3 and 10, routers prefer without insisting, attention is neither
uniform nor one-hot, and the softcap bends: see `tests/test_nano.py` for what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from goldens.nano import architecture as arch
from goldens.nano.architecture import HIDDEN, Variant
from goldens.nano.draw import Array, Shape, around, dense, quantized

VISION_ROOT = "model.encoder."
EMBED_GAIN = 2.0  # times sqrt(hidden), which the model multiplies in: embeddings of rms 2
FINAL_NORM = 7.0  # logits of rms 15 before the cap at 30: half a percent to a twentieth of them well past it
QK_NORM = 0.65  # attention scores of rms 1.7 (sliding, 16 wide) to 2.9 (full, 32 wide)
ROUTER_SCALE = 8.0  # with the gain: scores of rms 1.8 after the router's own hidden ** -0.5
ROUTER_GAIN = 3.0
POST_NORM = 0.6  # what a branch adds to a residual stream of rms 1 to 2.5


@dataclass
class Parameters:
    """Tensors by name, and the width of each quantized module by path."""

    tensors: dict[str, Array] = field(default_factory=dict)
    bits: dict[str, int] = field(default_factory=dict)

    def quantize(self, path: str, shape: Shape, bits: int, gain: float) -> None:
        """Add an affine-quantized module at `path`; arguments as of `draw.quantized`."""
        drawn = quantized(path, shape, bits, gain)
        self.bits[path] = bits
        self.tensors |= {f"{path}.weight": drawn.words, f"{path}.scales": drawn.scales, f"{path}.biases": drawn.biases}

    def norm(self, path: str, width: int, centre: float = 1.0) -> None:
        """Add a norm's weight, every element away from 1."""
        self.tensors[f"{path}.weight"] = around(path, (width,), centre)


def text() -> Parameters:
    """The language model: decoder, self-conditioning and the encoder's own layer scalars."""
    made = Parameters()
    made.quantize("model.decoder.embed_tokens", (arch.VOCAB, HIDDEN), 4, EMBED_GAIN)
    for layer in range(arch.LAYERS):
        _layer(made, layer)
    made.norm("model.decoder.norm", HIDDEN, FINAL_NORM)
    block = "model.decoder.self_conditioning"
    made.norm(f"{block}.pre_norm", HIDDEN)
    made.quantize(f"{block}.gate_proj", (arch.DENSE, HIDDEN), 4, 1.5)
    made.quantize(f"{block}.up_proj", (arch.DENSE, HIDDEN), 4, 1.5)
    made.quantize(f"{block}.down_proj", (HIDDEN, arch.DENSE), 4, 1.5)
    return made


def _layer(made: Parameters, layer: int) -> None:
    path = f"model.decoder.layers.{layer}"
    head, groups = arch.head_dim(layer), arch.kv_heads(layer)
    attention = f"{path}.self_attn"
    made.quantize(f"{attention}.q_proj", (arch.HEADS * head, HIDDEN), 8, 1.0)
    made.quantize(f"{attention}.k_proj", (groups * head, HIDDEN), 8, 1.0)
    if arch.KINDS[layer] == "sliding_attention":
        made.quantize(f"{attention}.v_proj", (groups * head, HIDDEN), 8, 1.0)
    made.quantize(f"{attention}.o_proj", (HIDDEN, arch.HEADS * head), 8, 1.5)
    made.norm(f"{attention}.q_norm", head, QK_NORM)
    made.norm(f"{attention}.k_norm", head, QK_NORM)
    made.quantize(f"{path}.mlp.gate_proj", (arch.DENSE, HIDDEN), 8, 1.5)
    made.quantize(f"{path}.mlp.up_proj", (arch.DENSE, HIDDEN), 8, 1.0)
    made.quantize(f"{path}.mlp.down_proj", (HIDDEN, arch.DENSE), 8, 1.0)
    made.quantize(f"{path}.router.proj", (arch.EXPERTS, HIDDEN), 8, ROUTER_GAIN)
    made.tensors[f"{path}.router.scale"] = around(f"{path}.router.scale", (HIDDEN,), ROUTER_SCALE)
    made.tensors[f"{path}.router.per_expert_scale"] = around(f"{path}.router.per_expert_scale", (arch.EXPERTS,))
    made.quantize(f"{path}.experts.gate_up_proj", (arch.EXPERTS, 2 * arch.EXPERT, HIDDEN), 4, 1.5)
    made.quantize(f"{path}.experts.down_proj", (arch.EXPERTS, HIDDEN, arch.EXPERT), 4, 1.0)
    for name in ("input_layernorm", "pre_feedforward_layernorm", "pre_feedforward_layernorm_2"):
        made.norm(f"{path}.{name}", HIDDEN)
    for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2"):
        made.norm(f"{path}.{name}", HIDDEN)
    for name in ("post_attention_layernorm", "post_feedforward_layernorm"):
        made.norm(f"{path}.{name}", HIDDEN, POST_NORM)
    made.tensors[f"{path}.layer_scalar"] = _scalar(2 * layer)
    made.tensors[f"model.encoder.language_model.layers.{layer}.layer_scalar"] = _scalar(2 * layer + 1)


def _scalar(number: int) -> Array:
    """One of the 2 * LAYERS layer scalars: all different, half of them below 0.9 and half above 1.1."""
    slot = (7 * number + 2) % (2 * arch.LAYERS)
    side, step = divmod(slot, arch.LAYERS)
    return around(f"layer scalar {number}", (1,), 1.14 + 0.06 * step if side else 0.55 + 0.06 * step, 0.001, 0.02)


def vision(variant: Variant) -> Parameters:
    """The vision tower and its projector, under the names the variant gives them.

    The sidecar holds everything in bfloat16, named without the containers the model puts it in; the inline layout
    has the model's own names and 4 bits wherever the columns make whole groups.
    """
    made = Parameters()
    root = "" if variant == "sidecar" else VISION_ROOT
    for path, shape, gain in _vision_matrices():
        if variant == "inline" and shape[-1] % arch.GROUP == 0:
            made.quantize(f"{root}{path}", shape, 4, gain)
        else:
            made.tensors[f"{root}{path}.weight"] = dense(path, shape, gain / math.sqrt(shape[-1]))
    tower = f"{root}vision_tower"
    for layer in range(arch.VISION_LAYERS):
        block = f"{tower}.encoder.layers.{layer}"
        made.norm(f"{block}.self_attn.q_norm", arch.VISION_HEAD, 0.45)
        made.norm(f"{block}.self_attn.k_norm", arch.VISION_HEAD, 0.45)
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            made.norm(f"{block}.{name}_layernorm", arch.VISION_HIDDEN)
    width = arch.VISION_HIDDEN
    table = f"{tower}.patch_embedder.position_embedding_table"
    made.tensors[table] = dense("position table", (2, arch.POSITIONS, width), 0.5)
    made.tensors[f"{tower}.std_bias"] = around("std_bias", (width,), 0.5, 0.2, 2.0)
    made.tensors[f"{tower}.std_scale"] = around("std_scale", (width,), 0.2)
    return made


def _vision_matrices() -> Iterator[tuple[str, Shape, float]]:
    width, head = arch.VISION_HIDDEN, arch.VISION_HEAD
    yield "vision_tower.patch_embedder.input_proj", (width, 3 * arch.PATCH**2), 2.0
    for layer in range(arch.VISION_LAYERS):
        block = f"vision_tower.encoder.layers.{layer}"
        for name, heads in (("q", arch.VISION_HEADS), ("k", arch.VISION_KV_HEADS), ("v", arch.VISION_KV_HEADS)):
            yield f"{block}.self_attn.{name}_proj.linear", (heads * head, width), 1.0
        yield f"{block}.self_attn.o_proj.linear", (width, arch.VISION_HEADS * head), 1.0
        yield f"{block}.mlp.gate_proj.linear", (arch.VISION_DENSE, width), 1.5
        yield f"{block}.mlp.up_proj.linear", (arch.VISION_DENSE, width), 1.0
        yield f"{block}.mlp.down_proj.linear", (width, arch.VISION_DENSE), 1.0
    yield "embed_vision.embedding_projection", (HIDDEN, width), 2.0
