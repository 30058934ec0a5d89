"""A Hugging Face Llama as the start of a MetaDiffusion: the seed's way, and the corrected one."""

from typing import Any

import torch
from torch import Tensor

from .model import Config, MetaDiffusion

OTHER_NAMES = {"model.embed_tokens.weight": "embed_tokens.weight", "model.norm.weight": "norm.weight"}
NEW = ("timestep_emb.", "timestep_residual.")  # parts of the names of parameters that no Llama has


def configure(raw: dict[str, Any], way: str) -> Config:
    """The configuration that a Llama's config.json becomes, by the `way` "seed" or "corrected".

    Raises:
        ValueError: its positions are scaled in a way that neither knows.
    """
    ropes = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if way == "corrected" and (kind := ropes.get("rope_type", ropes.get("type", "default"))) != "default":
        raise ValueError(f"rope type {kind!r}")
    pad, vocabulary = raw.get("pad_token_id"), raw["vocab_size"]
    return Config(
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_hidden_layers=raw["num_hidden_layers"],
        num_attention_heads=raw["num_attention_heads"],
        num_key_value_heads=raw.get("num_key_value_heads") or raw["num_attention_heads"],
        head_dim=raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
        vocab_size=vocabulary,
        max_position_embeddings=raw["max_position_embeddings"],
        rms_norm_eps=raw["rms_norm_eps"],
        # Quirk: the seed looks for theta only where configurations used to keep it, and else takes 10000.
        rope_theta=float(raw.get("rope_theta") or (ropes.get("rope_theta") if way == "corrected" else 0) or 10000.0),
        # Quirk: the seed leaves 512, which is wrong for every other hidden size.
        timestep_emb_hidden=512 if way == "seed" else raw["hidden_size"],
        # Quirk: the seed takes -1, Llama's "none", as it is, and so makes [MASK] the padding row.
        pad_token_id=pad if way == "seed" or (pad is not None and 0 <= pad < vocabulary) else None,
        # Quirk: the seed ties the head whatever the Llama does, and loses a trained one.
        tie_word_embeddings=way == "seed" or raw.get("tie_word_embeddings", False),
    )


def transferred(source: dict[str, Tensor], config: Config) -> dict[str, Tensor]:
    """The Llama's tensors under the names they have here; the embedding one row longer, a head likewise.

    Raises:
        ValueError: a tensor of the source has no place here.
    """
    taken: dict[str, Tensor] = {}
    for name, tensor in source.items():
        if name == "lm_head.weight":
            continue
        taken[OTHER_NAMES.get(name, name.removeprefix("model."))] = tensor.to(config.wide)
    embeddings = taken["embed_tokens.weight"]
    taken["embed_tokens.weight"] = torch.cat((embeddings, embeddings.mean(dim=0, keepdim=True)))
    if not config.tie_word_embeddings:
        # The seed copies the embeddings here, as if the Llama had been tied; its [MASK] row of zeros is kept.
        head = source["lm_head.weight"].to(config.wide)
        taken["lm_head.weight"] = torch.cat((head, torch.zeros_like(head[:1])))
    known = {name for name in MetaDiffusion(config).state_dict() if not any(part in name for part in NEW)}
    if odd := taken.keys() ^ known:
        raise ValueError(f"not accounted for: {sorted(odd)}")
    return taken


def convert(source: dict[str, Tensor], config: Config) -> MetaDiffusion:
    """The model with everything transferred and the new parameters as they begin, drawn from a fixed seed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MetaDiffusion(config)
    missing, unexpected = model.load_state_dict(transferred(source, config), strict=False)
    if unexpected or not all(any(part in name for part in NEW) for name in missing):
        raise ValueError(f"missing {missing}, unexpected {unexpected}")
    return model
