"""Random mutations of the port's source, run by `nox -s source_mutants`: who kills each, and why the rest may live.

`source_mutants.json` is the sample and the table of results. A mutation is killed by the harness on the committed
goldens, else by the project's own tests, else by taking too long; one that survives all of them needs a sentence that
says why it may: equivalent, unreachable, or what it is that nobody can see. Exit code 1 on a survivor without one.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import source_parity
import source_units
from rich.console import Console
from rich.table import Table as Grid
from source_edits import ROOT, Edit, UnfitError, draw

TABLE = Path(__file__).with_suffix(".json")
COUNT, SEED = 150, 5
GONE = "gone: its lines were changed since it was drawn"


@dataclass(frozen=True)
class Row:
    """One mutation and what became of it.

    Attributes:
        killer: What killed it, as "parity: ...", "tests: ..." or "time: ..."; "" if it survived.
        why: Of a survivor, why it may.
    """

    edit: Edit
    killer: str = ""
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """As the table holds it; no empty field."""
        return {**asdict(self.edit), **{name: said for name in ("killer", "why") if (said := getattr(self, name))}}


def load(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """What the sample was drawn from, and its rows."""
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for entry in document["mutants"]:
        killer, why = entry.pop("killer", ""), entry.pop("why", "")
        rows.append(Row(Edit(**entry), killer, why))
    return document["drawn"], rows


def save(drawn: dict[str, Any], rows: list[Row], path: Path) -> None:
    """Write the table: one line a field, so that a change can be read."""
    document = {"drawn": drawn, "mutants": [row.to_json() for row in rows]}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def again(rows: list[Row]) -> tuple[dict[str, Any], list[Row]]:
    """A sample of the port as it is now; a mutation that was drawn before keeps its explanation."""
    found = draw(COUNT, SEED)
    whys = {(row.edit.file, row.edit.before, row.edit.after): row.why for row in rows}
    facts = {"seed": SEED, "places": found.places, "mutations": found.mutations, "left_out": found.left_out}
    return facts, [Row(edit, why=whys.get((edit.file, edit.before, edit.after), "")) for edit in found.edits]


def judged(rows: list[Row], progress: Callable[[str], None]) -> Iterator[Row]:
    """The rows again, each with what kills it now: as soon as that is known, the survivors last."""
    left = {row.edit: row for row in rows}
    for row in rows:
        if not fits(row.edit):
            yield replace(left.pop(row.edit), killer=GONE)
    goldens, here = source_parity.controls(progress)
    for edit, killer in source_parity.kill(list(left), goldens, here, progress):
        if killer:
            yield replace(left.pop(edit), killer=killer)
    if left:
        reach = source_units.reached(progress)
        for edit, killer in source_units.kill(list(left), reach, progress):
            if killer:
                yield replace(left.pop(edit), killer=killer)
    yield from (replace(row, killer="") for row in left.values())


def fits(edit: Edit) -> bool:
    """Whether its lines still stand where they can be mutated."""
    try:
        edit.found((ROOT / edit.file).read_text(encoding="utf-8"))
    except (UnfitError, FileNotFoundError):
        return False
    return True


def show(rows: list[Row], seconds: float) -> int:
    """Print who killed what and explain who was not; gives the exit code."""
    grid = Grid(box=None)
    for title in ("mutation", "", "killed by, or why it may live"):
        grid.add_column(title, overflow="fold")
    for row in rows:
        what = f"{_line(row.edit.before)}\n→ {_line(row.edit.after)}"
        grid.add_row(f"{row.edit.place}\n{row.edit.operator}", what, f"{row.killer or 'SURVIVED'} {row.why}".strip())
    Console(width=None if sys.stdout.isatty() else 200).print(grid, markup=False)
    by = Counter(row.killer.partition(":")[0] or "survived" for row in rows)
    print(
        f"{len(rows)} mutations in {seconds:.0f} s: " + ", ".join(f"{count} {name}" for name, count in by.most_common())
    )
    for row in rows:
        if row.why and row.killer and row.killer != GONE:
            print(f"{row.edit.place} needs its explanation no more: {row.killer}")
    bare = [row for row in rows if not row.killer and not row.why]
    for row in bare:
        print(f"{row.edit.place} survives and nothing says why it may: write a test, or its `why` in {TABLE.name}")
    return 1 if bare else 0


def _line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines()) or "(removed)"


@click.command()
@click.option("--draw", "anew", is_flag=True, help="Draw the sample again from the port as it is (needs cosmic-ray).")
@click.option("--record", is_flag=True, help="Write what killed each into the table.")
@click.option(
    "-k", "names", multiple=True, metavar="TEXT", help="Only those whose file:line holds this; may be repeated."
)
@click.option("--survivors", is_flag=True, help="Only those that the table names no killer of.")
def main(anew: bool, record: bool, names: tuple[str, ...], survivors: bool) -> None:
    """Plant random mutations in the port, and say who kills each."""
    drawn, rows = load(TABLE) if TABLE.exists() else ({}, [])
    if anew:
        drawn, rows = again(rows)
        save(drawn, rows, TABLE)
    chosen = [
        row
        for row in rows
        if (not names or any(name in row.edit.place for name in names)) and not (survivors and row.killer)
    ]
    start = time.perf_counter()
    found: dict[Edit, Row] = {}
    for row in judged(chosen, lambda message: print(message, file=sys.stderr, flush=True)):
        found[row.edit] = row
        if record:  # at once: what was interrupted goes on with --survivors
            save(drawn, [found.get(one.edit, one) for one in rows], TABLE)
    sys.exit(show([found[row.edit] for row in chosen], time.perf_counter() - start))


if __name__ == "__main__":
    main()
