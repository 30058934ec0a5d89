"""Teach a checkpoint to denoise: `python -m port.diffusion_gemma.train CHECKPOINT LESSONS OUT`.

The model's own code runs on float parameters. A canvas is a lesson's answer of which a random share is replaced by
random tokens; half of the time a first pass, without gradient, gives the signal for the second. The loss is the
cross-entropy of every position. The last steps see the parameters as packing will leave them.

Legend: B batch, T prompt tokens, C canvas tokens, V vocabulary.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import mlx.core as mx
import numpy as np
from mlx import nn, optimizers

from .batches import Batch, Lessons
from .conditioning import confident_probabilities, soft_from_table
from .floats import Arrays, FloatWeights, as_packed, packing_of, small_room, unpacked
from .model import DiffusionGemma, load
from .pack import write
from .sight_lessons import Gallery, Shown
from .tokens import Tokens

EVERY = 50  # steps from one writing of the checkpoint to the next
WARMUP = 60
FILLER = 0.1  # weight of the positions behind the end of the text
ALL_NOISE = 0.15  # of the canvases start as an engine's do


@dataclass(frozen=True)
class Plan:
    """How to train.

    Args:
        steps: updates that the learning rate is spread over: up, then down along a cosine.
        stop: updates that are made; training can be left unfinished.
        packed: the last of `steps` that see the parameters as packing will leave them.
        peak: the highest learning rate.
        calm: factor on the final norm before the first step; a model of random weights is too sure of its guesses.
        seed: of batches and noise.
        looking: share of the batches that ask about pictures, where there are any.
    """

    steps: int
    stop: int
    packed: int
    peak: float
    calm: float
    seed: int
    looking: float = 0.5

    def rate(self) -> Callable[[mx.array], mx.array]:
        """Learning rate by step."""
        warm = optimizers.linear_schedule(0.0, self.peak, WARMUP)
        cool = optimizers.cosine_decay(self.peak, max(self.steps - WARMUP, 1), self.peak / 50)
        return optimizers.join_schedules([warm, cool], [WARMUP])


def corrupt(target_BC: mx.array, rng: np.random.Generator, vocabulary: int) -> mx.array:
    """Replace a share t of each canvas by uniform tokens; t is spread over (0, 1], denser towards 1."""
    batch, canvas = target_BC.shape
    share_B = np.sqrt((rng.permutation(batch) + rng.random(batch)) / batch)
    share_B = np.where(rng.random(batch) < ALL_NOISE, 1.0, share_B)
    hit_BC = rng.random((batch, canvas)) < share_B[:, None]
    noise_BC = rng.integers(0, vocabulary, (batch, canvas))
    return mx.where(mx.array(hit_BC), mx.array(noise_BC.astype(np.int32)), target_BC)


def loss_of(
    model: DiffusionGemma,
    weights: FloatWeights,
    batch: Batch,
    noisy_BC: mx.array,
    temperature: float | None,
    shown: Shown | None = None,
) -> Callable[[Arrays], mx.array]:
    """The loss as a function of the parameters alone.

    Args:
        model: made from `weights`.
        weights: where the model looks.
        batch: prompts and targets.
        noisy_BC: the corrupted targets.
        temperature: divides the first pass' logits on their way to the signal; None for no first pass.
        shown: the pictures of the prompts; None where they show none.
    """
    prompt, padding = mx.array(batch.prompt), mx.array(batch.padding)
    target = mx.array(batch.target)
    weight_BC = np.where(batch.spoken, 1.0, FILLER)
    # Every lesson counts alike, however long.
    weight = mx.array((weight_BC / weight_BC.mean(axis=1, keepdims=True)).astype(np.float32))

    def loss(arrays: Arrays) -> mx.array:
        weights.use(arrays)
        cache = model.new_cache()
        if shown is None:
            model.encode(prompt, cache, padding)
        else:
            features = model.look([shown.pixels])
            model.encode(prompt, cache, padding, features, mx.array(shown.types))
        signal = None
        if temperature is not None:
            logits_BCV = model.logits(model.decode(noisy_BC, cache, None, padding))
            table = model.embed_tokens.table.dense()
            probabilities_BCV = confident_probabilities(logits_BCV / temperature)
            signal = mx.stop_gradient(soft_from_table(probabilities_BCV, table, model.embed_tokens.scale))
        logits_BCV = model.logits(model.decode(noisy_BC, cache, signal, padding))
        missed = nn.losses.cross_entropy(logits_BCV, target)
        return (missed * weight).mean()

    return loss


def train(
    checkpoint: Path,
    lessons: Path,
    plan: Plan,
    report: Callable[[int, float, Arrays], None],
    pictures: Path | None = None,
) -> None:
    """Train.

    Args:
        checkpoint: gives architecture, tokenizer and the parameters to begin with.
        lessons: see `Lessons`.
        plan: how.
        report: told of every step's number, its loss, and the parameters after it in float32.
        pictures: see `Gallery`; with them the vision tower is trained too, and a share of the batches asks about them.
    """
    rng = np.random.default_rng(plan.seed)
    origin = load(checkpoint, "float32")
    arrays = unpacked(origin, vision=pictures is not None)
    arrays["model.decoder.norm.weight"] = arrays["model.decoder.norm.weight"] * plan.calm
    packing = packing_of(arrays, origin.config)
    weights = small_room(FloatWeights(arrays, origin.config))
    model = DiffusionGemma(weights)
    tokens = Tokens(checkpoint)
    school = Lessons(lessons, tokens, origin.config.text_config.eos_token_id)
    gallery = None if pictures is None else Gallery(pictures, tokens, origin.config)
    vocabulary = origin.config.text_config.vocab_size
    optimizer = optimizers.AdamW(plan.rate(), betas=[0.9, 0.98], weight_decay=0.01)
    for step in range(1, plan.stop + 1):
        shown = None
        if gallery is not None and rng.random() < plan.looking:
            batch, shown = gallery.draw(rng)
        else:
            batch = school.draw(rng)
        noisy = corrupt(mx.array(batch.target), rng, vocabulary)
        temperature = float(rng.uniform(0.4, 0.8)) if rng.random() < 0.5 else None
        plain = loss_of(model, weights, batch, noisy, temperature, shown)
        through = step > plan.steps - plan.packed
        value, grads = mx.value_and_grad(partial(_through, plain, packing) if through else plain)(arrays)
        grads, _ = optimizers.clip_grad_norm(grads, 1.0)
        arrays = optimizer.apply_gradients(grads, arrays)
        mx.eval(arrays, optimizer.state, value)
        report(step, float(value), arrays)


def _through(plain: Callable[[Arrays], mx.array], packing: dict[str, dict[str, int]], arrays: Arrays) -> mx.array:
    return plain(as_packed(arrays, packing))


@click.command()
@click.argument("checkpoint", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("lessons", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--steps", default=1700, show_default=True, help="Updates that the learning rate is spread over.")
@click.option("--stop", type=int, help="Updates to make, where they are fewer.")
@click.option("--packed", default=400, show_default=True, help="Last updates, made through the packing.")
@click.option("--peak", default=2e-3, show_default=True, help="Highest learning rate.")
@click.option("--calm", default=0.15, show_default=True, help="Factor on the final norm at first; 1 to go on.")
@click.option("--seed", default=3, show_default=True, help="Of batches and noise.")
@click.option("--pictures", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Lessons to look at.")
@click.option("--looking", default=0.5, show_default=True, help="Share of the batches that ask about pictures.")
def main(
    checkpoint: Path,
    lessons: Path,
    out: Path,
    steps: int,
    stop: int | None,
    packed: int,
    peak: float,
    calm: float,
    seed: int,
    pictures: Path | None,
    looking: float,
) -> None:
    """Train the parameters of CHECKPOINT on LESSONS, and write them to OUT in the same layout."""
    plan = Plan(steps, min(stop or steps, steps), packed, peak, calm, seed, looking)
    recent: list[float] = []
    began = time.perf_counter()

    def report(step: int, loss: float, arrays: Arrays) -> None:
        recent.append(loss)
        if step % EVERY and step < plan.stop:
            return
        size = write(checkpoint, arrays, out)
        seconds = time.perf_counter() - began
        click.echo(f"step {step}: loss {np.mean(recent):.3f}, {seconds:.0f} s; {out}: {size:,} bytes")
        recent.clear()

    train(checkpoint, lessons, plan, report, pictures)


if __name__ == "__main__":
    main()
