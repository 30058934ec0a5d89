"""`harness diff`: open one occurrence, find the first bad one of a run, or shrink a case that fails."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from reports.verdict import line
from stages import casefile, sides
from stages.asked import per_model
from stages.errors import UsageError
from stages.mend.search import SECONDS
from stages.places import CACHE, MODELS
from stages.shelf import Held, Question
from stages.spec import Table

from . import bisect as halving
from . import planted as diff_planted
from . import show as diff_show
from . import shrink as shrinking
from .load import refused
from .meant import chosen, has
from .opened import Bench, Opened

Shown = tuple[dict[str, Any], list[str], bool]  # a document, the lines of a terminal, whether something is wrong
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("stage", required=False)
@click.argument("words", nargs=-1, metavar="[OCCURRENCE]...")
@click.option("--model", type=click.Choice(MODELS), help="Whose stage (default: the first model that has it).")
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Of this case; may be repeated.")
@click.option(
    "--compute", "computes", multiple=True, type=click.Choice(("bfloat16", "float32")), help="In this compute dtype."
)
@click.option("--goldens", type=FOLDER, help="Of the goldens in this folder.")
@click.option("--bisect", is_flag=True, help="Find the first bad occurrence of the port's ordinary run, by halves.")
@click.option("--shrink", is_flag=True, help="Make the case as small as it goes while the stage is the first to fail.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the shrunk case to this file.")
@click.option("--forced", is_flag=True, help="Leave the port's ordinary run out.")
@click.option(
    "--mend", "seconds", type=click.FloatRange(min=0), default=SECONDS, show_default=True, metavar="SECONDS",
    help="Where it fails, search so long for an edit of the port that mends it, in memory; 0: not at all.",
)  # fmt: skip
@click.option("--planted", metavar="NAME", help="With this bug in the port (`harness mutate` names them), in memory.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def diff(
    stage: str | None,
    words: tuple[str, ...],
    model: str | None,
    cases: tuple[str, ...],
    computes: tuple[str, ...],
    goldens: Path | None,
    bisect: bool,
    shrink: bool,
    out: Path | None,
    forced: bool,
    seconds: float,
    planted: str | None,
    as_json: bool,
) -> None:
    """Open one occurrence of a stage: every operation inside on both sides, and the first that introduces an error.

    Words choose the occurrence: 5 means layer=5, canvas=0/step=31 what it says; the first that has all of them is it.
    With a planted bug and no stage, it is the one that objects to the bug first.
    """
    if planted is not None:
        model, at = diff_planted.planted(planted, model, look=stage is None)
        if at is not None:
            stage, words = at.stage, ((at.occurrence,) if at.occurrence else ())
            cases, computes = (at.case.partition("/")[0],), (at.case.partition("/")[2],)
    if stage is None:
        raise UsageError("a stage has to be named: harness list shows them")
    table, question = per_model(model, Question((stage,), cases, computes, goldens))[0]
    cuts = sides.cuts("port", table.model)
    loaded: dict[tuple[Path, str], Any] = {}

    def load(where: Path, compute: str) -> Any:
        if (where, compute) not in loaded:
            loaded[where, compute] = cuts.load(where, compute)
        return loaded[where, compute]

    with redirect_stdout(sys.stderr):  # whatever the port prints is no part of the answer
        held, occurrence = chosen(table, question, stage, words, load)
        if (closed := _closed(table, held, stage, load, seconds)) is not None:
            document, shown, failed = closed
        elif bisect:
            model_ = load(held.checkpoint, held.compute)
            document, shown, failed = _halved(
                halving.bisect(table, held, model_, table[stage], lambda o: has(o, words))
            )
        elif shrink:
            document, shown, failed = _shrunk(table, held, stage, load, out)
        else:
            bench = Bench(table, held, load(held.checkpoint, held.compute), seconds=seconds)
            document, shown, failed = _told(bench.open(table[stage], occurrence, free=not forced))
    for text in [json.dumps({"schema": 1, **document})] if as_json else shown:
        click.echo(text)
    sys.exit(1 if failed else 0)


def _told(found: Opened) -> Shown:
    return diff_show.as_json(found), list(diff_show.lines(found)), found.diverges


def _closed(table: Table, held: Held, stage: str, load: Any, seconds: float) -> Shown | None:
    """What to show of a port that refuses its checkpoint: there is no occurrence to open."""
    try:
        load(held.checkpoint, held.compute)
    except Exception:  # whatever the port raises on the way is what there is to open
        found = refused(table, held, stage, seconds)
        if found is None:
            raise
        return _told(found)
    return None


def _halved(found: halving.Halved) -> Shown:
    document = {
        "occurrences": found.occurrences,
        "compared": [found.occurrences[n] for n in found.compared],
        "most": found.most,
        "first": None if found.first is None else found.occurrences[found.first],
        "verdicts": [row.to_json() for row in found.rows],
        "note": found.note,
    }
    shown = [found.note] if found.note else []
    if found.first is None:
        shown.append(f"none found of {len(found.occurrences)}: the last is as the golden's, and would inherit an error")
    else:
        shown.append(
            f"first bad: {found.occurrences[found.first]}, number {found.first + 1} of {len(found.occurrences)}"
        )
        shown += [line(row) for row in found.rows]
    shown.append(f"{len(found.compared)} comparisons, of {found.most} that it may take")
    return document, shown, bool(found.rows or found.note)


def _shrunk(table: Table, held: Held, stage: str, load: Any, out: Path | None) -> Shown:
    with shrinking.recorder(table.model, held.compute) as record:
        shrinker = shrinking.Shrinker(table, held.compute, load, record)
        small = shrinker.shrink(held.case, stage)
    path = out or CACHE / f"{small.name}.json"
    casefile.write(path, table.model, small)
    facts = small.facts()
    shown = [
        f"{held.name} shrunk in {shrinker.tried} tries; {stage} is still the first to fail; what is left of it:",
        *(f"  {name}: {facts[name]}" for name in shrinking.SHRINKS if facts.get(name)),
        f"written to {path}; record it with: harness dump --case {path}",
        f"then: harness diff {stage} --case {path}",
    ]
    return {"case": facts, "file": str(path), "tried": shrinker.tried}, shown, True
