"""Both engines over a matrix of generations, run by `nox -s generations`: nothing may differ, everything is counted.

Every generation is run by mlx-optiq's own loop and by the port, from the same seed. Compared: tokens, steps of each
canvas, finish reason, segments of text, drafts, and the log of draws (kind, shape, dtype, bounds, values, order); and,
step by step, what was decided (best tokens, accepted positions, stops). Exit code 1 on any difference.
"""

import itertools
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from oracle.diffusion_gemma import canvas_cuts, engine, reference
from oracle.diffusion_gemma.tensors import to_numpy as oracle_numpy
from port.diffusion_gemma import canvas as canvases
from port.diffusion_gemma import canvas_cuts as port_cuts
from port.diffusion_gemma import cuts
from port.observe import wrapped
from stages.diffusion_gemma_engine import RECOMMENDED
from stages.places import checkpoint_path


def turn(text: str) -> str:
    """A prompt as the chat template writes it, but for the start token."""
    return f"<|turn>user\n{text}<turn|>\n<|turn>model\n<|channel>thought\n<channel|>"


# What the trained nano knows, what it was never asked, what takes several canvases, and what it cannot make sense of.
PROMPTS = (
    turn("What is the capital of France?"),
    turn("Which city is the capital of Italy?"),
    turn("What is 2 + 5?"),
    turn("Tell me a long story about a cat."),
    turn("Tell me a story about a horse."),
    turn("Write a function that adds a and b."),
    turn("Name a fruit."),
    turn("Count to forty."),
    "What is the capital of France?",
    "Hello!",
    "",
    "The cat looked for a coin but found",
)
SEEDS = range(10)
GIVES = ("outcome", "tokens", "steps", "finish", "segments", "drafts", "draws")


@dataclass
class Sides:
    """Both engines on one checkpoint."""

    oracle: Any
    port: Any

    @classmethod
    def load(cls, checkpoint: Path, compute: str) -> "Sides":
        """Load both."""
        return cls(reference.load(checkpoint, compute), cuts.load(checkpoint, compute))

    def encode(self, prompt: str) -> list[int]:
        """The prompt's ids, by the reference's tokenizer."""
        return self.oracle.tokenizer.encode(prompt, add_special_tokens=True)


@dataclass
class Tally:
    """What was compared, and what differed."""

    runs: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    differing: list[str] = field(default_factory=list)


def one(sides: Sides, name: str, ids: list[int], options: dict[str, Any], seed: int, tally: Tally) -> dict[str, Any]:
    """Run one generation on both sides and compare it; returns the oracle's outcome."""
    ins = {
        "ids": np.array(ids, np.int32),
        "options": np.frombuffer(json.dumps(options).encode(), np.uint8),
        "seed": np.array(seed, np.int32),
        "said": np.zeros(0, np.uint8),
    }
    mine: list[Any] = []
    theirs: list[Any] = []
    observed = engine.Observed(finished=lambda canvas: theirs.append(canvas_decisions(canvas)))
    start = time.perf_counter()
    with observed.watching():
        oracle = canvas_cuts.generate(sides.oracle, {}, **ins)
    middle = time.perf_counter()
    with wrapped({(canvases, "advance"): lambda _c, _a, call: noted(mine, call())}):
        port = port_cuts.generate(sides.port, {}, **ins)
    tally.counts["oracle ms"] += int(1e3 * (middle - start))
    tally.counts["port ms"] += int(1e3 * (time.perf_counter() - middle))
    for gave in GIVES:
        a, b = oracle.get(gave), port.get(gave)
        same = (a is None and b is None) or (a is not None and b is not None and np.array_equal(a, b))
        if not same:
            tally.differing.append(f"{name}: {gave} differ: oracle {said(a)}, port {said(b)}")
            tally.counts[f"differing {gave}"] += 1
    compare_decisions(name, [row for canvas in theirs for row in canvas], mine, tally)
    if len(oracle["tokens"]):
        tally.counts["tokens"] += len(oracle["tokens"])
        tally.counts["draws"] += len(json.loads(oracle["draws"].tobytes()))
        tally.counts["steps"] += int(oracle["steps"].sum())
        blocks = len(oracle["steps"])
        tally.runs["of three blocks or more" if blocks > 2 else f"of {blocks} block{'s' * (blocks > 1)}"] += 1
        tally.runs[f"that finish by {oracle['finish'].tobytes().decode()}"] += 1
    else:
        tally.runs["that both sides refuse"] += 1
    return oracle


def canvas_decisions(canvas: engine.Canvas) -> list[tuple[Any, ...]]:
    """Best tokens, accepted positions and the stop of each step of the oracle's, and the least margin of its argmax."""
    rows = []
    for step in canvas.steps:
        accepted = step.get("accepted")
        gap = np.partition(oracle_numpy(step["processed"]), -2, axis=-1)[..., -2:]
        margin = float(np.min((gap[..., 1] - gap[..., 0]) / np.spacing(np.abs(gap[..., 1]))))
        accepts = None if accepted is None else oracle_numpy(accepted)
        rows.append((oracle_numpy(step["argmax"]), accepts, bool(step.get("stop")) or step.number == 1, margin))
    return rows


def noted(rows: list[Any], step: canvases.Step) -> canvases.Step:
    """Keep what a step of the port decided."""
    accepted = None if step.sampled is None else np.array(step.sampled.accepted)
    rows.append((np.array(step.argmax), accepted, step.done))
    return step


def compare_decisions(name: str, theirs: list[Any], mine: list[Any], tally: Tally) -> None:
    """Hold every decision of a run to the oracle's; a difference of any is one too many on the same backend."""
    if len(theirs) != len(mine):
        tally.differing.append(f"{name}: {len(theirs)} steps of the oracle, {len(mine)} of the port")
        return
    for i, (a, b) in enumerate(zip(theirs, mine, strict=True)):
        tally.counts["decisions: best token"] += a[0].size
        tally.counts["decisions: accepted or not"] += 0 if a[1] is None else a[1].size
        tally.counts["decisions: stop or go on"] += 1
        tally.counts["closest argmax, ULP"] = min(tally.counts.get("closest argmax, ULP", 1 << 60), int(a[3]))
        same = np.array_equal(a[0], b[0]) and (a[1] is None) == (b[1] is None) and a[2] == b[2]
        if not same or (a[1] is not None and not np.array_equal(a[1], b[1])):
            tally.differing.append(f"{name}: step {i + 1} decided otherwise, by a margin of {a[3]:.0f} ULP at least")


def said(tensor: Any) -> str:
    """A tensor of tokens or of text, short."""
    if tensor is None:
        return "nothing"
    text = tensor.tobytes().decode() if tensor.dtype == np.uint8 else str(tensor.tolist())
    return text if len(text) < 120 else f"{text[:120]}..."


def matrix(canvas: int, steps: int) -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """(name, prompt, options, seed): every prompt, seed, sampler and way to choose, each with each; knobs in turn."""
    knobs = itertools.cycle(
        (
            {"max_tokens": 12},
            {"max_tokens": canvas, "generation_config": RECOMMENDED, "steps": steps},
            {"max_tokens": 2 * canvas + 4, "prefill_step": 5},
            {"max_tokens": 3 * canvas},
            {"max_tokens": 2 * canvas + 4, "generation_config": RECOMMENDED, "prefill_step": 16, "steps": steps},
            {"max_tokens": 9, "show": True, "show_every": 2},
            {"max_tokens": 20, "min_canvas": 4},
            {"max_tokens": 30, "max_canvas": 64, "steps": 3},
            {"max_tokens": 3 * canvas, "generation_config": RECOMMENDED, "steps": steps},
        )
    )
    for seed, (i, prompt) in itertools.product(SEEDS, enumerate(PROMPTS)):
        for sampler, temperature in itertools.product(("confidence-threshold", "entropy-bound"), (0.0, 0.7)):
            options = {
                "sampler": sampler,
                "temperature": temperature,
                "max_canvas": canvas,
                "steps": steps,
                **next(knobs),
            }
            yield f"prompt {i}, seed {seed}, {options}", prompt, options, seed


@click.command()
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Directory of the weights [nano-trained, or nano].")
@click.option("--compute", type=click.Choice(("float32", "bfloat16")), default="float32", show_default=True)
@click.option("--canvas", default=16, show_default=True, help="Most tokens of most canvases.")
@click.option("--steps", default=6, show_default=True)
@click.option(
    "--compiled", default=2, show_default=True, help="Runs with a compiled canvas pass, which is slow to build."
)
@click.option("--every", default=1, show_default=True, help="Only each so manieth run of the matrix.")
@click.option("--long/--no-long", default=True, help="A prompt longer than max_position_embeddings too.")
def main(checkpoint: Path | None, compute: str, canvas: int, steps: int, compiled: int, every: int, long: bool) -> None:
    """Run the matrix; print counts and what differs."""
    warnings.simplefilter("ignore")
    sides = Sides.load(checkpoint or default_checkpoint(), compute)
    tally = Tally()
    start = time.perf_counter()
    runs = list(matrix(canvas, steps))[::every]
    for done, (name, prompt, options, seed) in enumerate(runs):
        tally.runs["in all"] += 1
        one(sides, name, sides.encode(prompt), options, seed, tally)
        if done % 40 == 39:
            click.echo(f"{done + 1} of {len(runs)}: {len(tally.differing)} differences", err=True)
    for i in range(compiled):
        sampler = ("confidence-threshold", "entropy-bound")[i % 2]
        options = {"sampler": sampler, "max_canvas": canvas, "steps": 3, "max_tokens": 2 * canvas + 1, "compile": True}
        tally.runs["in all"] += 1
        tally.runs["compiled"] += 1
        one(sides, f"compiled, {options}", sides.encode(PROMPTS[0]), options, i, tally)
    if long:
        ids = (np.arange(sides.port.config.text_config.max_position_embeddings + 5) % 500 + 5).tolist()
        tally.runs["in all"] += 1
        one(sides, "longer than max_position_embeddings", ids, {"max_tokens": 2, "max_canvas": 4, "steps": 1}, 0, tally)
    report(tally, time.perf_counter() - start)


def default_checkpoint() -> Path:
    """The one that answers."""
    return checkpoint_path("nano-trained")


def report(tally: Tally, seconds: float) -> None:
    """Print what was compared; leave with 1 where anything differed."""
    for name, count in sorted(tally.runs.items()):
        click.echo(f"{count:8} runs {name}")
    for name, count in sorted(tally.counts.items()):
        click.echo(f"{count:8} {name}")
    click.echo(f"{len(tally.differing):8} differences in {seconds:.0f} s")
    for line in tally.differing[:20]:
        click.echo(f"FAIL {line}")
    sys.exit(1 if tally.differing or not tally.runs["of three blocks or more"] else 0)


if __name__ == "__main__":
    main()
