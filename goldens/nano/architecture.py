"""What the nano checkpoint is: its configuration, as `config.json` states it.

The shapes are chosen to see, not to be small: hidden size 192 is a multiple of a quantization group and not a
power of 4 (where folding `hidden ** -0.5` would be exact), the window is shorter than the prompts of the cases
and than the canvas, head dims differ between layer kinds, the vision head is 72 wide like the published tower's.
"""

from __future__ import annotations

from typing import Any, Literal

Variant = Literal["sidecar", "inline"]
Json = dict[str, Any]

GROUP = 64
VOCAB = 704
HIDDEN = 192
DENSE = 64
EXPERT = 64
LAYERS = 6
HEADS = 4
EXPERTS = 16
KINDS = ("sliding_attention",) * (LAYERS - 1) + ("full_attention",)

VISION_HIDDEN = 64
VISION_LAYERS = 2
VISION_HEADS, VISION_KV_HEADS = 2, 1
VISION_HEAD = 72
VISION_DENSE = 32  # no multiple of GROUP, so that down_proj stays unquantized as in the published inline layout
PATCH = 16
POSITIONS = 96

PAD, EOS, BOS, UNK, MASK = range(5)
TURN_OPEN, TURN_CLOSE = 105, 106
TOOL_RESPONSE = 50
IMAGE_OPEN, IMAGE, AUDIO, IMAGE_CLOSE, VIDEO = range(VOCAB - 5, VOCAB)


def head_dim(layer: int) -> int:
    """Width of one attention head of `layer`."""
    return 16 if KINDS[layer] == "sliding_attention" else 32


def kv_heads(layer: int) -> int:
    """Key and value heads of `layer`; a full layer has no value projection and reuses its keys."""
    return 2 if KINDS[layer] == "sliding_attention" else 1


def config(bits: dict[str, int]) -> Json:
    """The whole `config.json`.

    Args:
        bits: width of every quantized module by its path; each becomes an explicit entry of the map.
    """
    quantization: Json = {"group_size": GROUP, "bits": 4, "mode": "affine"}
    quantization |= {path: {"group_size": GROUP, "bits": width} for path, width in bits.items()}
    return {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "boi_token_id": IMAGE_OPEN,
        "canvas_length": 96,
        "dtype": "bfloat16",
        "eoi_token_id": IMAGE_CLOSE,
        "eos_token_id": [EOS, TURN_CLOSE],
        "image_token_id": IMAGE,
        "initializer_range": 0.02,
        "model_type": "diffusion_gemma",
        "quantization": quantization,
        "quantization_config": quantization,
        "text_config": _text(),
        "tie_word_embeddings": True,
        "vision_config": _vision(),
    }


def _text() -> Json:
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "final_logit_softcapping": 25.0,
        "global_head_dim": head_dim(LAYERS - 1),
        "head_dim": head_dim(0),
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": HIDDEN,
        "intermediate_size": DENSE,
        "layer_types": list(KINDS),
        "max_position_embeddings": 4096,
        "model_type": "diffusion_gemma_text",
        "moe_intermediate_size": EXPERT,
        "num_attention_heads": HEADS,
        "num_experts": EXPERTS,
        "num_global_key_value_heads": kv_heads(LAYERS - 1),
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": kv_heads(0),
        "pad_token_id": PAD,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.5, "rope_theta": 1000000.0, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "sliding_window": 24,
        "tie_word_embeddings": True,
        "top_k_experts": 4,
        "use_bidirectional_attention": "vision",
        "vocab_size": VOCAB,
    }


def _vision() -> Json:
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "default_output_length": 280,
        "global_head_dim": VISION_HEAD,
        "head_dim": VISION_HEAD,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": VISION_HIDDEN,
        "intermediate_size": VISION_DENSE,
        "max_position_embeddings": 131072,
        "model_type": "gemma4_vision",
        "num_attention_heads": VISION_HEADS,
        "num_hidden_layers": VISION_LAYERS,
        "num_key_value_heads": VISION_KV_HEADS,
        "patch_size": PATCH,
        "pooling_kernel_size": 3,
        "position_embedding_size": POSITIONS,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
        "standardize": True,
        "use_clipped_linears": False,
    }


GENERATION: Json = {
    "bos_token_id": BOS,
    "confidence_threshold": 0.005,
    "do_sample": True,
    "eos_token_id": [EOS, TURN_CLOSE, TOOL_RESPONSE],
    "max_denoising_steps": 48,
    "max_new_tokens": 256,
    "pad_token_id": PAD,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
    "stability_threshold": 1,
    "t_max": 0.8,
    "t_min": 0.4,
}
