"""`config.json` as dataclasses: every field named as in the file, every key known, every shape consistent.

Sources: the fields and defaults are those of mlx-optiq 0.7.7 (`diffusion_gemma/config.py`, `gemma4/config.py`).
"""

import json
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from port.errors import ConfigError, fetch_again

from .quantization import read_map
from .validate import check_rope, check_text, check_vision, section

SLIDING = "sliding_attention"
FULL = "full_attention"

# Keys that real files carry and inference has no use for. Whatever is neither here nor a field is refused.
_BOOKKEEPING = {
    "_name_or_path", "architectures", "chunk_size_feed_forward", "dtype", "id2label", "initializer_range",
    "is_encoder_decoder", "label2id", "output_attentions", "output_hidden_states", "problem_type", "return_dict",
    "tokenizer_class", "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip
_TOP_LEVEL = _BOOKKEEPING | {
    "audio_token_id", "boa_token_id", "bos_token_id", "eoa_token_id", "eoa_token_index", "optiq_vision", "pad_token_id",
    "quantization", "quantization_config", "tie_word_embeddings", "vision_soft_tokens_per_image",
}  # fmt: skip


def _pattern(layers: int) -> list[str]:
    """Five sliding layers, then a full one; the last is full whatever the count."""
    kinds = [FULL if i % 6 == 5 else SLIDING for i in range(layers)]
    return [*kinds[:-1], FULL]


@dataclass(frozen=True)
class TextConfig:
    """The language model: `text_config`. Sizes in elements, `rms_norm_eps` dimensionless, window in tokens."""

    model_type: str = "diffusion_gemma_text"
    vocab_size: int = 262144
    hidden_size: int = 2816
    intermediate_size: int = 2112
    moe_intermediate_size: int = 704
    num_hidden_layers: int = 30
    num_attention_heads: int = 16
    num_key_value_heads: int = 8
    num_global_key_value_heads: int | None = 2
    head_dim: int = 256
    global_head_dim: int | None = 512
    hidden_activation: str = "gelu_pytorch_tanh"
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 262144
    pad_token_id: int = 0
    eos_token_id: int | list[int] | None = 1
    bos_token_id: int | None = 2
    tie_word_embeddings: bool = True
    rope_parameters: dict[str, dict[str, Any]] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    sliding_window: int = 1024
    layer_types: list[str] | None = None
    final_logit_softcapping: float = 30.0
    use_bidirectional_attention: str | None = "vision"
    num_experts: int = 128
    top_k_experts: int = 8

    def __post_init__(self) -> None:
        if self.layer_types is None:
            object.__setattr__(self, "layer_types", _pattern(self.num_hidden_layers))
        if self.rope_parameters is None:
            ropes = {
                SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
                FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
            }
            object.__setattr__(self, "rope_parameters", ropes)

    def is_sliding(self, layer: int) -> bool:
        """Whether a layer, counted from 0, sees only a window of what came before."""
        return self.layer_types is not None and self.layer_types[layer] == SLIDING

    def head_size(self, layer: int) -> int:
        """Width of a layer's attention heads: full layers have their own."""
        return self.head_dim if self.is_sliding(layer) else self.global_head_dim or self.head_dim

    def kv_heads(self, layer: int) -> int:
        """Key and value heads of a layer: full layers have their own count."""
        own = None if self.is_sliding(layer) else self.num_global_key_value_heads
        return self.num_key_value_heads if own is None else own

    def rope(self, layer: int) -> dict[str, Any]:
        """The rotary settings of a layer's kind; an absent entry is an empty one."""
        kind = SLIDING if self.is_sliding(layer) else FULL
        return (self.rope_parameters or {}).get(kind, {})


@dataclass(frozen=True)
class VisionConfig:
    """The vision tower: `vision_config`. Sizes in elements, `patch_size` in pixels."""

    model_type: str = "gemma4_vision"
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 16
    num_attention_heads: int = 12
    num_key_value_heads: int = 12
    head_dim: int = 64
    global_head_dim: int = 64
    hidden_activation: str = "gelu_pytorch_tanh"
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 131072
    attention_bias: bool = False
    attention_dropout: float = 0.0
    use_bidirectional_attention: str = "vision"
    layer_types: list[str] | None = None
    rope_parameters: dict[str, Any] | None = None
    default_output_length: int = 280
    patch_size: int = 16
    position_embedding_size: int = 10240
    pooling_kernel_size: int = 3
    use_clipped_linears: bool = False
    standardize: bool = False

    def __post_init__(self) -> None:
        if self.layer_types is None:
            object.__setattr__(self, "layer_types", [FULL] * self.num_hidden_layers)
        if self.rope_parameters is None:
            object.__setattr__(self, "rope_parameters", {"rope_theta": 100.0, "rope_type": "default"})


@dataclass(frozen=True)
class ModelConfig:
    """The whole of `config.json`; `quantization` is its map as written, or None."""

    text_config: TextConfig
    vision_config: VisionConfig | None = None
    model_type: str = "diffusion_gemma"
    boi_token_id: int | None = 255999
    eoi_token_id: int | None = 258882
    image_token_id: int | None = 258880
    video_token_id: int | None = None
    initializer_range: float = 0.02
    canvas_length: int = 256
    eos_token_id: int | list[int] | None = None
    generation_config: dict[str, Any] | None = None
    dtype: str | None = None
    quantization: dict[str, Any] | None = field(default=None, metadata={"raw": True})


def _parse(cls: type, raw: dict[str, Any], known: set[str], where: str, path: Path) -> dict[str, Any]:
    """Split a section into constructor arguments, refusing keys that nobody knows."""
    names = {f.name for f in fields(cls) if not f.metadata.get("raw")}
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    for keys, found, expected in (
        (set(raw) - names - known, "has the unknown key", "only keys that this port knows: an ignored one may matter"),
        (required - set(raw), "lacks the key", "every section that the model is built from"),
    ):
        if keys:
            raise ConfigError(
                str(path),
                found=f"{where} {found}{'s' if len(keys) > 1 else ''} {', '.join(sorted(keys))}",
                expected=expected,
                mend=fetch_again(path.parent, path.name),
            )
    return {name: value for name, value in raw.items() if name in names}


def from_dict(raw: dict[str, Any], path: Path) -> ModelConfig:
    """Build and check a configuration.

    Args:
        raw: the parsed `config.json`.
        path: where it lies, for messages.

    Raises:
        ConfigError: an unknown key, a wrong `model_type`, a missing section, or shapes that contradict each other.
    """
    top = _parse(ModelConfig, section(raw, "the file", path), _TOP_LEVEL, "the top level", path)
    if top.get("model_type") != "diffusion_gemma":
        raise ConfigError(
            str(path),
            found=f"model_type is {top.get('model_type')!r}",
            expected="'diffusion_gemma'",
            mend=fetch_again(path.parent),
        )
    text = section(top["text_config"], "text_config", path)
    top["text_config"] = TextConfig(**_parse(TextConfig, text, _BOOKKEEPING, "text_config", path))
    check_text(top["text_config"], path)
    check_rope(top["text_config"].rope_parameters, {SLIDING, FULL}, path)
    if top.get("vision_config") is not None:
        vision = section(top["vision_config"], "vision_config", path)
        top["vision_config"] = VisionConfig(**_parse(VisionConfig, vision, _BOOKKEEPING, "vision_config", path))
        check_vision(top["vision_config"], path)
    return ModelConfig(**top, quantization=read_map(raw, path))


def read(directory: Path) -> ModelConfig:
    """Read `config.json` of a checkpoint directory.

    Raises:
        ConfigError: the file is absent, is not JSON, or says something this model cannot be.
    """
    path = directory / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            str(path),
            found=f"it cannot be read ({error})",
            expected="a JSON file",
            mend=fetch_again(directory, path.name),
        ) from error
    return from_dict(raw, path)
