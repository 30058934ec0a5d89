"""Masks, losses against numbers worked out by hand, and training that goes on after a kill as if it had not been."""

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click.testing
import mlx.core as mx
import numpy as np
import pytest
from metadiffusion_files import drawn, llama, tokenizer
from mlx import nn, optimizers
from mlx.utils import tree_flatten, tree_map
from safetensors.numpy import load_file

from port.__main__ import main
from port.errors import PortError
from port.metadiffusion import diffusion
from port.metadiffusion.checkpoint import load
from port.metadiffusion.convert import convert
from port.metadiffusion.lessons import lesson
from port.metadiffusion.memory import keep
from port.metadiffusion.train import Recipe, train, updating

ROOT = Path(__file__).resolve().parent.parent
IDS = np.tile(np.arange(4, 30, dtype=np.int32), 40)
SMALL = Recipe(steps=6, batch=4, length=12, every=2, warmup=2)


@pytest.fixture
def begun(tmp_path):
    """A checkpoint to start from."""
    convert(llama(tmp_path / "llama"), tmp_path / "model")
    tokenizer(tmp_path / "model")
    return tmp_path / "model"


# Masking


def test_each_real_token_is_masked_below_its_share_and_at_least_one_is():
    ids = mx.array([[4, 5, 6, 0], [4, 5, 6, 7], [0, 0, 0, 0]])
    real = ids != 0
    uniform = mx.array([[0.2, 0.6, 0.4, 0.0], [0.9, 0.8, 0.7, 0.95], [0.1, 0.1, 0.1, 0.1]])
    masked, noisy = diffusion.corrupt(ids, real, mx.array([0.5, 0.1, 1.0]), uniform, 11)
    assert masked.tolist() == [[True, False, True, False], [False, False, True, False], [False] * 4]
    assert noisy.tolist() == [[11, 5, 11, 0], [4, 5, 11, 7], [0, 0, 0, 0]]


def test_shares_are_within_their_range_and_evenly_apart():
    t = diffusion.shares(diffusion.antithetic(0.9, 4), 0.2, 0.6)
    np.testing.assert_allclose(np.sort(t), 0.2 + 0.4 * np.array([0.15, 0.4, 0.65, 0.9]), rtol=1e-6)


def test_a_step_is_the_same_whenever_it_is_asked_for():
    asked = {"seed": 3, "batch": 2, "length": 5, "low": 0.0, "high": 1.0, "mask": 61}
    a, b, other = lesson(IDS, 7, **asked), lesson(IDS, 7, **asked), lesson(IDS, 8, **asked)
    assert mx.array_equal(a.noisy, b.noisy)
    assert not mx.array_equal(a.noisy, other.noisy)
    assert mx.array_equal(mx.where(a.masked, 61, a.labels), a.noisy)


# Losses

LOGITS = mx.log(mx.array([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.7, 0.2, 0.1]]]))
LABELS = mx.array([[1, 2, 2, 0]])


def test_losses_are_the_numbers_worked_out_by_hand():
    masked = mx.array([[True, True, False, True]])  # the last is padding
    flat = diffusion.flat_loss(LOGITS, LABELS, masked, 0)
    assert flat.item() == pytest.approx((math.log(4) + math.log(10)) / 2, rel=1e-6)
    elbo = diffusion.elbo_loss(LOGITS, LABELS, masked, mx.array([0.5]), 0)
    assert elbo.item() == pytest.approx((math.log(4) + math.log(10)) / 0.5 / 3, rel=1e-6)
    assert diffusion.flat_loss(LOGITS, LABELS, masked, None).item() == pytest.approx(
        (math.log(4) + math.log(10) - math.log(0.7)) / 3, rel=1e-6
    )


def test_where_nothing_is_scored_the_loss_is_a_zero_that_can_be_differentiated():
    none = mx.zeros((1, 4), dtype=mx.bool_)
    value, grad = mx.value_and_grad(lambda x: diffusion.flat_loss(x, LABELS, none, 0))(LOGITS)
    assert value.item() == 0
    assert not grad.any()


def gradients(model):
    def scored(ids):
        return diffusion.flat_loss(
            model(ids, mx.array([0.5])), mx.array([[4, 5, 6]]), mx.array([[True, True, False]]), 0
        )

    _, found = nn.value_and_grad(model, scored)(mx.array([[11, 11, 6]]))
    return dict(tree_flatten(found))


def test_a_zero_residual_keeps_the_timestep_network_still_at_first():
    fresh = drawn()
    for layer in fresh.layers:
        layer.timestep_residual.proj.weight = mx.zeros((16, 16))
    found = gradients(fresh)
    assert not any(x.any() for name, x in found.items() if name.startswith("timestep_emb"))
    assert all(x.any() for name, x in found.items() if "timestep_residual" in name)
    assert all(x.any() for name, x in gradients(drawn()).items() if name.startswith("timestep_emb"))


def test_at_its_beginning_a_converted_model_does_not_see_t(begun):
    model, ids = load(begun), mx.array([[61, 7, 8]])
    assert mx.array_equal(model(ids, mx.array([0.1])), model(ids, mx.array([0.9])))


# Runs


def losses(out):
    return [json.loads(line) for line in (out / "loss.jsonl").read_text().splitlines()]


def weights(folder):
    return {path.name: load_file(path) for path in folder.glob("*.safetensors")}


def same(a, b):
    return a.keys() == b.keys() and all(
        a[f].keys() == b[f].keys() and all(np.array_equal(x, b[f][n]) for n, x in a[f].items()) for f in a
    )


def test_the_loss_falls(begun, tmp_path):
    last = train(begun, IDS, Recipe(steps=60, batch=8, length=12, rate=3e-3, warmup=5), tmp_path / "run")
    found = [row["loss"] for row in losses(tmp_path / "run")]
    assert len(found) == 60
    assert np.mean(found[-10:]) < 0.5 * np.mean(found[:10])
    assert (last / "tokenizer.json").exists()
    assert any(x.any() for n, x in weights(last)["model.safetensors"].items() if "timestep_residual" in n)


@pytest.mark.parametrize("loss", ["flat", "elbo"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(loss, begun, tmp_path):
    recipe = Recipe(**{**vars(SMALL), "loss": loss})
    whole = train(begun, IDS, recipe, tmp_path / "whole")

    class StoppedError(Exception):
        pass

    def stop(step, _loss):
        if step == 5:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(begun, IDS, recipe, tmp_path / "parts", stop)
    assert [p.name for p in (tmp_path / "parts").glob("step-*")] == ["step-4"]
    resumed = train(begun, IDS, recipe, tmp_path / "parts")
    assert same(weights(whole), weights(resumed))
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    assert train(begun, IDS, recipe, tmp_path / "parts") == resumed  # done is done


def test_a_killed_run_loses_no_more_than_its_last_checkpoint(begun, tmp_path):
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    command = [sys.executable, "-m", "port", "train-metadiffusion", "--checkpoint", str(begun), "--text"]
    command += [str(tmp_path / "text.txt"), "--batch", "4", "--length", "12", "--every", "3", "--steps"]
    out = tmp_path / "run"
    run = subprocess.Popen([*command, "100000", "--out", str(out)], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        patience = time.monotonic() + 120
        while not list(out.glob("step-*")):
            assert run.poll() is None
            assert time.monotonic() < patience
            time.sleep(0.05)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    kept = max(int(p.name.removeprefix("step-")) for p in out.glob("step-*"))
    for name, target in (("resumed", out), ("whole", tmp_path / "whole")):
        done = subprocess.run(
            [*command, str(kept + 3), "--out", str(target)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (name, done.stderr)
    step = f"step-{kept + 3}"
    assert same(weights(out / step), weights(tmp_path / "whole" / step))


def test_a_run_is_not_gone_on_with_by_another_recipe(begun, tmp_path):
    train(begun, IDS, Recipe(**{**vars(SMALL), "steps": 2}), tmp_path / "run")
    with pytest.raises(PortError, match=r"the run there has seed 0\. Expected: 1, as asked for now"):
        train(begun, IDS, Recipe(**{**vars(SMALL), "seed": 1}), tmp_path / "run")


def test_lessons_begin_at_the_first_token():
    ids = np.arange(9)
    only = lesson(ids, 1, seed=0, batch=1, length=8, low=0.2, high=0.8, mask=60).labels
    assert only.tolist() == [ids[:8].tolist()]


def test_a_text_that_is_too_short_or_unknown_is_refused(begun, tmp_path):
    (tmp_path / "short.txt").write_text("abc")
    call = click.testing.CliRunner().invoke
    words = ["train-metadiffusion", "--checkpoint", str(begun), "--out", str(tmp_path / "run"), "--text"]
    said = call(main, [*words, str(tmp_path / "short.txt")])
    assert said.exit_code == 3
    assert "it has 3 tokens. Expected: more than --length 64" in said.stderr
    assert call(main, [*words, str(tmp_path / "absent.txt")]).exit_code == 2
    shutil.rmtree(begun)
    (tmp_path / "long.txt").write_text("abc" * 100)
    assert call(main, [*words, str(tmp_path / "long.txt")]).exit_code == 3


def test_compiled_update_is_clipping_and_adamw():
    moved = []
    for compiled in (True, False):
        model, optimizer = drawn(), optimizers.AdamW(learning_rate=1e-2)
        update = updating(model, optimizer)
        for step in range(3):
            mx.random.seed(step)
            grads = tree_map(lambda x: mx.random.normal(x.shape), model.parameters())
            if compiled:
                update(grads)
            else:
                optimizer.update(model, optimizers.clip_grad_norm(grads, 1.0)[0])
            mx.eval(model.parameters(), optimizer.state)
        moved.append(dict(tree_flatten(model.parameters())))
    for name, x in moved[0].items():
        assert np.abs(np.array(x - moved[1][name])).max() < 1e-6, name


def test_memory_may_be_kept_more_than_once_and_elsewhere(monkeypatch):
    keep()
    keep()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr("ctypes.CDLL")  # would be an error if it were asked
    keep()
