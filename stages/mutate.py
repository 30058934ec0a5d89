"""Who catches which planted bug: each is planted in a process of its own, and stages are judged until one objects."""

import importlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from goldens import canary
from reports.verdict import Status, Verdict

from . import dense as backend
from . import sides
from .asked import table_of
from .cases import plan
from .errors import HarnessError
from .forked import Lost, each
from .judge import Judge, said
from .places import CACHE, MODELS
from .planted import Mutant, plant
from .shelf import Question, Shelf
from .spec import Table

SECONDS = 120.0  # that one mutant may take: the slowest needs 10
IMPORTS = (__name__, *(f"port.{model}.{module}" for model in MODELS for module in ("cuts", "taps")))
LOADING = "weights"  # where a port belongs that refuses to open its checkpoint
OBJECTS = (Status.FAIL, Status.ERROR)
Golden = tuple[str, str]  # case and compute dtype


@dataclass(frozen=True)
class Found:
    """What became of one mutant.

    Attributes:
        status: CAUGHT, SURVIVED, ELSEWHERE (caught, but first at another stage than expected) or ERROR.
        verdict: The first objection; of a survivor the expected stage's verdict that came nearest to one.
        note: Of an ERROR, what happened.
    """

    model: str
    mutant: Mutant
    status: str
    verdict: Verdict | None = None
    note: str = ""

    @property
    def caught_at(self) -> str:
        """The stage that objected first, or nothing."""
        return self.verdict.stage if self.verdict and self.status in ("CAUGHT", "ELSEWHERE") else ""

    def to_json(self) -> dict[str, Any]:
        """One entry of the document."""
        row = self.verdict
        return {
            "model": self.model,
            "name": self.mutant.name,
            "stage": self.mutant.stage,
            "expected": self.mutant.stage,
            "caught_at": self.caught_at,
            "tensor": row.tensor if row else "",
            "occurrence": row.occurrence if row else "",
            "mode": row.mode if row else "",
            "case": row.case if row else ", ".join(self.mutant.cases),
            "value": row.to_json()["value"] if row else None,
            "bound": row.to_json()["bound"] if row else None,
            "status": self.status,
            "math": self.mutant.math,
            "bugs": list(self.mutant.bugs),
            "note": self.note or (row.note if row else ""),
        }


@dataclass
class Report:
    """A run over tables of mutants."""

    tier: str
    found: list[Found] = field(default_factory=list)
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """What `--json` prints and `.lockstep/mutants.json` holds; without the time, so that equal runs are equal."""
        return {"schema": 1, "tier": self.tier, "mutants": [one.to_json() for one in self.found]}

    @property
    def exit_code(self) -> int:
        """4 where a mutant could not be judged, 1 where one survived or was caught elsewhere, else 0."""
        states = {one.status for one in self.found}
        return 4 if "ERROR" in states else 1 if states & {"SURVIVED", "ELSEWHERE"} else 0


def mutants_of(model: str) -> tuple[Mutant, ...]:
    """A model's mutants, of every file `stages/mutants/<model>*.py`, in the order of its stages.

    Raises:
        HarnessError: two are called alike, or one expects a stage or a case that there is not.
    """
    files = sorted((Path(__file__).parent / "mutants").glob(f"{model}*.py"))
    found = [one for path in files for one in importlib.import_module(f"stages.mutants.{path.stem}").mutants]
    table = table_of(model)
    order = [stage.name for stage in table.stages]
    known = {(case.name, compute) for case in table.cases for compute in case.computes}
    names = [one.name for one in found]
    for one in found:
        if names.count(one.name) > 1:
            raise HarnessError(f"two mutants of {model} are called {one.name!r}; each should have a name of its own")
        if one.stage not in order:
            raise HarnessError(f"the mutant {one.name!r} expects the stage {one.stage!r}, which {model} has not")
        if unknown := [f"{case}/{compute}" for case, compute in one.goldens if (case, compute) not in known]:
            raise HarnessError(f"the mutant {one.name!r} asks the case {unknown[0]}, which {model} has not")
    return tuple(sorted(found, key=lambda one: order.index(one.stage)))


def judge_port(
    table: Table, goldens: Iterable[tuple[str, str]], question: Question, here: dict[str, str]
) -> Iterator[tuple[str, list[Verdict]]]:
    """Stage after stage of a table, the port as it is now: (stage, its verdicts on these goldens).

    In the exact tier both modes speak at their stage. In a portable one what a free run brings always differs, so free
    verdicts count only when no forced one objects anywhere: they come at the end.
    """
    loaded: dict[tuple[Path, str], Any] = {}

    def load(where: Path, compute: str) -> Any:
        if (where, compute) not in loaded:
            loaded[where, compute] = sides.cuts("port", table.model).load(where, compute)
        return loaded[where, compute]

    shelf, judges = Shelf(table, question, here, load), []
    for name, compute in goldens:
        case = next(case for case in table.cases if case.name == name)
        held = shelf.take(case, compute)
        config = json.loads((held.checkpoint / "config.json").read_text())
        try:
            model = load(held.checkpoint, compute)
        except Exception as error:  # noqa: BLE001 -- whatever the port raises is a verdict on the port
            blank: dict[str, Any] = {"occurrence": "", "tensor": "", "gate": "", "value": None, "bound": None}
            row = Verdict(
                model=table.model, stage=LOADING, mode="forced", case=held.name, status=Status.ERROR, where="",
                note=said(error), tier=held.tier, **blank,
            )  # fmt: skip
            yield LOADING, [row]
            continue
        judges.append(Judge(table, held.golden, held.name, held.tier, model, plan(case, config)))
    later: list[tuple[str, list[Verdict]]] = []
    for stage in table.stages:
        rows: list[Verdict] = []
        for judge in judges:
            rows += judge.forced(stage)
            if judge.tier == "exact":
                rows += judge.free(stage)
            else:
                later.append((stage.name, judge.free(stage)))
        yield stage.name, rows
    yield from later


def _one(
    model: str, mutant: Mutant | None, goldens: tuple[tuple[str, str], ...], question: Question, here: dict[str, str]
) -> tuple[Verdict | None, Verdict | None, str]:
    """In a child: the first objection, else the nearest to one at the expected stage; and the tier."""
    table = table_of(model)
    sides.cuts("port", model)
    sides.taps("port", model)
    if question.dense and model == backend.MODEL:
        backend.compute()
    if mutant is not None:
        plant(model, mutant)
    near: Verdict | None = None
    tier = ""
    for stage, rows in judge_port(table, goldens, question, here):
        for row in rows:
            tier = row.tier
            if row.status in OBJECTS:
                return replace(row, worst=()), near, tier
            if mutant is not None and stage == mutant.stage and (near is None or _room(row) > _room(near)):
                near = replace(row, worst=())
    return None, near, tier


def _room(row: Verdict) -> float:
    """How much of its bound a verdict used."""
    return -1.0 if row.value is None or row.bound is None else row.value / row.bound if row.bound else row.value


def run(
    asked: dict[str, tuple[Mutant, ...]],
    tier: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
    seconds: float = SECONDS,
    dense: bool = False,
) -> Report:
    """Plant every mutant of these models, and say who caught it. Nobody may object to the port as it is.

    With `dense` the port as it is multiplies unpacked weights.

    Raises:
        HarnessError: a golden is missing, or somebody objects to the port as it is.
    """
    start = time.perf_counter()
    question = Question(tier=tier, dense=dense)
    ((_, here),) = each([canary.canary], seconds, IMPORTS)
    if isinstance(here, Lost):
        raise HarnessError(f"the canary of this machine's numeric backend gave nothing: {here.why}")
    report = Report(tier or "exact")
    todo = [(model, mutant) for model, mutants in asked.items() for mutant in mutants]
    tiers: set[str] = set()
    found: dict[int, Found] = {}
    taken: dict[tuple[str, Golden], float] = {}
    begun: list[tuple[_Task, float]] = []

    def work() -> Iterator[Callable[[], Any]]:
        for task in _in_order(todo, taken):
            begun.append((task, time.perf_counter()))
            yield partial(_one, task.model, task.mutant, task.goldens, _for(task.model, question), here)

    for index, result in each(work(), seconds, IMPORTS):
        task, since = begun[index]
        if task.mutant is None:
            taken[task.model, task.goldens[0]] = time.perf_counter() - since
            tiers.add(_untouched(task, result))
            progress(f"the port as it is: {task.model} on {'/'.join(task.goldens[0])}")
        else:
            found[task.number] = _found(task.model, task.mutant, result)
            progress(f"{len(found)} of {len(todo)} mutants: {task.mutant.name}")
    report.tier = ", ".join(sorted(tiers)) if tier is None else tier
    report.found = [found[i] for i in range(len(todo))]
    report.seconds = time.perf_counter() - start
    return report


@dataclass(frozen=True)
class _Task:
    """One process' work: mutant number so and so on its goldens, or the port as it is on one."""

    number: int
    model: str
    mutant: Mutant | None
    goldens: tuple[Golden, ...]


def _in_order(todo: list[tuple[str, Mutant]], taken: dict[tuple[str, Golden], float]) -> Iterator[_Task]:
    """The port as it is on every golden that is asked about, then the mutants, each time the one that takes longest.

    It takes what its goldens took the port as it is, and where that is not known yet, longest: a long one that is begun
    last keeps one processor busy while the others wait.
    """
    asked = sorted({(model, one) for model, mutant in todo for one in mutant.goldens})
    yield from (_Task(-1, model, None, (one,)) for model, one in asked)
    left = [_Task(i, model, mutant, mutant.goldens) for i, (model, mutant) in enumerate(todo)]
    while left:
        longest = max(left, key=lambda task: sum(taken.get((task.model, one), math.inf) for one in task.goldens))
        left.remove(longest)
        yield longest


def _for(model: str, question: Question) -> Question:
    """The exact tier is not asked of a model that has none."""
    return replace(question, tier=None) if question.tier == "exact" and not table_of(model).exact else question


def _found(model: str, mutant: Mutant, result: Any) -> Found:
    if isinstance(result, Lost):
        return Found(model, mutant, "ERROR", note=result.why)
    objection, near, _ = result
    if objection is None:
        return Found(model, mutant, "SURVIVED", near)
    return Found(model, mutant, "CAUGHT" if objection.stage == mutant.stage else "ELSEWHERE", objection)


def _untouched(task: _Task, result: Any) -> str:
    """The tier in which nobody objects to the port as it is on a golden.

    Raises:
        HarnessError: somebody does.
    """
    where = f"{task.model} on {'/'.join(task.goldens[0])}"
    if isinstance(result, Lost):
        raise HarnessError(f"the port as it is could not be judged, {where}: {result.why}")
    objection, _, tier = result
    if objection is not None:
        raise HarnessError(
            f"somebody objects to the port as it is, {where}: {objection.stage}[{objection.occurrence}] "
            f"{objection.tensor} {objection.status}. A planted bug proves nothing until that is mended: "
            f"harness run {objection.stage} --case {task.goldens[0][0]}"
        )
    return str(tier)


def save(report: Report, folder: Path | None = None) -> None:
    """Keep a report where pages look for it, beside the ledger, whole or not at all."""
    path = (folder or CACHE) / "mutants.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(report.document(), file, indent=1)
    Path(file.name).replace(path)
