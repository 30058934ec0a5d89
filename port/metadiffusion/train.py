"""Training: AdamW on masked text, with checkpoints that a killed run goes on from as if nothing had happened."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers
from mlx.utils import tree_flatten, tree_unflatten

from port.errors import CheckpointError, PortError

from .checkpoint import load, save
from .diffusion import elbo_loss, flat_loss
from .lessons import Lesson, lesson
from .memory import keep
from .model import MetaDiffusion

STEP = re.compile(r"step-(\d+)")
Progress = Callable[[int, float], None]


@dataclass(frozen=True)
class Recipe:
    """How a run trains; a run is only ever resumed by the recipe that it began with.

    Attributes:
        steps: In all.
        batch: Rows a step.
        length: Tokens a row.
        rate: AdamW's learning rate, after a linear rise over `warmup` steps.
        warmup: See `rate`.
        loss: "flat" or "elbo".
        low: Least share of masks.
        high: Largest share of masks.
        seed: Of rows, shares and masks.
        every: Steps between checkpoints.
    """

    steps: int = 1000
    batch: int = 16
    length: int = 64
    rate: float = 1e-3
    warmup: int = 20
    loss: str = "flat"
    low: float = 0.0
    high: float = 1.0
    seed: int = 0
    every: int = 100


def train(start: Path, ids: np.ndarray, recipe: Recipe, out: Path, told: Progress = lambda _step, _loss: None) -> Path:
    """Train the checkpoint `start` on `ids`, leaving checkpoints in `out`; goes on from the last one there.

    Returns:
        the last checkpoint, `out/step-N`; `out/loss.jsonl` holds the loss of every step.

    Raises:
        PortError: `out` holds a run by another recipe.
        CheckpointError: `start` or the checkpoint to go on from is broken.
    """
    keep()
    out.mkdir(parents=True, exist_ok=True)
    _same_recipe(recipe, out)
    done = max((int(m[1]) for path in out.iterdir() if (m := STEP.fullmatch(path.name))), default=0)
    here = out / f"step-{done}"
    model = load(here if done else start)
    optimizer = _optimizer(recipe)
    if done:
        optimizer.state = tree_unflatten(list(_read(here / "optimizer.safetensors").items()))
    curve = _curve(out / "loss.jsonl", done)
    for step, loss in _steps(model, optimizer, ids, recipe, done):
        curve.append(json.dumps({"step": step, "loss": loss}))
        told(step, loss)
        if step % recipe.every == 0 or step == recipe.steps:
            (out / "loss.jsonl").write_text("\n".join(curve) + "\n")
            here = _keep(model, optimizer, start, out / f"step-{step}")
    return here


def _optimizer(recipe: Recipe) -> optimizers.Optimizer:
    rise = optimizers.linear_schedule(recipe.rate / max(recipe.warmup, 1), recipe.rate, max(recipe.warmup, 1))
    return optimizers.AdamW(learning_rate=rise, betas=[0.9, 0.98], weight_decay=0.01, bias_correction=True)


def _steps(
    model: MetaDiffusion, optimizer: optimizers.Optimizer, ids: np.ndarray, recipe: Recipe, done: int
) -> Iterator[tuple[int, float]]:
    config = model.config

    def scored(batch: Lesson) -> mx.array:
        logits, pad = model.predict(batch.noisy, batch.t), config.pad_token_id
        if recipe.loss == "elbo":
            return elbo_loss(logits, batch.labels, batch.masked, batch.t, pad)
        return flat_loss(logits, batch.labels, batch.masked, pad)

    gradient, update = nn.value_and_grad(model, scored), updating(model, optimizer)
    asked = {"seed": recipe.seed, "batch": recipe.batch, "length": recipe.length}
    draw = partial(lesson, ids, **asked, low=recipe.low, high=recipe.high, mask=config.mask_token_id)
    for step in range(done + 1, recipe.steps + 1):
        loss, grads = gradient(draw(step))
        update(grads)
        mx.eval(model.parameters(), optimizer.state, loss)
        yield step, loss.item()


def updating(model: MetaDiffusion, optimizer: optimizers.Optimizer) -> Callable[[dict[str, Any]], None]:
    """What moves the model by gradients, which it cuts to a norm of 1 in all; compiled, to pass over memory once."""
    optimizer.init(model.trainable_parameters())
    held = [model.state, optimizer.state]

    @partial(mx.compile, inputs=held, outputs=held)
    def update(grads: dict[str, Any]) -> None:
        cut, _ = optimizers.clip_grad_norm(grads, 1.0)
        optimizer.update(model, cut)

    return update


def _same_recipe(recipe: Recipe, out: Path) -> None:
    """Note the recipe, or hold it against the one noted; how far and how often to save may change."""
    path, now = out / "recipe.json", asdict(recipe)
    if not path.exists():
        path.write_text(json.dumps(now, indent=1) + "\n")
        return
    try:
        noted = json.loads(path.read_text())
        differs = [name for name in now if name not in ("steps", "every") and noted[name] != now[name]]
    except (ValueError, KeyError, TypeError) as error:
        found = f"it cannot be read ({error})"
        raise PortError(str(path), found=found, expected="a recipe", mend=f"rm -r {out}") from error
    if differs:
        name = differs[0]
        found, expected = f"the run there has {name} {noted[name]}", f"{now[name]}, as asked for now"
        raise PortError(str(path), found=found, expected=expected, mend="give another --out, or the same options")


def _curve(path: Path, done: int) -> list[str]:
    """The losses up to the checkpoint that a run goes on from."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if json.loads(line)["step"] <= done]


def _keep(model: MetaDiffusion, optimizer: optimizers.Optimizer, start: Path, where: Path) -> Path:
    """A checkpoint with the optimizer's state: whole or not at all; the one before it goes once it is there."""
    beside = where.with_name(f".{where.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    save(model, beside, text_from=start)
    mx.save_safetensors(str(beside / "optimizer.safetensors"), dict(tree_flatten(optimizer.state)))
    beside.rename(where)
    for path in where.parent.iterdir():
        if STEP.fullmatch(path.name) and path != where:
            shutil.rmtree(path)
    return where


def _read(path: Path) -> dict[str, mx.array]:
    try:
        found = mx.load(str(path))
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            str(path),
            found=f"it cannot be read ({error})",
            expected="the optimizer's state",
            mend=f"rm -r {path.parent}",
        ) from error
    assert isinstance(found, dict)
    return found
