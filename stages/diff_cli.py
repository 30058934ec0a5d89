"""`harness diff`: open one occurrence, find the first bad one of a run, or shrink a case that fails."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from . import diff_show, sides
from .asked import per_model
from .diff import Bench, chosen
from .places import MODELS
from .shelf import Question

FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("stage")
@click.argument("words", nargs=-1, metavar="[OCCURRENCE]...")
@click.option("--model", type=click.Choice(MODELS), help="Whose stage (default: the first model that has it).")
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Of this case; may be repeated.")
@click.option(
    "--compute", "computes", multiple=True, type=click.Choice(("bfloat16", "float32")), help="In this compute dtype."
)
@click.option("--goldens", type=FOLDER, help="Of the goldens in this folder.")
@click.option("--forced", is_flag=True, help="Leave the port's ordinary run out.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def diff(
    stage: str,
    words: tuple[str, ...],
    model: str | None,
    cases: tuple[str, ...],
    computes: tuple[str, ...],
    goldens: Path | None,
    forced: bool,
    as_json: bool,
) -> None:
    """Open one occurrence of a stage: every operation inside on both sides, and the first that introduces an error."""
    table, question = per_model(model, Question((stage,), cases, computes, goldens))[0]
    cuts = sides.cuts("port", table.model)
    loaded: dict[tuple[Path, str], Any] = {}

    def load(where: Path, compute: str) -> Any:
        if (where, compute) not in loaded:
            loaded[where, compute] = cuts.load(where, compute)
        return loaded[where, compute]

    with redirect_stdout(sys.stderr):  # whatever the port prints is no part of the answer
        held, occurrence = chosen(table, question, stage, words, load)
        bench = Bench(table, held, load(held.checkpoint, held.compute))
        found = bench.open(table[stage], occurrence, free=not forced)
    if as_json:
        click.echo(json.dumps({"schema": 1, **diff_show.as_json(found)}))
    else:
        for line in diff_show.lines(found):
            click.echo(line)
    sys.exit(1 if found.diverges else 0)
