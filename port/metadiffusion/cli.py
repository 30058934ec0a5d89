"""MetaDiffusion's commands: convert, train-metadiffusion, generate."""

import functools
import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from port.errors import PortError

FOLDER = click.Path(path_type=Path, file_okay=False)


def is_asked(words: list[str]) -> bool:
    """Whether the `--checkpoint` of a command line is a MetaDiffusion."""
    pairs = [word.partition("=")[::2] for word in words] + list(pairwise(words))
    for given in (value for option, value in pairs if option == "--checkpoint"):
        try:
            return bool(json.loads((Path(given) / "config.json").read_text())["model_type"] == "metadiffusion")
        except (OSError, ValueError, KeyError, TypeError):
            continue  # the other model's command says what is wrong with it
    return False


def said(command: Callable[..., None]) -> Callable[..., None]:
    """Turns the port's own errors into one line and exit code 3."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except PortError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(3)

    return run


@click.command()
@click.argument("llama", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option("--seed", default=0, show_default=True, help="Of the timestep network, which no Llama has.")
@click.option("--ar-shift", is_flag=True, help="Read each prediction one position before it, as the Llama's head does.")
@said
def convert(llama: Path, out: Path, seed: int, ar_shift: bool) -> None:
    """Convert the Hugging Face Llama in LLAMA into a MetaDiffusion in OUT."""
    from .convert import convert as converting  # noqa: PLC0415 -- --help needs no model

    config = converting(llama, out, seed, ar_shift=ar_shift)
    click.echo(f"{out}: {config.num_hidden_layers} layers, {config.vocab_size} tokens and [MASK]")


@click.command("train-metadiffusion")
@click.option("--checkpoint", required=True, type=FOLDER, help="Where training starts.")
@click.option(
    "--text", required=True, type=click.Path(path_type=Path, dir_okay=False, exists=True), help="A text file."
)
@click.option("--out", required=True, type=FOLDER, help="Where checkpoints go; a run found there is gone on with.")
@click.option("--steps", default=1000, show_default=True, type=click.IntRange(1))
@click.option("--batch", default=16, show_default=True, type=click.IntRange(1), help="Rows a step.")
@click.option("--length", default=64, show_default=True, type=click.IntRange(1), help="Tokens a row.")
@click.option("--rate", default=1e-3, show_default=True, help="AdamW's learning rate.")
@click.option("--warmup", default=20, show_default=True, type=click.IntRange(0), help="Steps until --rate is reached.")
@click.option("--loss", default="flat", show_default=True, type=click.Choice(("flat", "elbo")))
@click.option(
    "--mask-min", "low", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="Least share of masks."
)
@click.option("--mask-max", "high", default=1.0, show_default=True, type=click.FloatRange(0, 1), help="Largest share.")
@click.option("--seed", default=0, show_default=True)
@click.option("--every", default=100, show_default=True, type=click.IntRange(1), help="Steps between checkpoints.")
@said
def train(checkpoint: Path, text: Path, out: Path, **asked: Any) -> None:
    """Train on a text, or go on where a run that was stopped left its last checkpoint."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, TextColumn  # noqa: PLC0415

    from .config import read  # noqa: PLC0415
    from .lessons import read_text  # noqa: PLC0415
    from .train import Recipe  # noqa: PLC0415
    from .train import train as training  # noqa: PLC0415

    recipe = Recipe(**asked)
    ids = read_text(text, checkpoint, read(checkpoint), recipe.length)
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), TextColumn("loss {task.fields[loss]}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=recipe.steps, loss="-")

        def told(step: int, loss: float) -> None:
            bar.update(task, completed=step, loss=f"{loss:.4f}")
            if not console.is_terminal and (step % recipe.every == 0 or step == recipe.steps):
                click.echo(f"step {step}/{recipe.steps}  loss {loss:.4f}", err=True)

        last = training(checkpoint, ids, recipe, out, told)
    click.echo(f"{last}  (losses: {out / 'loss.jsonl'})")


@click.command()
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@click.option("--checkpoint", required=True, type=FOLDER, help="Directory of the weights.")
@click.option("--tokens", default=64, show_default=True, type=click.IntRange(1), help="Tokens to write after a prompt.")
@click.option("--steps", default=64, show_default=True, type=click.IntRange(1), help="Passes at most.")
@click.option("--schedule", default="corrected", show_default=True, type=click.Choice(("corrected", "seed")))
@click.option("--compute", default="float32", show_default=True, type=click.Choice(("float32", "bfloat16")))
@said
def generate(prompts: tuple[str, ...], checkpoint: Path, tokens: int, steps: int, schedule: str, compute: str) -> None:
    """Write text by unmasking it; each PROMPT stays as it is and begins a text of a batch. Without one: one text."""
    import mlx.core as mx  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    from .checkpoint import load  # noqa: PLC0415
    from .lessons import tokenizer  # noqa: PLC0415
    from .unmask import generate as unmasking  # noqa: PLC0415

    model, words = load(checkpoint, compute), tokenizer(checkpoint)
    given = [words.encode(prompt).ids for prompt in prompts] or [[]]
    # Rows of one length: the shorter a prompt, the more is written after it.
    start = np.full((len(given), max(map(len, given)) + tokens), model.config.mask_token_id, np.int32)
    for row, ids in zip(start, given, strict=True):
        row[: len(ids)] = ids
    for row in np.array(unmasking(model, mx.array(start), steps, schedule)):
        click.echo(words.decode([int(i) for i in row if i != model.config.mask_token_id]))
