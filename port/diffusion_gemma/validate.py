"""The rules that a configuration has to keep: types, ranges, and shapes that agree with each other."""

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from port.errors import ConfigError, fetch_again

if TYPE_CHECKING:
    from .config import TextConfig, VisionConfig

Rule = tuple[bool, str, Any, str]  # holds, key, what is, what should be

_ROPE_KEYS = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"}


def _enforce(rules: Iterable[Rule], where: str, path: Path) -> None:
    for holds, key, found, expected in rules:
        if not holds:
            raise ConfigError(
                str(path),
                found=f"{where}.{key} is {json.dumps(found)}",
                expected=expected,
                mend=fetch_again(path.parent, path.name),
            )


def section(raw: Any, name: str, path: Path) -> dict[str, Any]:
    """A JSON object, or a refusal.

    Raises:
        ConfigError: it is anything else.
    """
    if not isinstance(raw, dict):
        raise ConfigError(
            str(path),
            found=f"{name} is {json.dumps(raw)[:60]}",
            expected="a JSON object",
            mend=fetch_again(path.parent, path.name),
        )
    return raw


def _typed(config: Any, where: str, path: Path) -> None:
    """Every plain field has the type of its declaration; sizes and ids are whole numbers."""
    allowed: dict[str, Any] = {"int": int, "float": (int, float), "bool": bool, "str": str}
    for f in fields(config):
        base, _, optional = str(getattr(f.type, "__name__", f.type)).partition(" | ")
        value = getattr(config, f.name)
        if base not in allowed or optional not in {"", "None"} or (optional and value is None):
            continue
        wrong = not isinstance(value, allowed[base]) or (isinstance(value, bool) and base != "bool")
        _enforce([(not wrong, f.name, value, f"a value of type {base}")], where, path)


def check_text(text: "TextConfig", path: Path) -> None:
    """Refuse a language model that cannot be built or that this port would compute differently.

    Args:
        text: the parsed section.
        path: the file it came from.

    Raises:
        ConfigError: naming the first key that breaks a rule.
    """
    _typed(text, "text_config", path)
    positive = ["vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers",
                "num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window", "num_experts",
                "top_k_experts", "final_logit_softcapping", "rms_norm_eps"]  # fmt: skip
    _enforce(((getattr(text, k) > 0, k, getattr(text, k), "above 0") for k in positive), "text_config", path)
    kinds = text.layer_types or []
    known = {"sliding_attention", "full_attention"}
    heads, kv, full_kv = text.num_attention_heads, text.num_key_value_heads, text.num_global_key_value_heads
    rules: list[Rule] = [
        (text.model_type == "diffusion_gemma_text", "model_type", text.model_type, "'diffusion_gemma_text'"),
        (len(kinds) == text.num_hidden_layers, "layer_types", kinds, f"{text.num_hidden_layers} entries, one a layer"),
        (set(kinds) <= known, "layer_types", kinds, f"only {' and '.join(sorted(known))}"),
        (heads % kv == 0, "num_key_value_heads", kv, f"a divisor of {heads}"),
        (not full_kv or heads % full_kv == 0, "num_global_key_value_heads", full_kv, f"a divisor of {heads}"),
        (full_kv != 0, "num_global_key_value_heads", full_kv, "above 0, or null"),
        (text.head_dim % 2 == 0, "head_dim", text.head_dim, "an even number, as rotations need pairs"),
        ((text.global_head_dim or 0) % 2 == 0, "global_head_dim", text.global_head_dim, "an even number"),
        (text.top_k_experts <= text.num_experts, "top_k_experts", text.top_k_experts, f"at most {text.num_experts}"),
        (
            text.hidden_activation == "gelu_pytorch_tanh",
            "hidden_activation",
            text.hidden_activation,
            "'gelu_pytorch_tanh', the one gate this model has",
        ),
        (text.tie_word_embeddings, "tie_word_embeddings", text.tie_word_embeddings, "true: the head is the embedding"),
        (
            text.use_bidirectional_attention in {None, "vision"},
            "use_bidirectional_attention",
            text.use_bidirectional_attention,
            "null or 'vision'",
        ),
        (0 <= text.pad_token_id < text.vocab_size, "pad_token_id", text.pad_token_id, f"0 to {text.vocab_size - 1}"),
    ]
    _enforce(rules, "text_config", path)


def check_vision(vision: "VisionConfig", path: Path) -> None:
    """Refuse a vision tower that cannot be built.

    Raises:
        ConfigError: naming the first key that breaks a rule.
    """
    _typed(vision, "vision_config", path)
    positive = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                "head_dim", "patch_size", "position_embedding_size", "pooling_kernel_size"]  # fmt: skip
    _enforce(((getattr(vision, k) > 0, k, getattr(vision, k), "above 0") for k in positive), "vision_config", path)
    heads, kv = vision.num_attention_heads, vision.num_key_value_heads
    rules: list[Rule] = [
        (vision.model_type == "gemma4_vision", "model_type", vision.model_type, "'gemma4_vision'"),
        (heads % kv == 0, "num_key_value_heads", kv, f"a divisor of {heads}"),
        (not vision.attention_bias, "attention_bias", vision.attention_bias, "false: the tower has no biases"),
    ]
    _enforce(rules, "vision_config", path)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_rope(ropes: dict[str, Any] | None, kinds: set[str], path: Path) -> None:
    """Refuse rotary settings of a layer kind or a type that this port does not rotate by.

    Raises:
        ConfigError: naming the layer kind and the key.
    """
    for kind, rope in (ropes or {}).items():
        where = f"text_config.rope_parameters.{kind}"
        mapped = isinstance(rope, dict)
        _enforce(
            [
                (kind in kinds, "", rope, f"one of {' and '.join(sorted(kinds))}"),
                (mapped, "", rope, "a JSON object"),
                (mapped and set(rope) <= _ROPE_KEYS, "", rope, f"only the keys {', '.join(sorted(_ROPE_KEYS))}"),
            ],
            where,
            path,
        )
        name = rope.get("type") or rope.get("rope_type", "default")
        theta, fraction = rope.get("rope_theta", 1.0), rope.get("partial_rotary_factor", 1.0)
        _enforce(
            [
                (name in ("default", "proportional"), "rope_type", name, "'default' or 'proportional'"),
                (_is_number(theta) and theta > 0, "rope_theta", theta, "a number above 0"),
                (_is_number(fraction) and 0 <= fraction <= 1, "partial_rotary_factor", fraction, "from 0 to 1"),
            ],
            where,
            path,
        )
