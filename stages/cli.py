"""The command line: `harness list|run|diff|dump|goldens|report|mutate|doctor`.

Exit codes: 0 every verdict PASS; 1 a FAIL, LOCKED or INCONCLUSIVE; 2 usage; 3 STALE or missing golden; 4 ERROR.
"""

import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table as Grid

from goldens import store
from goldens.errors import GoldenError
from reports import bounds, html, text
from reports.verdict import Status, exit_code

from . import casefile, mutate_cli, told, view
from .asked import per_model, table_of
from .diff.cli import diff
from .errors import HarnessError, UsageError
from .places import CACHE, COMMITTED, LOCAL, MODELS, PAGES, golden_path
from .progress import progress
from .run import Run
from .shelf import Question

FOLDER = click.Path(path_type=Path, file_okay=False)
MODEL = click.option("--model", type=click.Choice(MODELS), default=MODELS[0], show_default=True, help="Which table.")
ONE_MODEL = click.option("--model", type=click.Choice(MODELS), help="Only this model's table (default: all).")
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
TIER = click.option(
    "--tier", type=click.Choice(("exact", "portable")), help="Gates of this tier, whatever the canary says."
)
GOLDENS = click.option("--goldens", type=FOLDER, help="Judge against the goldens in this folder.")
MARKDOWN = click.option(
    "--markdown", type=click.Path(path_type=Path), help="Append the table, as Markdown, to this file."
)
JUNIT = click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write the verdicts as JUnit XML."
)
CASE = click.option("--case", "cases", multiple=True, metavar="NAME", help="Only this case; may be repeated.")
COMPUTE = click.option(
    "--compute", "computes", multiple=True, type=click.Choice(("bfloat16", "float32")), help="Only this compute dtype."
)


class _Commands(click.Group):
    """Turns the harness' own errors into one line and an exit code; a traceback only where it is asked for."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command; see the class."""
        try:
            try:
                return super().invoke(context)
            finally:
                sys.stdout.flush()  # here, where a reader that went away can still be answered in order
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)  # as a command that SIGPIPE ended
        except (HarnessError, GoldenError) as error:
            code = error.exit_code if isinstance(error, HarnessError) else 3
            _fail(code, str(error))
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            sys.exit(130)  # not 1: nothing was found wrong
        except (click.exceptions.Exit, click.ClickException, SystemExit):
            raise
        except Exception as error:
            if os.environ.get("LOCKSTEP_TRACEBACK"):
                raise
            _fail(4, f"{type(error).__name__}: {error}. See where with: LOCKSTEP_TRACEBACK=1 harness ...")


def _fail(code: int, message: str) -> None:
    if "--json" in sys.argv:
        click.echo(json.dumps({"schema": 1, "error": message, "verdicts": [], "summary": {}}))
    click.echo(f"error: {message}", err=True)
    sys.exit(code)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Hold a port to its oracle, stage by stage."""


@main.command()
@click.argument("stages", nargs=-1, metavar="[STAGE]...")
@ONE_MODEL
@CASE
@COMPUTE
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Judge the port on this checkpoint directory.")
@GOLDENS
@TIER
@click.option("--free", "mode", flag_value="free", help="Only the verdicts of the port's ordinary run.")
@click.option("--forced", "mode", flag_value="forced", help="Only the verdicts of stages fed the oracle's inputs.")
@click.option("--again", is_flag=True, help="Judge anew what the ledger already holds.")
@click.option("--dense", is_flag=True, help="Let the port multiply unpacked weights in float32: another backend.")
@click.option("--pages/--no-pages", default=True, help="Write the HTML pages when the whole table was judged.")
@MARKDOWN
@JUNIT
@JSON
def run(
    stages: tuple[str, ...],
    model: str | None,
    cases: tuple[str, ...],
    computes: tuple[str, ...],
    checkpoint: Path | None,
    goldens: Path | None,
    tier: str | None,
    mode: str | None,
    again: bool,
    dense: bool,
    pages: bool,
    markdown: Path | None,
    junit: Path | None,
    as_json: bool,
) -> None:
    """Judge stages (default: all), and first whatever they wait for that holds no current PASS."""
    modes = (mode,) if mode else ("forced", "free")
    asked = per_model(model, Question(stages, cases, computes, goldens, checkpoint, tier, modes, again, dense))
    answers = []
    with progress() as say, redirect_stdout(sys.stderr):  # whatever the port prints is no part of the answer
        try:
            answers = [Run(table, question, say).answer() for table, question in asked]
        except SystemExit as left:
            raise HarnessError(f"the port ended the process, with code {left.code}, while it was loaded") from left
    found = [view.report(table, answer, q) for (table, q), answer in zip(asked, answers, strict=True)]
    report, verdicts = view.merged(found), [row for answer in answers for row in answer.verdicts]
    if as_json:
        click.echo(json.dumps(told.document(answers, verdicts)))
    else:
        text.show(report)
    told.files(report, markdown, junit)
    told.remember(report, asked[0][1], model)
    if pages and not (stages or cases or computes or mode):
        index = html.write(PAGES, told.whole(asked, answers))[0]
        if not as_json:
            click.echo(f"report: {index.relative_to(Path.cwd()) if index.is_relative_to(Path.cwd()) else index}")
    sys.exit(exit_code(verdicts))


main.add_command(mutate_cli.command)


@main.command("list")
@ONE_MODEL
@JSON
def list_(model: str | None, as_json: bool) -> None:
    """Show the tables: stages, what unlocks them, cases, last verdict."""
    tables = [table for table, _ in per_model(model, Question())]
    models = {table.model: view.listing(table, Run(table, Question()).recall()) for table in tables}
    if as_json:
        click.echo(json.dumps({"schema": 1, "models": models}))
        return
    for name, rows in models.items():
        grid = Grid("stage", "after", "state", "cases", "occurrences", box=None, title=name, title_justify="left")
        for row in rows:
            counts = (str(len(row["cases"])), str(row["occurrences"]))
            grid.add_row(row["name"], ", ".join(row["after"]), row["state"], *counts)
        Console(width=None if sys.stdout.isatty() else 140).print(grid)


@main.command()
@ONE_MODEL
@GOLDENS
@TIER
@MARKDOWN
@JUNIT
def report(
    model: str | None, goldens: Path | None, tier: str | None, markdown: Path | None, junit: Path | None
) -> None:
    """Rebuild the pages from the ledger under the table's bounds as they are now; neither side is run.

    Prints, per output, the smallest bound that every stored value would pass.
    """
    whole = told.recalled(model, Question(goldens=goldens, tier=tier))
    told.files(whole, markdown, junit)
    click.echo("\n".join([*bounds.lines(whole), f"report: {html.write(PAGES, whole)[0]}"]))


@main.command()
@MODEL
@CASE
@COMPUTE
@click.option("--out", type=FOLDER, default=LOCAL, help="Folder to write to (default: goldens/local).")
@click.option("--committed", is_flag=True, help="Write to the committed goldens.")
@click.option("--full", is_flag=True, help="Keep every layer and stage, not only what the case keeps.")
@click.option("--check", is_flag=True, help="Record aside and compare with what is there; write nothing.")
@JSON
def dump(
    model: str,
    cases: tuple[str, ...],
    computes: tuple[str, ...],
    out: Path,
    committed: bool,
    full: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Record goldens from the oracle on this machine."""
    from . import dump as recorder  # noqa: PLC0415 -- judging needs no recorder

    table, cases = casefile.adopted(table_of(model), cases)
    if unknown := set(cases) - {case.name for case in table.cases}:
        raise UsageError(f"no case of {model} is called {min(unknown)!r}; see: harness list")
    folder = COMMITTED if committed else out
    changed: list[str] = []
    sizes: dict[str, int] = {}
    with progress() as say, tempfile.TemporaryDirectory() as aside:
        oracle = recorder.Recorder(table, say)
        for case, compute in recorder.wanted(table, cases, computes):
            target = Path(aside) if check else folder
            target.mkdir(parents=True, exist_ok=True)
            path = oracle.record(case, compute, target, full=full)
            sizes[path.name] = path.stat().st_size
            if check:
                changed += _changes(golden_path(folder, model, case.name, compute), path)
            elif not as_json:
                click.echo(f"{path.name}  {sizes[path.name]:,} bytes")
    if changed:
        raise GoldenError(path=folder, cause=f"recording again gives another payload: {'; '.join(changed[:8])}")
    if as_json:
        click.echo(json.dumps({"schema": 1, "folder": str(folder), "checked": check, "bytes": sizes}))
    elif check:
        click.echo("recorded again: every byte of payload is the same")


def _changes(old: Path, new: Path) -> list[str]:
    if not old.exists():
        return [f"{old.name} is not there"]
    with store.Golden.open(old) as before, store.Golden.open(new) as after:
        was, now = before.payload(), after.payload()
    return [f"{old.name}:{name}" for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)]


@main.group()
def goldens() -> None:
    """What is recorded, and whether it is whole."""


@goldens.command("ls")
@click.option("--goldens", "folder", type=FOLDER, default=COMMITTED, help="Which folder.")
@JSON
def goldens_ls(folder: Path, as_json: bool) -> None:
    """List recorded goldens."""
    rows, broken = view.recorded(folder, CACHE)
    if as_json:
        click.echo(json.dumps({"schema": 1, "goldens": rows, "broken": broken}))
        sys.exit(3 if broken else 0)
    grid = Grid("file", "oracle", "stages", "occurrences", "bytes", "this machine", box=None)
    for row in rows:
        same = "exact" if not row["differs"] else f"portable ({len(row['differs'])} primitives differ)"
        cells = (row["file"], row["oracle"], row["stages"], row["occurrences"], f"{row['bytes']:,}", same)
        grid.add_row(*(str(cell) for cell in cells))
    if rows:
        Console(width=None if sys.stdout.isatty() else 140).print(grid)
    for message in broken.values():
        click.echo(f"{Status.STALE} {message}")
    sys.exit(3 if broken else 0)


@goldens.command("verify")
@click.option("--goldens", "folder", type=FOLDER, default=COMMITTED, help="Which folder.")
@JSON
def goldens_verify(folder: Path, as_json: bool) -> None:
    """Read every tensor of every golden and check it against its checksums."""
    broken: dict[str, str] = {}
    paths = sorted(folder.glob("*.h5"))
    if not paths:
        raise GoldenError(path=folder, cause="there is no golden in this folder")
    for path in paths:
        try:
            store.verify(path)
        except GoldenError as error:
            broken[path.name] = str(error)
    if as_json:
        click.echo(json.dumps({"schema": 1, "whole": len(paths) - len(broken), "broken": broken}))
    else:
        for message in broken.values():
            click.echo(f"{Status.STALE} {message}")
        click.echo(f"{len(paths) - len(broken)} of {len(paths)} goldens are whole")
    sys.exit(3 if broken else 0)


@main.command()
@JSON
def doctor(as_json: bool) -> None:
    """Describe this machine: backend, canary against the goldens, versions, and what to do."""
    found = view.diagnosis(CACHE, COMMITTED, LOCAL)
    if as_json:
        click.echo(json.dumps({"schema": 1, **found}))
        return
    for name, value in found["backend"].items():
        click.echo(f"{name:12} {value}")
    for folder, state in found["goldens"].items():
        click.echo(f"{folder:12} {state['text']}")
    click.echo(f"{'do':12} {found['do']}")


main.add_command(diff)

if __name__ == "__main__":
    main()
