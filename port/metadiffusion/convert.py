"""A Hugging Face Llama as the start of a MetaDiffusion: every tensor of it used once, a layer in memory at a time.

Two ways: "corrected", and the seed's own, which loses a trained head and reads theta only where it used to stand. The
seed's is there to be held to its oracle; nothing but that uses it.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from port.errors import CheckpointError, ConfigError, fetch_again
from port.shards import Slot

from .checkpoint import save_groups, slots
from .config import Config, check, read_json
from .model import MetaDiffusion

HEAD, TABLE, MASKED = "lm_head.weight", "model.embed_tokens.weight", "embed_tokens.weight"
NEW = ("timestep_emb.", "timestep_residual.")
KNOWN_ROPES = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}


def configure(directory: Path, way: str = "corrected") -> Config:
    """What a Llama's `config.json` becomes.

    Raises:
        ConfigError: it is no Llama, or one with biases, another activation or scaled positions.
    """
    raw = read_json(directory)
    ropes = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if way == "corrected":
        _refuse_unknown(raw, ropes, directory)
    seed, pad, vocabulary = way == "seed", raw.get("pad_token_id"), raw["vocab_size"]
    theta = raw.get("rope_theta") or (None if seed else ropes.get("rope_theta"))
    config = Config(
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_hidden_layers=raw["num_hidden_layers"],
        num_attention_heads=raw["num_attention_heads"],
        num_key_value_heads=raw.get("num_key_value_heads") or raw["num_attention_heads"],
        head_dim=raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
        vocab_size=vocabulary,
        max_position_embeddings=raw.get("max_position_embeddings", 2048),
        rope_theta=float(theta or 10000.0),
        rms_norm_eps=raw["rms_norm_eps"],
        timestep_emb_hidden=512 if seed else raw["hidden_size"],
        # Llama's -1 is "none"; taken as an index it would make [MASK] the padding.
        pad_token_id=pad if seed or (pad is not None and 0 <= pad < vocabulary) else None,
        tie_word_embeddings=seed or raw.get("tie_word_embeddings", False),
    )
    if not seed:
        check(config, directory)
    return config


def _refuse_unknown(raw: dict[str, Any], ropes: dict[str, Any], directory: Path) -> None:
    kind = ropes.get("rope_type", ropes.get("type", "default"))
    needed = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    lacking = next((name for name in (*needed, "rms_norm_eps") if name not in raw), "")
    rules = (
        (raw.get("model_type") == "llama", f"model_type is {raw.get('model_type')!r}", "'llama'"),
        (not lacking, f"{lacking} is missing", "every size of the model"),
        (raw.get("hidden_act", "silu") == "silu", f"hidden_act is {raw.get('hidden_act')!r}", "'silu'"),
        (not raw.get("attention_bias"), "attention_bias is true", "false: this model has no bias there"),
        (not raw.get("mlp_bias"), "mlp_bias is true", "false: this model has no bias there"),
        (kind == "default", f"the rope type is {kind!r}", "'default', the one rotation this model has"),
        (ropes.keys() <= KNOWN_ROPES, f"rope settings are {sorted(ropes)}", f"only {sorted(KNOWN_ROPES)}"),
        (ropes.get("partial_rotary_factor", 1) == 1, "partial_rotary_factor is not 1", "1: whole heads are rotated"),
    )
    for holds, found, expected in rules:
        if not holds:
            path = directory / "config.json"
            raise ConfigError(str(path), found=found, expected=expected, mend="convert another Llama")


def groups(directory: Path, config: Config, seed: int = 0) -> Iterator[dict[str, mx.array]]:
    """The new model's tensors by name: first those outside the layers, then a layer at a time.

    Args:
        directory: the Llama's.
        config: of `configure`.
        seed: of the timestep network, the only thing drawn. Timestep residuals are zero.

    Raises:
        CheckpointError: a tensor of the source is missing, of another shape, or has no place here.
    """
    source = _Source(directory, config)
    made = _fresh(config, seed)
    table = source.take(TABLE, (config.vocab_size, config.hidden_size))
    dtype = table.dtype
    first = {MASKED: mx.concatenate([table, mask_row(table)]), "norm.weight": source.take("model.norm.weight")}
    if not config.tie_word_embeddings:
        head = source.take(HEAD, (config.vocab_size, config.hidden_size))
        first[HEAD] = mx.concatenate([head, mx.zeros_like(head[:1])])
    else:
        source.drop_head(table)
    yield first | {name: x.astype(dtype) for name, x in made.items() if name.startswith(NEW[0])}
    del first, table
    for i in range(config.num_hidden_layers):
        layer = {name: x for name, x in made.items() if name.startswith(f"layers.{i}.")}
        yield {
            name: x.astype(dtype) if NEW[1] in name else source.take(f"model.{name}", x.shape)
            for name, x in layer.items()
        }
    source.finish()


def mask_row(table: mx.array) -> mx.array:
    """The embedding of [MASK] [1, D]: the mean of all others, padding included."""
    return table.astype(mx.float32).mean(axis=0, keepdims=True).astype(table.dtype)


def _fresh(config: Config, seed: int) -> dict[str, mx.array]:
    """A model that was never trained, unevaluated: its names and shapes, and the values of what is new.

    The timestep network is drawn as torch draws a linear layer: uniform within 1 / sqrt(inputs).
    """
    made = dict(tree_flatten(MetaDiffusion(config).parameters()))
    drawn = sorted(name for name in made if name.startswith(NEW[0]))
    for name, key in zip(drawn, mx.random.split(mx.random.key(seed), len(drawn)), strict=True):
        bound = made[name.rpartition(".")[0] + ".weight"].shape[1] ** -0.5
        made[name] = mx.random.uniform(-bound, bound, made[name].shape, key=key)
    return made


class _Source:
    """The Llama's tensors, each given out once."""

    def __init__(self, directory: Path, config: Config) -> None:
        self.directory, self.config = directory, config
        self.left: dict[str, Slot] = slots(directory)
        # Buffers that old checkpoints store; they follow from theta.
        self.left = {name: slot for name, slot in self.left.items() if not name.endswith("rotary_emb.inv_freq")}
        self._refuse_unexpected()

    def _refuse_unexpected(self) -> None:
        layers = self.config.num_hidden_layers
        parts = [f"self_attn.{n}_proj" for n in "qkvo"] + [f"mlp.{n}_proj" for n in ("gate", "up", "down")]
        names = [f"model.layers.{i}.{p}.weight" for i in range(layers) for p in parts]
        norms = ("input_layernorm", "post_attention_layernorm")
        names += [f"model.layers.{i}.{n}.weight" for i in range(layers) for n in norms]
        known = {*names, TABLE, "model.norm.weight", HEAD}
        if odd := sorted(self.left.keys() - known):
            raise self._error(odd[0], "this model has no place for it", f"the tensors of a Llama of {layers} layers")

    def _error(self, name: str, found: str, expected: str) -> CheckpointError:
        mend = fetch_again(self.directory)
        return CheckpointError(f"{self.directory}, tensor {name}", found=found, expected=expected, mend=mend)

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> mx.array:
        shape = shape or (self.config.hidden_size,)
        slot = self.left.pop(name, None)
        if slot is None:
            raise self._error(name, "it is missing", f"{list(shape)}, as config.json demands")
        if slot.shape != shape or slot.dtype not in ("F32", "BF16", "F16"):
            raise self._error(name, f"it is {slot}", f"floating {list(shape)}, as config.json demands")
        return slot.shard.read(slot)

    def drop_head(self, table: mx.array) -> None:
        """A tied Llama may store its head again; only the seed's way loses one that differs."""
        if HEAD in self.left:
            head = self.take(HEAD, tuple(table.shape))
            if not self._seed() and not mx.array_equal(head, table):
                raise self._error(HEAD, "it is not the embedding", "the embedding, as tie_word_embeddings is true")

    def _seed(self) -> bool:
        return self.config.timestep_emb_hidden != self.config.hidden_size

    def finish(self) -> None:
        if self.left:
            raise self._error(min(self.left), "nothing uses it", "tensors that are each used once")


def convert(source: Path, out: Path, seed: int = 0, *, ar_shift: bool = False) -> Config:
    """Convert the Llama in `source` into a new checkpoint `out`; nothing is left there when it fails.

    With `ar_shift` the head goes on to be read one position before what it predicts, as the Llama's was trained.

    Raises:
        ConfigError: the Llama is of a kind that this model cannot be.
        CheckpointError: its files are not whole, or `out` exists.
    """
    config = dataclasses.replace(configure(source), ar_shift=ar_shift)
    save_groups(groups(source, config, seed), config.num_hidden_layers + 1, config, out, source)
    return config


def converted(source: Path, compute: mx.Dtype) -> MetaDiffusion:
    """The converted model in memory, its floats as `compute`."""
    config = configure(source)
    model = MetaDiffusion(config)
    model.load_weights([(name, x.astype(compute)) for group in groups(source, config) for name, x in group.items()])
    mx.eval(model.parameters())
    return model
