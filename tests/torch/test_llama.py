"""The outside check: a converted model, made causal again, gives transformers' Llama's logits."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from oracle.metadiffusion import model as oracle_model
from oracle.metadiffusion.reference import load as load_oracle
from port.metadiffusion import model as port_model
from port.metadiffusion.checkpoint import load
from port.metadiffusion.convert import convert

# name: fields of a LlamaConfig, and whether it is saved in shards
SHAPES = {
    "grouped, tied, 1e4": ({"num_key_value_heads": 2, "tie_word_embeddings": True}, False),
    "grouped, tied, 5e5, sharded": ({"num_key_value_heads": 2, "tie_word_embeddings": True, "theta": 5e5}, True),
    "grouped, untied, wide heads": ({"num_key_value_heads": 1, "tie_word_embeddings": False, "head_dim": 32}, False),
    "full, tied, narrow heads, 5e5": (
        {"num_key_value_heads": 4, "tie_word_embeddings": True, "head_dim": 8, "theta": 5e5},
        False,
    ),
    "full, untied, 1e4, sharded": ({"num_key_value_heads": 4, "tie_word_embeddings": False}, True),
    "full, untied, 5e5, eps": (
        {"num_key_value_heads": 4, "tie_word_embeddings": False, "theta": 5e5, "rms_norm_eps": 1e-4},
        False,
    ),
    "grouped, untied, padding": ({"num_key_value_heads": 2, "tie_word_embeddings": False, "pad_token_id": 3}, False),
}


def llama(name: str, folder: Path) -> LlamaForCausalLM:
    fields, sharded = SHAPES[name]
    fields = dict(fields)
    theta = fields.pop("theta", 1e4)
    torch.manual_seed(len(name))
    usual = {"hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = LlamaConfig(
        **usual,
        vocab_size=101,
        max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        initializer_range=0.12,
        **fields,
    )
    made = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for module_name, x in made.named_parameters():
            if "norm" in module_name:
                x.uniform_(0.5, 1.5)
    made.save_pretrained(folder, **({"max_shard_size": "60KB"} if sharded else {}))
    assert sharded == (folder / "model.safetensors.index.json").exists()
    return made


@pytest.mark.parametrize("name", SHAPES)
def test_a_converted_llama_made_causal_is_that_llama(name, monkeypatch, tmp_path):
    made = llama(name, tmp_path / "llama")
    ids = np.random.default_rng(1).integers(4, 101, (2, 40)).astype(np.int32)
    with torch.no_grad():
        expected = made(torch.from_numpy(ids).long()).logits.numpy()

    causal = np.where(np.tri(40, dtype=bool), 0.0, -1e9).astype(np.float32)[None, None]
    monkeypatch.setattr(port_model, "additive", lambda padding, dtype: mx.array(causal))
    monkeypatch.setattr(oracle_model, "additive", lambda padding, dtype, wide: torch.from_numpy(causal))

    convert(tmp_path / "llama", tmp_path / "out")
    t = np.array([0.3, 0.9], np.float32)  # makes no difference: the residuals are zero
    port = np.array(load(tmp_path / "out")(mx.array(ids), mx.array(t)))
    with torch.no_grad():
        oracle = (
            load_oracle(tmp_path / "llama", "float32").model(torch.from_numpy(ids).long(), torch.from_numpy(t)).numpy()
        )
    for side, found in (("port", port), ("oracle", oracle)):
        logits = found[..., :101]  # without [MASK], which no Llama has
        error = np.abs(logits - expected).max() / np.abs(expected).max()
        assert error < 1e-5, (side, error)
        assert (logits.argmax(-1) == expected.argmax(-1)).all(), side
        print(f"\n{name}: {side} {error:.2g}", end="")


def test_without_the_causal_mask_it_is_not(tmp_path):
    made = llama("full, untied, 1e4, sharded", tmp_path / "llama")
    ids = np.random.default_rng(1).integers(4, 101, (1, 12)).astype(np.int32)
    with torch.no_grad():
        expected = made(torch.from_numpy(ids).long()).logits.numpy()
    convert(tmp_path / "llama", tmp_path / "out")
    port = np.array(load(tmp_path / "out")(mx.array(ids), mx.array([0.5])))[..., :101]
    assert np.abs(port - expected)[:, :-1].max() > 0.1
