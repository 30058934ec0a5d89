"""The small checkpoints as files: a Hugging Face Llama in two shapes, and a MetaDiffusion."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

SEED = "lockstep llama 1"
Array = npt.NDArray[np.float32]

# Grouped queries, heads that are not hidden / heads wide, a large theta where configurations keep it today, tied.
GROUPED: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 61,
    "max_position_embeddings": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "tie_word_embeddings": True,
}
# As many key-value heads as heads, no head_dim, theta where configurations kept it before, a head of its own, and
# -1 for "no padding".
SEPARATE: dict[str, Any] = {
    **{key: value for key, value in GROUPED.items() if key not in ("head_dim", "rope_parameters")},
    "num_key_value_heads": 4,
    "rope_theta": 10000.0,
    "pad_token_id": -1,
    "tie_word_embeddings": False,
}
DIFFUSION: dict[str, Any] = {
    "model_type": "metadiffusion",
    **{key: GROUPED[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")},
    **{key: GROUPED[key] for key in ("num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings")},
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "timestep_emb_hidden": 48,
    "pad_token_id": 1,
    "tie_word_embeddings": True,
    "ar_shift": False,
}
VARIANTS = {"llama": GROUPED, "llama-untied": SEPARATE, "metadiffusion": DIFFUSION}


def build(variant: str) -> dict[str, bytes]:
    """Every file of a checkpoint by name; the grouped Llama lies in two shards.

    Raises:
        KeyError: there is no such variant.
    """
    config = VARIANTS[variant]
    tensors = diffusion(config) if variant == "metadiffusion" else llama(config)
    files = {"config.json": (json.dumps(config, indent=1, sort_keys=True) + "\n").encode()}
    if variant != "llama":
        return files | {"model.safetensors": save(tensors, metadata={"format": "pt"})}
    names = sorted(tensors)
    halves = {f"model-{i:05d}-of-00002.safetensors": names[i - 1 :: 2] for i in (1, 2)}
    index = {"metadata": {}, "weight_map": {name: file for file, part in halves.items() for name in part}}
    files |= {
        file: save({name: tensors[name] for name in part}, metadata={"format": "pt"}) for file, part in halves.items()
    }
    return files | {"model.safetensors.index.json": (json.dumps(index, indent=1, sort_keys=True) + "\n").encode()}


def write(variant: str, out: Path) -> None:
    """Build a checkpoint into folder `out`, made if absent."""
    out.mkdir(parents=True, exist_ok=True)
    for name, content in build(variant).items():
        (out / name).write_bytes(content)


def llama(config: dict[str, Any]) -> dict[str, Array]:
    """A Llama's tensors: no norm weight is 1, logits of rms about 4."""
    made = {
        "model.embed_tokens.weight": _uniform("embed", (config["vocab_size"], config["hidden_size"]), 0.6),
        "model.norm.weight": _norm("norm", config["hidden_size"]),
    }
    if not config["tie_word_embeddings"]:
        made["lm_head.weight"] = _uniform("head", (config["vocab_size"], config["hidden_size"]), 0.6)
    return made | {f"model.{name}": tensor for name, tensor in _blocks(config).items()}


def diffusion(config: dict[str, Any]) -> dict[str, Array]:
    """A MetaDiffusion's tensors, its timestep parts as large as if they had been trained."""
    hidden, width = config["hidden_size"], config["timestep_emb_hidden"]
    made = {
        "embed_tokens.weight": _uniform("embed", (config["vocab_size"] + 1, hidden), 0.6),
        "norm.weight": _norm("norm", hidden),
        **_linear("timestep_emb.mlp.0", 4 * width, width),
        **_linear("timestep_emb.mlp.2", width, 4 * width),
        **_blocks(config),
    }
    for layer in range(config["num_hidden_layers"]):
        made |= _linear(f"layers.{layer}.timestep_residual.proj", hidden, width)
    return made


def _blocks(config: dict[str, Any]) -> dict[str, Array]:
    made: dict[str, Array] = {}
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    width = config.get("head_dim") or hidden // heads
    attended, shared = heads * width, config["num_key_value_heads"] * width
    shapes = {"q": (attended, hidden), "k": (shared, hidden), "v": (shared, hidden), "o": (hidden, attended)}
    network = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    for layer in range(config["num_hidden_layers"]):
        root = f"layers.{layer}"
        for part, matrices in (("self_attn", shapes), ("mlp", network)):
            for name, shape in matrices.items():
                path = f"{root}.{part}.{name}_proj.weight"
                made[path] = _uniform(path, shape, 1.5 / math.sqrt(shape[1]))
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{root}.{name}.weight"] = _norm(f"{root}.{name}", hidden)
    return made


def _linear(path: str, rows: int, columns: int) -> dict[str, Array]:
    return {
        f"{path}.weight": _uniform(f"{path}.weight", (rows, columns), 1.0 / math.sqrt(columns)),
        f"{path}.bias": _uniform(f"{path}.bias", (rows,), 0.2),
    }


def _norm(name: str, width: int) -> Array:
    return (1.2 + _uniform(name, (width,), 0.2)).astype(np.float32)


def _uniform(name: str, shape: tuple[int, ...], rms: float) -> Array:
    """Symmetric draws of root mean square `rms`: raw words of PCG64, one product and one rounding."""
    seed = int.from_bytes(hashlib.sha256(f"{SEED}: {name}".encode()).digest(), "little")
    words = np.random.PCG64(seed).random_raw(math.prod(shape)) >> np.uint64(11)
    return ((2.0 * (words * 2.0**-53) - 1.0) * (rms * math.sqrt(3.0))).astype(np.float32).reshape(shape)
