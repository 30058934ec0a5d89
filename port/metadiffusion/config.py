"""What a MetaDiffusion is: its `config.json`, read strictly."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from port.errors import ConfigError

MODEL_TYPE = "metadiffusion"


@dataclass(frozen=True)
class Config:
    """The architecture; names as in `config.json`.

    Attributes:
        vocab_size: Tokens of the Llama it came from; [MASK] is one more, after them.
        timestep_emb_hidden: Width of the timestep embedding, which is added to hidden states.
        pad_token_id: Of the token that is no text, or None.
        ar_shift: Whether the prediction for a position is read one position before it, as a Llama's head was trained.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float
    timestep_emb_hidden: int
    pad_token_id: int | None
    tie_word_embeddings: bool
    ar_shift: bool = False

    @property
    def mask_token_id(self) -> int:
        """The id of [MASK]."""
        return self.vocab_size


def read_json(directory: Path) -> dict[str, Any]:
    """`config.json` as it stands.

    Raises:
        ConfigError: there is none, or it is not a JSON object.
    """
    path = directory / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            str(path), found=f"it cannot be read ({error})", expected="a JSON object", mend=_convert(directory)
        ) from error
    if not isinstance(raw, dict):
        raise refuse(directory, f"it is {json.dumps(raw)[:60]}", "a JSON object")
    return raw


def refuse(directory: Path, found: str, expected: str) -> ConfigError:
    """The error for a `config.json`."""
    return ConfigError(str(directory / "config.json"), found=found, expected=expected, mend=_convert(directory))


def _convert(directory: Path) -> str:
    return f"python -m port convert LLAMA_DIR {directory}"


def read(directory: Path) -> Config:
    """The configuration of a checkpoint directory.

    Raises:
        ConfigError: naming the first field that is missing, unknown, or that no such model can have.
    """
    raw = read_json(directory)
    kind = raw.pop("model_type", None)
    if kind != MODEL_TYPE:
        raise refuse(directory, f"model_type is {kind!r}", f"{MODEL_TYPE!r}")
    known = {field.name: field for field in dataclasses.fields(Config)}
    if odd := sorted(raw.keys() - known.keys()):
        raise refuse(directory, f"it has the field {odd[0]!r}", f"only {', '.join(known)}")
    if lacking := [name for name in known if name not in raw and name != "ar_shift"]:
        raise refuse(directory, f"{lacking[0]} is missing", "every field of the model")
    config = Config(**raw)
    check(config, directory)
    return config


def check(config: Config, directory: Path) -> None:
    """Refuse what cannot be built.

    Raises:
        ConfigError: naming the field.
    """
    kinds: dict[str, Any] = {"int": int, "float": (int, float), "bool": bool, "int | None": (int, type(None))}
    for field in dataclasses.fields(config):
        value, kind = getattr(config, field.name), str(getattr(field.type, "__name__", field.type))
        if not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "bool"):
            raise refuse(directory, f"{field.name} is {json.dumps(value)}", f"a value of type {kind}")
        if kind in ("int", "float") and value <= 0:
            raise refuse(directory, f"{field.name} is {value}", "above 0")
    heads, shared, width = config.num_attention_heads, config.num_key_value_heads, config.timestep_emb_hidden
    pad, vocabulary = config.pad_token_id, config.vocab_size
    rules = (
        (heads % shared == 0, f"num_key_value_heads is {shared}", f"a divisor of {heads}"),
        (config.head_dim % 2 == 0, f"head_dim is {config.head_dim}", "an even number, as rotations need pairs"),
        (
            width == config.hidden_size,
            f"timestep_emb_hidden is {width}",
            f"{config.hidden_size}, the hidden size that it is added to",
        ),
        (width % 2 == 0 and width >= 4, f"timestep_emb_hidden is {width}", "an even number of at least 4"),
        (pad is None or 0 <= pad < vocabulary, f"pad_token_id is {pad}", f"null, or 0 to {vocabulary - 1}"),
    )
    for holds, found, expected in rules:
        if not holds:
            raise refuse(directory, found, expected)


def to_json(config: Config) -> str:
    """The text of `config.json`."""
    return json.dumps({"model_type": MODEL_TYPE, **dataclasses.asdict(config)}, indent=1, sort_keys=True) + "\n"
