"""Does opening the first occurrence that objects to a planted bug name the line of that bug?"""

import ast
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from goldens import canary
from stages import sides
from stages.asked import table_of
from stages.errors import HarnessError, UsageError
from stages.forked import Lost, each
from stages.mend.search import SECONDS as SEARCH
from stages.mutate import IMPORTS, OBJECTS, SECONDS, judge_port, mutants_of
from stages.places import MODELS, ROOT
from stages.planted import Mutant, function_of, plant
from stages.shelf import Question, Shelf
from stages.spec import Table

from .load import refused
from .opened import Bench

CLASSES = ("line", "statement", "function", "elsewhere", "nothing")


@dataclass(frozen=True)
class Hunk:
    """Where a mutant changes the port, in the numbering of the changed file: what `harness diff` would name.

    Attributes:
        lines: First and last line of what is changed.
        statement: First and last line of the statement that holds it (of an `if` or `for`, its head).
        function: First and last line of the function.
    """

    file: str
    lines: tuple[int, int]
    statement: tuple[int, int]
    function: tuple[int, int]


@dataclass(frozen=True)
class At:
    """An occurrence of a golden: `long/bfloat16` is its case."""

    stage: str
    occurrence: str
    case: str


@dataclass(frozen=True)
class Marked:
    """What became of one planted bug.

    Attributes:
        grade: One of `CLASSES`: how near to the bug the mark is.
        at: The marked file and line, or nothing.
        why: What is said of it.
        caught: Where it is first objected to.
    """

    model: str
    name: str
    grade: str
    hunk: Hunk
    at: str
    why: str
    caught: At | None


def hunk(model: str, mutant: Mutant) -> Hunk:
    """The lines that a mutant changes."""
    path, first, source = function_of(model, mutant)
    start = source.index(mutant.old)
    same = difflib.SequenceMatcher(None, mutant.old, mutant.new, autojunk=False).get_opcodes()
    changed = [one for one in same if one[0] != "equal"]
    begin, end = changed[0][3], max(changed[-1][4] - 1, changed[0][3])
    lead = first + source[:start].count("\n")
    lines = lead + mutant.new[:begin].count("\n"), lead + mutant.new[:end].count("\n")
    edited = "\n" * (first - 1) + source.replace(mutant.old, mutant.new)
    tree = ast.parse(_flush(edited))
    return Hunk(path.relative_to(ROOT).as_posix(), lines, _statement(tree, lines), (first, len(edited.splitlines())))


def _flush(source: str) -> str:
    """A method's source moved to the margin, its lines numbered as they were."""
    text = source.lstrip("\n")
    lead = len(source) - len(text)
    return "\n" * (lead - 1) + "if True:\n" + text if text[:1] == " " else source


def _statement(tree: ast.Module, lines: tuple[int, int]) -> tuple[int, int]:
    found = lines
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.end_lineno is not None and node.lineno <= lines[0] <= node.end_lineno:
            last = min((one.lineno - 1 for one in getattr(node, "body", [])), default=node.end_lineno)
            if last >= lines[0]:
                found = min(node.lineno, lines[0]), max(last, lines[1])
    return found


def grade(where: Hunk, file: str, line: int) -> str:
    """How near a mark is to a hunk."""
    if file != where.file:
        return "elsewhere"
    parts = (where.lines, where.statement, where.function)
    near = zip(CLASSES, parts, strict=False)
    return next((name for name, (first, last) in near if first <= line <= last), "elsewhere")


def mark(
    model: str, mutant: Mutant, here: dict[str, str], at: At | None = None, logs: Path | None = None,
    search: float = SEARCH,
) -> Any:  # fmt: skip
    """In a process of its own: plant, judge until somebody objects, open that: (where, `Opened`).

    `at` is where somebody objects, if that is known; `logs` keeps what the oracle did; `search` is how many seconds to
    look for an edit that mends it.

    Raises:
        HarnessError: nobody objects.
    """
    table, question = table_of(model), Question()
    sides.cuts("port", model)
    sides.taps("port", model)
    plant(model, mutant)
    loaded: dict[tuple[Path, str], Any] = {}

    def load(where: Path, compute: str) -> Any:
        if (where, compute) not in loaded:
            loaded[where, compute] = sides.cuts("port", model).load(where, compute)
        return loaded[where, compute]

    at = at or caught(table, mutant, question, here)
    name, _, compute = at.case.partition("/")
    held = Shelf(table, question, here, load).take(next(case for case in table.cases if case.name == name), compute)
    if not at.occurrence and (opened := refused(table, held, at.stage, search)) is not None:
        return at, opened
    bench = Bench(table, held, load(held.checkpoint, compute), logs, search)
    return at, bench.open(table[at.stage], at.occurrence, free=None)


def planted(name: str, model: str | None, *, look: bool) -> tuple[str, At | None]:
    """Plant a bug in this process' port, and say whose port that is; where it is objected to first, if asked to look.

    Raises:
        UsageError: no bug is called that, or several models have one.
        HarnessError: nobody objects to it.
    """
    found = [(one, bug) for one in ((model,) if model else MODELS) for bug in mutants_of(one) if bug.name == name]
    if len(found) != 1:
        raise UsageError(
            f"{len(found)} planted bugs are called {name!r}; "
            + ("name the model: --model" if found else "see all with: harness mutate")
        )
    model, bug = found[0]
    sides.cuts("port", model)
    sides.taps("port", model)
    plant(model, bug)
    return model, caught(table_of(model), bug, Question(), canary.canary()) if look else None


def caught(table: Table, mutant: Mutant, question: Question, here: dict[str, str]) -> At:
    """Where the port as it is now is objected to first; what is fed the oracle's inputs goes before an ordinary run.

    Of a port that does not open its checkpoint it is a stage without an occurrence.

    Raises:
        HarnessError: nobody objects.
    """
    inherits: At | None = None
    for stage, rows in judge_port(table, mutant.goldens, question, here):
        for row in rows:
            if row.status in OBJECTS:
                if row.mode == "forced":
                    return At(stage, row.occurrence, row.case)
                inherits = inherits or At(stage, row.occurrence, row.case)
    if inherits is None:
        raise HarnessError(f"nobody objects to {mutant.name!r}")
    return inherits


def _marked(
    model: str, mutant: Mutant, here: dict[str, str], at: At | None, logs: Path | None, search: float
) -> Marked:
    where = hunk(model, mutant)
    at, opened = mark(model, mutant, here, at, logs, search)
    found = opened.first
    if found is None or found.at is None:
        return Marked(model, mutant.name, "nothing", where, "", "; ".join(opened.notes), at)
    mine = found.at
    return Marked(model, mutant.name, grade(where, mine.file, mine.line), where, str(mine), found.why, at)


def measure(
    asked: Sequence[tuple[str, Mutant, At | None]],
    logs: Path | None = None,
    seconds: float = SECONDS,
    search: float = SEARCH,
) -> Iterator[Marked]:
    """Plant each of these, open where it is caught, and say how near the mark is, as each is done.

    Args:
        asked: Whose, which, and where it is caught, if that is known.
        logs: Folder that keeps what the oracle did.
        seconds: How long each may take, by the clock.
        search: How long to look for an edit that mends it, in seconds of processor time; 0: not at all.
    """
    here = canary.canary()
    work = [partial(_marked, model, mutant, here, at, logs, search) for model, mutant, at in asked]
    for index, result in each(work, seconds, (__name__, *IMPORTS)):
        model, mutant, at = asked[index]
        if isinstance(result, Lost):
            yield Marked(model, mutant.name, "nothing", hunk(model, mutant), "", result.why, at)
        else:
            yield result
