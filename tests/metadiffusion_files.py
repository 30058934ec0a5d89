"""Small models and Llama directories for the tests of MetaDiffusion."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from safetensors.numpy import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from goldens.llama import build
from port.metadiffusion.config import Config
from port.metadiffusion.model import MetaDiffusion


def config(**fields: Any) -> Config:
    """A small configuration."""
    usual = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "vocab_size": 11,
        "max_position_embeddings": 64,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "timestep_emb_hidden": 16,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    }
    return Config(**{**usual, **fields})


def drawn(seed: int = 0, **fields: Any) -> MetaDiffusion:
    """A model with every parameter drawn, the timestep residuals too."""
    model = MetaDiffusion(config(**fields))
    draws = np.random.default_rng(seed)
    flat = [
        (name, mx.array(draws.normal(0, 0.5, x.shape).astype(np.float32)))
        for name, x in tree_flatten(model.parameters())
    ]
    model.update(tree_unflatten(flat))
    return model


def llama(folder: Path, variant: str = "llama") -> Path:
    """A Llama directory that may be damaged."""
    build.write(variant, folder)
    return folder


def edit_config(folder: Path, **fields: Any) -> None:
    """Set fields of config.json; None removes one."""
    path = folder / "config.json"
    raw = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in raw.items() if value is not None}))


def edit_tensors(folder: Path, edit: Any) -> None:
    """Read all tensors, let `edit` change the dict, and write them as one file without an index."""
    tensors: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
        path.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def tokenizer(folder: Path) -> None:
    """A tokenizer of letters: `a` is 4, `b` is 5, and so on up to id 60; anything else is 0."""
    letters = "abcdefghijklmnopqrstuvwxyz .,\n"
    words = {"<unk>": 0, "<pad>": 1, "<s>": 2, "</s>": 3} | {letter: i for i, letter in enumerate(letters, 4)}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    made.save(str(folder / "tokenizer.json"))
