"""The first killer of a source mutation: the harness itself, over every committed golden that runs the mutated lines.

Each mutation is judged in a process of its own, forked from a server that has not imported the port: the child imports
it with the mutation in it. What `harness run` would not leave with 0 is a kill: any verdict but PASS, and a port that
cannot be imported.
"""

import ast
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from source_edits import ROOT, Edit, plant

from goldens import canary
from reports.verdict import Status
from stages import sides
from stages.asked import table_of
from stages.forked import Lost, each
from stages.mutate import judge_port
from stages.places import MODELS
from stages.shelf import Question

SERVER = ("stages.mutate", "source_parity", "mlx.core")  # imported once for all children; nothing of the port
QUESTION = Question()
LIMIT = 900.0  # seconds for the unmutated port on one golden, under coverage
SLOWER = 4.0  # how many times as long as unmutated a mutant may take, besides START, before it counts as hanging
START = 30.0
Lines = dict[str, set[int]]
Key = tuple[str, str, str]  # model, case, compute dtype


@dataclass(frozen=True)
class Control:
    """The port as it is on one golden: what it took, and which lines of which files it ran."""

    model: str
    case: str
    compute: str
    seconds: float
    lines: Lines

    @property
    def key(self) -> Key:
        """Which golden."""
        return self.model, self.case, self.compute


def controls(progress: Callable[[str], None]) -> tuple[list[Control], dict[str, str]]:
    """Every golden judged with the port as it is, the quickest first; and this machine's canary.

    Raises:
        RuntimeError: somebody objects to the port as it is: no kill would mean anything.
    """
    ((_, here),) = each([canary.canary], LIMIT, SERVER)
    if isinstance(here, Lost):
        raise RuntimeError(f"the canary of this machine gave nothing: {here.why}")  # noqa: TRY004 -- no wrong argument
    todo = [
        (model, case.name, compute)
        for model in MODELS
        for case in table_of(model).cases
        for compute in case.computes
        if (ROOT / "goldens" / "nano" / "recorded" / f"{model}.{case.name}.{compute}.h5").exists()
    ]
    found = []
    for index, result in each([partial(_control, *one, here) for one in todo], LIMIT, SERVER):
        if isinstance(result, Lost) or result[0]:
            why = result.why if isinstance(result, Lost) else result[0]
            raise RuntimeError(f"the port as it is, on {' '.join(todo[index])}: {why}")
        found.append(Control(*todo[index], *result[1:]))
        progress(
            f"{len(found)} of {len(todo)} goldens: {found[-1].case}/{found[-1].compute}, {found[-1].seconds:.1f} s"
        )
    return sorted(found, key=lambda one: one.seconds), here


def kill(
    edits: Iterable[Edit], goldens: list[Control], here: dict[str, str], progress: Callable[[str], None]
) -> Iterator[tuple[Edit, str]]:
    """(mutation, by what it was killed, or nothing), as each is known."""
    todo = [(edit, reached) for edit in edits if (reached := [one for one in goldens if reaches(edit, one.lines)])]
    longest = max((sum(one.seconds for one in reached) for _, reached in todo), default=0.0)
    work = [
        partial(_judged, edit, [(one.model, one.case, one.compute) for one in reached], here) for edit, reached in todo
    ]
    for done, (index, result) in enumerate(each(work, START + SLOWER * longest, SERVER), 1):
        edit = todo[index][0]
        by = f"time: {result.why}" if isinstance(result, Lost) and "no result after" in result.why else ""
        by = by or (f"parity: {result.why}" if isinstance(result, Lost) else result and f"parity: {result}")
        progress(f"{done} of {len(todo)} by parity: {edit.place} {by or 'survived'}")
        yield edit, by


def reaches(edit: Edit, ran: Lines) -> bool:
    """Whether the mutated statement was run; of one that runs at import, whether its file was imported."""
    wanted = statement(edit)
    lines = ran.get(edit.file, set())
    return bool(lines & wanted if wanted else lines)


@cache
def statement(edit: Edit) -> set[int]:
    """The lines of the innermost statement within a function that is mutated; none if it runs when it is imported."""
    text = (ROOT / edit.file).read_text(encoding="utf-8")
    first = edit.found(text)
    last = first + len(edit.before.splitlines()) - 1
    found: set[int] = set()
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for outer in function.body:
            for node in ast.walk(outer):
                if isinstance(node, ast.stmt | ast.ExceptHandler) and node.lineno <= first and last <= _end(node):
                    found = set(range(node.lineno, _end(node) + 1))
    return found


def _end(node: Any) -> int:
    """The last line of a statement without its body."""
    body = getattr(node, "body", None)
    return body[0].lineno - 1 if body else node.end_lineno


def _control(model: str, case: str, compute: str, here: dict[str, str]) -> tuple[str, float, Lines]:
    import coverage  # noqa: PLC0415 -- only who looks for killers needs it

    watch = coverage.Coverage(data_file=None, config_file=False, include=[f"{ROOT}/port/*"])
    start = time.perf_counter()
    watch.start()
    objection = _objection(((model, case, compute),), here)
    watch.stop()
    data = watch.get_data()
    ran = {str(Path(file).relative_to(ROOT)): set(data.lines(file) or ()) for file in data.measured_files()}
    return objection, time.perf_counter() - start, {file: lines for file, lines in ran.items() if lines}


def _judged(edit: Edit, goldens: tuple[Key, ...], here: dict[str, str]) -> str:
    plant(edit)
    return _objection(goldens, here)


def _objection(goldens: tuple[Key, ...], here: dict[str, str]) -> str:
    """The first verdict that is no PASS, in words; nothing if all are."""
    for model, case, compute in goldens:
        try:
            sides.cuts("port", model)
            sides.taps("port", model)
        except BaseException as error:  # noqa: BLE001 -- whatever an import of mutated code raises
            return f"importing it raises {type(error).__name__}"
        for stage, rows in judge_port(table_of(model), [(case, compute)], QUESTION, here):
            for row in rows:
                if row.status is not Status.PASS:
                    what = row.tensor or row.note.replace(f"{ROOT}/", "").partition(" (")[0][:80].strip()
                    return f"{stage}[{row.occurrence}] {what} {row.status}, {case}/{compute}"
    return ""
