"""Teach a checkpoint's vision tower to tell pictures apart.

`python -m port.diffusion_gemma.train_tower CHECKPOINT PICTURES OUT`. The language model has no part in it: a linear
layer that is thrown away afterwards names each picture from the average of its soft tokens. That takes minutes, where
learning to see through the language model's answers alone takes hours.

Legend: B pictures, N soft tokens, D the language model's hidden size, K answers.
"""

import time
from collections.abc import Callable
from pathlib import Path

import click
import mlx.core as mx
import numpy as np
from mlx import nn, optimizers

from .floats import Arrays, FloatWeights, is_vision, small_room, unpacked
from .model import DiffusionGemma, load
from .pack import write
from .sight_lessons import Gallery
from .tokens import Tokens

EVERY = 50  # steps from one writing of the checkpoint to the next
WARMUP = 30
NAMER = "namer"  # the layer that is thrown away

Report = Callable[[int, float, float, Arrays], None]


def train_tower(checkpoint: Path, pictures: Path, steps: int, peak: float, seed: int, report: Report) -> None:
    """Train.

    Args:
        checkpoint: gives architecture, tokenizer and the parameters to begin with.
        pictures: see `Gallery`.
        steps: updates; the learning rate goes up, then down along a cosine.
        peak: the highest learning rate.
        seed: of batches.
        report: told of every step's number, its loss, the share of its pictures that were named rightly, and all
            parameters after it in float32.
    """
    rng = np.random.default_rng(seed)
    origin = load(checkpoint, "float32")
    held = unpacked(origin, vision=True)
    weights = small_room(FloatWeights(held, origin.config))
    model = DiffusionGemma(weights)
    gallery = Gallery(pictures, Tokens(checkpoint), origin.config)
    arrays: Arrays = {name: array for name, array in held.items() if is_vision(name)}
    arrays[NAMER] = mx.zeros((len(gallery.answers), origin.config.text_config.hidden_size))
    warm = optimizers.linear_schedule(0.0, peak, WARMUP)
    cool = optimizers.cosine_decay(peak, max(steps - WARMUP, 1), peak / 50)
    optimizer = optimizers.AdamW(
        optimizers.join_schedules([warm, cool], [WARMUP]), betas=[0.9, 0.98], weight_decay=0.01
    )

    def loss(arrays: Arrays, pixels: mx.array, answers_B: mx.array) -> tuple[mx.array, mx.array]:
        weights.use({name: array for name, array in arrays.items() if name != NAMER})
        soft_BND = model.look([pixels]).reshape(pixels.shape[0], -1, arrays[NAMER].shape[1])
        logits_BK = soft_BND.mean(axis=1) @ arrays[NAMER].T
        right = (mx.argmax(logits_BK, axis=-1) == answers_B).mean()
        return nn.losses.cross_entropy(logits_BK, answers_B).mean(), right

    for step in range(1, steps + 1):
        pixels, answers_B = gallery.named(rng)
        (value, right), grads = mx.value_and_grad(loss)(arrays, pixels, answers_B)
        grads, _ = optimizers.clip_grad_norm(grads, 1.0)
        arrays = optimizer.apply_gradients(grads, arrays)
        mx.eval(arrays, optimizer.state, value, right)
        report(step, float(value), float(right), held | {n: array for n, array in arrays.items() if n != NAMER})


@click.command()
@click.argument("checkpoint", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("pictures", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--steps", default=700, show_default=True, help="Updates.")
@click.option("--peak", default=3e-3, show_default=True, help="Highest learning rate.")
@click.option("--seed", default=5, show_default=True, help="Of batches.")
def main(checkpoint: Path, pictures: Path, out: Path, steps: int, peak: float, seed: int) -> None:
    """Train the vision tower of CHECKPOINT on PICTURES, and write all to OUT in the same layout."""
    recent: list[tuple[float, float]] = []
    began = time.perf_counter()

    def report(step: int, loss: float, right: float, arrays: Arrays) -> None:
        recent.append((loss, right))
        if step % EVERY and step < steps:
            return
        size = write(checkpoint, arrays, out)
        mean, seconds = np.mean(recent, axis=0), time.perf_counter() - began
        click.echo(f"step {step}: loss {mean[0]:.3f}, right {mean[1]:.1%}, {seconds:.0f} s; {out}: {size:,} bytes")
        recent.clear()

    train_tower(checkpoint, pictures, steps, peak, seed, report)


if __name__ == "__main__":
    main()
