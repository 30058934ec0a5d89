"""The first bad layer, or denoising step, of the port's ordinary run: by halves."""

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.verdict import Status, Verdict
from stages import loose, sides
from stages.cases import plan
from stages.errors import HarnessError, UsageError
from stages.judge import Border, Judge, said
from stages.shelf import Held
from stages.spec import Stage, Table

APART = ("run=", "image=", "text=", "chat=", "batch=", "direct=")  # each of them begins anew


@dataclass
class Halved:
    """What a search by halves found.

    Attributes:
        occurrences: In the order in which the port came by them.
        compared: Those that were compared, in the order in which they were.
        first: Number of the first that is bad, or None where the last of every pass that was looked at is good.
        rows: The verdicts on it that are no PASS.
        note: How the run ended, where it did not reach the end.
    """

    occurrences: list[str]
    compared: list[int] = field(default_factory=list)
    first: int | None = None
    rows: list[Verdict] = field(default_factory=list)
    note: str = ""

    @property
    def most(self) -> int:
        """Comparisons that it may take."""
        return math.ceil(math.log2(len(self.occurrences))) + 1


def bisect(
    table: Table, held: Held, model: Any, stage: Stage, wanted: Callable[[str], bool] = lambda _occurrence: True
) -> Halved:
    """Run the port once, each occurrence of the stage put aside in a file, and compare those that halving asks for.

    At most two occurrences are in memory: one of the port's and one of the golden's.

    Raises:
        UsageError: the run comes by no occurrence that the golden holds.
    """
    config = json.loads((held.checkpoint / "config.json").read_text())
    todo = plan(held.case, config)
    judge = Judge(table, held.golden, held.name, held.tier, model, todo)
    known = {one for one in held.golden.occurrences(stage.name) if wanted(one)}
    with tempfile.TemporaryDirectory() as folder:
        found = Halved([])

        def emit(name: str, occurrence: str, _ins: Any, outs: Any) -> None:
            if name == stage.name and occurrence in known:
                known.remove(occurrence)
                loose.save(Path(folder) / f"{len(found.occurrences)}.npz", outs)
                found.occurrences.append(occurrence)

        try:
            sides.taps("port", table.model).run(model, todo, emit)
        except HarnessError:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever the port raises is said of the port
            found.note = f"the port's ordinary run stopped: {said(error)}"
        if not found.occurrences:
            why = f": {found.note}" if found.note else ""
            raise UsageError(f"the port's run of {held.name} comes by no {stage.name} that its golden holds{why}")

        if len(apart := {part for one in found.occurrences if (part := _apart(one))}) > 1:
            words = ", ".join(sorted(apart)[:4])
            raise UsageError(f"{words} inherit nothing from each other: name one of them after the stage")

        judged: dict[int, list[Verdict]] = {}

        def bad(n: int) -> bool:
            found.compared.append(n)
            outs, _ = loose.load(Path(folder) / f"{n}.npz")
            here = Border(stage, found.occurrences[n], "free")
            rows = list(judge.hold(here, held.golden.read(stage.name, here.occurrence), outs))
            wrong = [row for row in rows if row.status is not Status.PASS]
            judged[n] = wrong
            return bool(wrong)

        found.first = _earliest(found.occurrences, bad)
        found.rows = [] if found.first is None else judged[found.first]
    return found


def _earliest(occurrences: list[str], bad: Callable[[int], bool]) -> int | None:
    """The first bad occurrence: first the pass, by its last layer, then the layer in it.

    A later pass begins anew, so that its first layers may be right although an earlier pass ended wrong. What ends a
    pass wrong does reach the end of the next one, through the cache or the canvas.
    """
    passes = [_pass(one) for one in occurrences]
    ends = [n for n, one in enumerate(passes) if passes[n + 1 : n + 2] != [one]]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if bad(ends[middle]) else (middle + 1, high)
    if low == len(ends):
        return None
    first, last = (ends[low - 1] + 1 if low else 0), ends[low]
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if bad(middle) else (middle + 1, last)
    return last


def _apart(occurrence: str) -> str:
    """What an occurrence belongs to that begins anew; "" where all of a run hangs together."""
    first = occurrence.partition("/")[0]
    return occurrence if first in {"made", "direct"} else first if first.startswith(APART) else ""


def _pass(occurrence: str) -> str:
    return occurrence.partition("/layer=")[0] if "/layer=" in occurrence else occurrence
