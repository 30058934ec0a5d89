"""A Llama becomes a MetaDiffusion with every tensor accounted for, or is refused by name."""

import json
import re
import shutil

import click.testing
import mlx.core as mx
import numpy as np
import pytest
from metadiffusion_files import edit_config, edit_tensors, llama, tokenizer
from mlx.utils import tree_flatten
from safetensors.numpy import load_file

from port.__main__ import main
from port.errors import CheckpointError, ConfigError, PortError
from port.metadiffusion import checkpoint
from port.metadiffusion.config import read
from port.metadiffusion.convert import convert, converted


def tensors(folder):
    return {name: x for path in folder.glob("*.safetensors") for name, x in load_file(path).items()}


@pytest.mark.parametrize("variant", ["llama", "llama-untied"])
def test_every_tensor_arrives_and_only_the_timestep_is_new(variant, tmp_path):
    source = tensors(llama(tmp_path / "llama", variant))
    convert(tmp_path / "llama", tmp_path / "out")
    made = tensors(tmp_path / "out")
    for name, x in source.items():
        new = made.pop(name.removeprefix("model."))
        longer = name in ("model.embed_tokens.weight", "lm_head.weight")
        np.testing.assert_array_equal(new[:-1] if longer else new, x)
        if longer:
            last = x.mean(axis=0) if name != "lm_head.weight" else np.zeros_like(x[0])
            np.testing.assert_allclose(new[-1], last, atol=1e-7)
    assert all("timestep" in name for name in made)
    assert all(not x.any() for name, x in made.items() if "timestep_residual" in name)
    assert any(x.any() for name, x in made.items() if "timestep_emb" in name)


def test_what_was_written_is_what_is_converted_in_memory(tmp_path):
    llama(tmp_path / "llama")
    convert(tmp_path / "llama", tmp_path / "out")
    loaded = dict(tree_flatten(checkpoint.load(tmp_path / "out").parameters()))
    memory = dict(tree_flatten(converted(tmp_path / "llama", mx.float32).parameters()))
    assert loaded.keys() == memory.keys()
    assert all(mx.array_equal(x, memory[name]) for name, x in loaded.items())
    # A file for what stands outside the layers, and one a layer: no more than that was in memory.
    written = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    assert written == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]


def test_sharded_or_not_is_the_same_model(tmp_path):
    llama(tmp_path / "a")
    edit_tensors(shutil.copytree(tmp_path / "a", tmp_path / "b"), lambda _: None)
    for name in "ab":
        convert(tmp_path / name, tmp_path / f"out-{name}")
    a, b = tensors(tmp_path / "out-a"), tensors(tmp_path / "out-b")
    assert a.keys() == b.keys()
    assert all(np.array_equal(x, b[name]) for name, x in a.items())


def test_the_configuration_is_the_llamas(tmp_path):
    convert(llama(tmp_path / "llama"), tmp_path / "out")
    made = read(tmp_path / "out")
    assert (made.rope_theta, made.pad_token_id, made.tie_word_embeddings) == (500000.0, 1, True)
    assert (made.timestep_emb_hidden, made.mask_token_id) == (48, 61)
    convert(llama(tmp_path / "untied", "llama-untied"), tmp_path / "out-untied")
    made = read(tmp_path / "out-untied")
    assert (made.rope_theta, made.pad_token_id, made.tie_word_embeddings) == (10000.0, None, False)
    assert made.head_dim == 12


def test_a_tied_llama_may_store_its_head_again(tmp_path):
    def again(found):
        found["lm_head.weight"] = found["model.embed_tokens.weight"]

    edit_tensors(llama(tmp_path / "llama"), again)
    convert(tmp_path / "llama", tmp_path / "out")
    assert "lm_head.weight" not in tensors(tmp_path / "out")


def drop(name):
    return lambda folder: edit_tensors(folder, lambda found: found.pop(name))


def add(name, shape=(4,)):
    return lambda folder: edit_tensors(folder, lambda found: found.update({name: np.ones(shape, np.float32)}))


def set_(**fields):
    return lambda folder: edit_config(folder, **fields)


NORM = "model.layers.1.input_layernorm.weight"


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / "model-00002-of-00002.safetensors").unlink(), "model-00002-of-00002.safetensors"),
        (drop(NORM), f"{NORM}: it is missing"),
        (add("model.layers.0.self_attn.q_norm.weight"), "model.layers.0.self_attn.q_norm.weight: this model has no"),
        (add("model.layers.0.self_attn.q_proj.bias", (32,)), "model.layers.0.self_attn.q_proj.bias: this model has no"),
        (add("model.layers.2.mlp.up_proj.weight"), "model.layers.2.mlp.up_proj.weight: this model has no place"),
        (add(NORM, (47,)), re.escape(f"{NORM}: it is F32 [47]. Expected: floating [48]")),
        (add("lm_head.weight", (61, 48)), "lm_head.weight: it is not the embedding"),
        (set_(attention_bias=True), "attention_bias is true"),
        (set_(mlp_bias=True), "mlp_bias is true"),
        (set_(hidden_act="gelu"), "hidden_act is 'gelu'"),
        (set_(model_type="mistral"), "model_type is 'mistral'"),
        (set_(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}), "rope type is 'llama3'"),
        (set_(rope_parameters=None, rope_scaling={"type": "linear", "factor": 2.0}), "rope type is 'linear'"),
        (set_(rope_parameters={"rope_theta": 5e5, "twist": 1}), "twist"),
        (set_(rope_parameters={"rope_theta": 5e5, "partial_rotary_factor": 0.5}), "partial_rotary_factor is not 1"),
        (set_(num_attention_heads=3), "num_key_value_heads is 2. Expected: a divisor of 3"),
        (set_(head_dim=7), "head_dim is 7"),
        (set_(hidden_size=None), "hidden_size is missing"),
        (set_(num_hidden_layers=1), "model.layers.1"),
    ],
)
def test_what_cannot_be_converted_is_refused_by_name(damage, named, tmp_path):
    damage(llama(tmp_path / "llama"))
    with pytest.raises(PortError, match=named):
        convert(tmp_path / "llama", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


def test_an_existing_directory_is_not_written_over(tmp_path):
    llama(tmp_path / "llama")
    (tmp_path / "out").mkdir()
    with pytest.raises(CheckpointError, match="it exists"):
        convert(tmp_path / "llama", tmp_path / "out")


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ({"timestep_emb_hidden": 512}, "timestep_emb_hidden is 512. Expected: 48"),
        ({"pad_token_id": 61}, "pad_token_id is 61"),
        ({"colour": "red"}, "it has the field 'colour'"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"vocab_size": "61"}, 'vocab_size is "61". Expected: a value of type int'),
        ({"hidden_size": True}, "hidden_size is true"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"model_type": "llama"}, "model_type is 'llama'. Expected: 'metadiffusion'"),
    ],
)
def test_a_checkpoint_whose_configuration_cannot_be_is_refused(edit, named, tmp_path):
    edit_config(llama(tmp_path / "model", "metadiffusion"), **edit)
    with pytest.raises(ConfigError, match=re.escape(named)):
        checkpoint.load(tmp_path / "model")


def test_a_checkpoint_is_loaded_whole_or_refused(tmp_path):
    for i, (damage, named) in enumerate(
        (
            (drop("norm.weight"), "norm.weight: it is missing"),
            (add("lm_head.weight"), "lm_head.weight: it is not of this model"),
            (add("norm.weight", (47,)), "its shape is"),
        )
    ):
        damage(llama(tmp_path / str(i), "metadiffusion"))
        with pytest.raises(CheckpointError, match=named):
            checkpoint.load(tmp_path / str(i))


def test_the_command_says_what_it_did_and_what_is_wrong(tmp_path):
    llama(tmp_path / "llama")
    tokenizer(tmp_path / "llama")
    call = click.testing.CliRunner().invoke
    said = call(main, ["convert", str(tmp_path / "llama"), str(tmp_path / "out")])
    assert said.exit_code == 0, said.output
    assert "2 layers, 61 tokens and [MASK]" in said.stdout
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "metadiffusion"
    edit_config(tmp_path / "llama", rope_parameters={"rope_type": "yarn"})
    said = call(main, ["convert", str(tmp_path / "llama"), str(tmp_path / "other")])
    assert said.exit_code == 3
    assert said.stderr.startswith("error: ")
    assert "the rope type is 'yarn'" in said.stderr
