"""`harness mutate`: what it says of every planted bug, and what it keeps."""

import json
import sys

import click
from rich.console import Console
from rich.table import Table as Grid

from reports.verdict import number

from . import mutate, ratchet
from .errors import UsageError
from .places import MODELS
from .planted import Mutant
from .progress import progress


@click.command("mutate")
@click.option("--model", type=click.Choice(MODELS), help="Only this model's mutants (default: all).")
@click.option("--stage", "stages", multiple=True, metavar="NAME", help="Only those of this stage; may be repeated.")
@click.option(
    "-k",
    "names",
    multiple=True,
    metavar="TEXT",
    help="Only those whose name holds this, or of this bug, as M72; may be repeated.",
)
@click.option("--tier", type=click.Choice(("exact", "portable")), help="Judge in this tier, whatever the canary says.")
@click.option("--dense", is_flag=True, help="Let the port multiply unpacked weights in float32: another backend.")
@click.option("--record", is_flag=True, help="With --tier portable: write what that tier catches, and its bounds.")
@click.option("--seconds", default=mutate.SECONDS, show_default=True, help="What one mutant may take.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def command(
    model: str | None,
    stages: tuple[str, ...],
    names: tuple[str, ...],
    tier: str | None,
    dense: bool,
    record: bool,
    seconds: float,
    as_json: bool,
) -> None:
    """Plant the bugs of the tables in the port, in memory, and say who catches each."""
    whole = not (model or stages or names)
    if dense and tier != "portable":
        raise UsageError("what is dense is judged in the portable tier: harness mutate --tier portable --dense")
    if record and (tier != "portable" or dense or not whole):
        raise UsageError(f"--record keeps what the portable tier catches of all mutants: {ratchet.RENEW}")
    asked = {one: _chosen(mutate.mutants_of(one), stages, names) for one in ([model] if model else MODELS)}
    if not any(asked.values()):
        raise UsageError("no mutant is asked for: the stages and names given have none. See all with: harness mutate")
    with progress() as say:
        report = mutate.run({one: mutants for one, mutants in asked.items() if mutants}, tier, say, seconds, dense)
    if whole and tier != "portable":
        mutate.save(report)
    lost = ratchet.lost(report) if tier == "portable" and not dense else []
    if record:
        ratchet.record(report)
    if as_json:
        click.echo(json.dumps(report.document()))
    else:
        _show(report)
    if tier == "portable":
        for line in [*ratchet.invisible(report), *lost]:
            click.echo(line, err=as_json)
        sys.exit(4 if report.exit_code == 4 else 1 if lost else 0)
    sys.exit(report.exit_code)


def _chosen(mutants: tuple[Mutant, ...], stages: tuple[str, ...], names: tuple[str, ...]) -> tuple[Mutant, ...]:
    return tuple(
        one
        for one in mutants
        if (not stages or one.stage in stages)
        and (not names or any(name in one.name or name in one.bugs for name in names))
    )


def _show(report: mutate.Report) -> None:
    grid = Grid("mutant", "found", "at", "tensor", "expected", "mode", "value", "bound", box=None)
    for one in report.found:
        entry = one.to_json()
        numbers = (number(value) for value in ((one.verdict.value, one.verdict.bound) if one.verdict else (None, None)))
        grid.add_row(
            one.mutant.name, one.status, one.caught_at, entry["tensor"], one.mutant.stage, entry["mode"], *numbers
        )
    Console(width=None if sys.stdout.isatty() else 180).print(grid)
    for one in report.found:
        if one.status != "CAUGHT" and report.tier != "portable":
            click.echo(f"{one.status}: {one.model} {one.mutant.name}: {one.mutant.math} {one.to_json()['note']}")
    count = sum(one.status == "CAUGHT" for one in report.found)
    click.echo(f"{count} of {len(report.found)} caught where expected, tier {report.tier}, in {report.seconds:.0f} s")
