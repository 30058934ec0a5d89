"""Port against oracle at the shapes that a fixture of one shape cannot have; and what the oracle keeps of the seed."""

import dataclasses

import mlx.core as mx
import numpy as np
import pytest
import torch
from metadiffusion_files import drawn
from mlx import nn
from mlx.utils import tree_flatten

from oracle.metadiffusion import diffusion as oracle_diffusion
from oracle.metadiffusion.model import Config, MetaDiffusion
from oracle.metadiffusion.reference import OracleError, load
from port.metadiffusion import diffusion, unmask
from stages.places import checkpoint_path

SHAPES = {
    "hidden below the seed's 512": {"hidden_size": 24, "timestep_emb_hidden": 24},
    "hidden above it": {"hidden_size": 576, "timestep_emb_hidden": 576, "num_hidden_layers": 1},
    "the seed's": {"hidden_size": 512, "timestep_emb_hidden": 512, "num_hidden_layers": 1, "head_dim": 64},
    "four query heads to one": {"num_attention_heads": 4, "num_key_value_heads": 1},
    "untied": {"tie_word_embeddings": False},
    "no padding token": {"pad_token_id": None},
    "far positions": {"rope_theta": 5e5},
}
PADDED = [(1, 1, 0), (3, 9, 4), (2, 50, 49)]


def twin(port) -> MetaDiffusion:
    names = {field.name for field in dataclasses.fields(Config)}
    made = MetaDiffusion(Config(**{k: v for k, v in dataclasses.asdict(port.config).items() if k in names}))
    made.load_state_dict({name: torch.from_numpy(np.array(x)) for name, x in tree_flatten(port.parameters())})
    return made


def batch(rows: int, tokens: int, padding: int, vocabulary: int = 11):
    draws = np.random.default_rng(rows * tokens)
    ids = draws.integers(1, vocabulary + 1, (rows, tokens)).astype(np.int32)
    real = np.arange(tokens) < tokens - padding * (np.arange(rows) % 2)[:, None]
    return np.where(real, ids, 0).astype(np.int32), real, draws.random(rows).astype(np.float32)


def close(port, oracle, bound=2e-5):
    assert np.abs(port - oracle).max() <= bound * np.abs(oracle).max()


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("rows", "tokens", "padding"), PADDED)
def test_logits_and_every_gradient_are_the_oracles(fields, rows, tokens, padding):
    port = drawn(**fields)
    oracle = twin(port)
    ids, real, t = batch(rows, tokens, padding)
    labels = np.where(ids == 11, 5, ids)
    given = torch.from_numpy(ids).long(), torch.from_numpy(t), torch.from_numpy(real)
    logits = oracle(*given)
    close(np.array(port(mx.array(ids), mx.array(t), mx.array(real))), logits.detach().numpy())

    everywhere, pad = np.ones_like(real), port.config.pad_token_id
    value, count = oracle_diffusion.flat_loss(
        logits, torch.from_numpy(labels).long(), torch.from_numpy(everywhere), pad
    )
    assert count > 0
    value.backward()

    def scored(x):
        return diffusion.flat_loss(port(x, mx.array(t), mx.array(real)), mx.array(labels), mx.array(everywhere), pad)

    _, found = nn.value_and_grad(port, scored)(mx.array(ids))
    found = dict(tree_flatten(found))
    expected = {name: x.grad.numpy() for name, x in oracle.named_parameters()}
    assert found.keys() == expected.keys()
    largest = max(np.abs(x).max() for x in expected.values())
    for name, x in found.items():
        assert np.abs(np.array(x) - expected[name]).max() <= 3e-5 * max(np.abs(expected[name]).max(), 1e-3 * largest), (
            name
        )


@pytest.mark.parametrize("schedule", ["corrected", "seed"])
@pytest.mark.parametrize(("tokens", "prompt", "steps"), [(9, 3, 4), (9, 3, 6), (9, 3, 20), (2, 1, 5), (1, 0, 1)])
def test_texts_are_the_oracles(schedule, tokens, prompt, steps):
    port = drawn(1)
    start = np.random.default_rng(tokens).integers(1, 11, (2, tokens)).astype(np.int32)
    start[:, prompt:] = 11
    ours = np.array(unmask.generate(port, mx.array(start), steps, schedule))
    theirs = oracle_diffusion.generate(twin(port), torch.from_numpy(start).long(), steps, schedule).numpy()
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("tokens", [1, 6, 7, 64, 100, 256, 1000])
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 10, 13, 64, 100, 256])
def test_the_seeds_schedule_is_pytorchs_up_to_its_last_place(tokens, steps):
    # torch.linspace rounds by the processor's vector width: the same times up to their last place, and so now and then
    # one token more or less.
    for (t, count), (time, number) in zip(
        unmask.seed_schedule(tokens, steps), oracle_diffusion.seed_schedule(tokens, steps), strict=True
    ):
        assert t == pytest.approx(time, abs=1.2e-7)
        assert abs(count - number) <= 1


@pytest.mark.parametrize(("tokens", "steps", "left"), [(100, 10, 4), (256, 100, 56), (6, 3, 1), (64, 8, 0)])
def test_the_seeds_schedule_leaves_masks(tokens, steps, left):
    assert tokens - sum(count for _, count in oracle_diffusion.seed_schedule(tokens, steps)) == left


# What the oracle keeps of the seed


def test_the_default_width_fits_one_hidden_size_only():
    config = Config(16, 24, 1, 2, 1, 8, 11)
    assert config.timestep_emb_hidden == 512
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        MetaDiffusion(config)(torch.zeros((1, 2), dtype=torch.long), torch.tensor([0.5]))


def test_minus_one_makes_mask_the_padding_row():
    config = Config(16, 24, 1, 2, 1, 8, 11, timestep_emb_hidden=16, pad_token_id=-1)
    assert MetaDiffusion(config).embed_tokens.padding_idx == 11


def test_an_integer_timestep_is_lost():
    model = MetaDiffusion(Config(16, 24, 1, 2, 1, 8, 11, timestep_emb_hidden=16))
    assert not model.timestep_emb(torch.tensor([1])).any()


def test_it_runs_in_float32_only():
    with pytest.raises(OracleError, match="float32 only"):
        load(checkpoint_path("metadiffusion"), "bfloat16")


def test_a_text_of_masks_alone_is_decided_by_rounding():
    # Equal tokens attend to equal values wherever they stand: every position says the same, and the surest is none.
    logits = twin(drawn())(torch.full((1, 12), 11), torch.tensor([1.0]))[0]
    assert (logits - logits[0]).abs().max() < 1e-5 * logits.abs().max()
