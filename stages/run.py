"""Judge a table: open the goldens, unlock stage after stage, ask the ledger before asking the port."""

import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from goldens import canary
from goldens.errors import GoldenError
from reports.ledger import Entry, Ledger
from reports.verdict import Status, Verdict

from . import dense, sides
from .cases import plan
from .code import BUILT, PORT, Executed, as_found, fingerprint, harness_digest, observing, unchanged
from .dump import wanted
from .errors import HarnessError, MissingGoldenError, UsageError
from .judge import Judge
from .places import CACHE, ROOT
from .regate import measuring, regated
from .shelf import Held, Question, Shelf
from .spec import Stage, Table

Progress = Callable[[str], None]
PACKAGES = ("mlx", "numpy", "tokenizers", "jinja2", "ml_dtypes", "pillow")


@dataclass
class Answer:
    """What a run found.

    Attributes:
        verdicts: In table order.
        waits: For each locked stage, what it waits for.
        seconds: Wall time by stage, of this run or of the one that the ledger remembers.
        fresh: Stages that were judged now rather than remembered.
        manifests: By case.
        differs: By case, the canary's primitives that differ here.
        cases: By stage, the cases that exercise it.
        occurrences: By stage, how many occurrences the goldens hold.
        goldens: By case, what was judged against.
    """

    model: str
    verdicts: list[Verdict] = field(default_factory=list)
    waits: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)
    differs: dict[str, list[str]] = field(default_factory=dict)
    canary: dict[str, str] = field(default_factory=dict)
    cases: dict[str, list[str]] = field(default_factory=dict)
    occurrences: dict[str, int] = field(default_factory=dict)
    goldens: dict[str, Held] = field(default_factory=dict)


@dataclass
class _Open:
    """One golden at hand, and the port's side of it once somebody needs that."""

    run: "Run"
    held: Held

    @property
    def name(self) -> str:
        return self.held.name

    @cached_property
    def judge(self) -> Judge:
        held = self.held
        model = self.run.port(held.checkpoint, held.compute)
        config = json.loads((held.checkpoint / "config.json").read_text())
        return Judge(self.run.table, held.golden, held.name, held.tier, model, plan(held.case, config))


class Run:
    """One pass over a table. `answer()` is the whole of it."""

    def __init__(self, table: Table, question: Question, progress: Progress = lambda _: None) -> None:
        self.table, self.question, self.progress = table, question, progress
        known = [stage.name for stage in table.stages]
        for name in question.stages:
            if name not in known:
                raise UsageError(f"no stage of {table.model} is called {name!r}; there are: {', '.join(known)}")
        for name in question.cases:
            if name not in (names := [case.name for case in table.cases]):
                raise UsageError(f"no case of {table.model} is called {name!r}; there are: {', '.join(names)}")
        self.ledger = Ledger.load(CACHE / "ledger")
        self.here = canary.canary() | (dense.PRIMITIVE if question.dense else {})
        as_found()
        versions = [f"{name}=={metadata.version(name)}" for name in PACKAGES]
        backend = [json.dumps(self.here, sort_keys=True), *versions, platform.python_version()]
        self._by = "\n".join([*backend, harness_digest()])
        self._ports: dict[tuple[Path, str], Any] = {}
        self._base: dict[tuple[Path, str], set[Path]] = {}
        self._shelf = Shelf(table, question, self.here, self.port)
        self._holds: dict[str, bool] = {}
        self._judging = True

    def port(self, where: Path, compute: str) -> Any:
        """The port on this checkpoint, loaded once; what loading executes belongs to every stage's code."""
        if (where, compute) not in self._ports:
            self.progress(f"loading the port on {where.name} in {compute}")
            cuts, watch = sides.cuts("port", self.table.model), Executed()
            if self.question.dense and not self._ports and self.table.model == dense.MODEL:
                dense.compute()
            with watch.watching():
                self._ports[where, compute] = self._load(cuts, where, compute)
            self._base[where, compute] = watch.files(constructors=False) | observing(self.table.model)
        return self._ports[where, compute]

    @staticmethod
    def _load(cuts: Any, where: Path, compute: str) -> Any:
        try:
            return cuts.load(where, compute)
        except Exception as error:
            if type(error).__module__.startswith("port."):  # the port's own words about a checkpoint it refuses
                raise HarnessError(str(error)) from error
            raise

    def answer(self) -> Answer:
        """Judge what was asked for, and first whatever it waits for that holds no current PASS."""
        answer = Answer(self.table.model, canary=self.here)
        asked = list(self.question.stages) or [stage.name for stage in self.table.stages]
        opened = self._open_all(answer, asked)
        try:
            for name in self.table.closure(asked):
                stage = self.table[name]
                rows = self._stage(stage, opened, answer)
                if name in asked or any(row.status is not Status.PASS for row in rows) or name in answer.fresh:
                    answer.verdicts.extend(rows)
        finally:
            self._save()
        return answer

    def _save(self) -> None:
        """Keep what was found; where the ledger cannot be written, what was found is still said."""
        try:
            self.ledger.save()
        except OSError as error:
            print(f"the ledger {self.ledger.path} was not written, and nothing is remembered: {error}", file=sys.stderr)

    def recall(self) -> Answer:
        """What the ledger still holds for everything asked, under the table's bounds as they are; nothing is judged."""
        self._judging = False
        return self.answer()

    def _open_all(self, answer: Answer, asked: list[str]) -> list[_Open]:
        opened = []
        for case, compute in wanted(self.table, self.question.cases, self.question.computes):
            name = f"{case.name}/{compute}"
            try:
                held = self._shelf.take(case, compute)
            except (GoldenError, MissingGoldenError) as stale:
                for stage in asked:
                    answer.verdicts.append(_row(self.table, stage, name, Status.STALE, str(stale)))
                continue
            answer.manifests[name], answer.differs[name] = held.golden.manifest, held.differs
            answer.goldens[name] = held
            opened.append(_Open(self, held))
        return opened

    def _stage(self, stage: Stage, opened: list[_Open], answer: Answer) -> list[Verdict]:
        mine = [one for one in opened if one.held.golden.occurrences(stage.name)]
        answer.cases[stage.name] = [one.name for one in mine]
        answer.occurrences[stage.name] = sum(len(one.held.golden.occurrences(stage.name)) for one in mine)
        waits = tuple(name for name in stage.after if not self._holds.get(name, False))
        narrowed = self.question.cases or self.question.computes
        if not mine and narrowed and stage.name not in self.question.stages:
            self._holds[stage.name] = not waits
            return []
        rows: list[Verdict] = []
        seconds = 0.0
        supports = bool(mine)
        for one in mine:
            try:
                entry = self._entry(stage, one, locked=bool(waits))
            except GoldenError as stale:  # whole by its seal, and refused when a tensor was to be read
                rows.append(_row(self.table, stage.name, one.name, Status.STALE, str(stale), one.held.tier))
                supports = False
                continue
            if entry is None:
                note = (
                    f"waits for {', '.join(waits)}" if waits else f"not judged as it is now: harness run {stage.name}"
                )
                rows.append(_row(self.table, stage.name, one.name, Status.LOCKED, note, one.held.tier))
                answer.waits[stage.name] = waits
                supports = False
                continue
            if entry.seconds < 0:  # judged just now
                answer.fresh.add(stage.name)
            seconds += abs(entry.seconds)
            supports = supports and all(_supports(row) for row in entry.verdicts)
            rows.extend(row for row in entry.verdicts if row.mode in self.question.modes)
        if not mine:
            note = "no golden at hand holds an occurrence of this stage: nothing was compared"
            if not any(row.status is Status.STALE for row in answer.verdicts):
                rows.append(_row(self.table, stage.name, "", Status.FAIL, note))
        answer.seconds[stage.name] = seconds
        self._holds[stage.name] = supports
        return rows

    def _entry(self, stage: Stage, one: _Open, *, locked: bool) -> Entry | None:
        """The stage's verdicts on one golden, remembered or new; None where it is locked, or nothing may be judged."""
        if locked and self._judging:
            return None
        key = self._key(stage, one)
        name = f"{self.table.model}/{stage.name}/{one.name}/{one.held.tier}"
        held = None if self.question.again else self.ledger.get(name)
        if held is not None and unchanged(held.files, self.table.model):
            if held.key == key:
                return held
            if not self._judging and held.key.rpartition(".")[0] == key.rpartition(".")[0]:
                return replace(held, verdicts=tuple(regated(stage, row) for row in held.verdicts))
        if not self._judging:
            return None
        self.progress(f"{stage.name}: {one.name}")
        start = time.perf_counter()
        verdicts = [*one.judge.forced(stage), *one.judge.free(stage)]
        seconds = time.perf_counter() - start
        files = one.judge.executed[stage.name] | self._base[one.held.checkpoint, one.held.compute]
        if any(row.status is not Status.PASS for row in verdicts):
            files |= set(PORT.rglob("*.py"))  # whatever mends it, elsewhere in the ordinary run too, asks again
        for waited in self.table.closure([stage.name])[:-1]:
            files |= self._ancestors(waited, one)
        self.ledger.put(name, Entry(key, fingerprint(files, self.table.model), tuple(verdicts), seconds))
        return Entry(key, {}, tuple(verdicts), -max(seconds, 1e-9))

    def _ancestors(self, stage: str, one: _Open) -> set[Path]:
        """Files that a stage before this one depends on: a free verdict came through them."""
        held = self.ledger.get(f"{self.table.model}/{stage}/{one.name}/{one.held.tier}")
        return {ROOT / name for name in held.files if not name.endswith(BUILT)} if held else set()

    def _key(self, stage: Stage, one: _Open) -> str:
        parts = [
            one.held.golden.digest(stage.name),
            one.held.golden.manifest["checkpoint"]["digest"],
            one.held.tier,
            self._by,
        ]
        # Three digests: what was judged by what, how it was measured, and how close was close enough.
        found = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return f"{found}.{measuring(stage)}.{hashlib.sha256(repr(stage).encode()).hexdigest()}"


def _supports(row: Verdict) -> bool:
    """Whether a verdict lets later stages unlock: forced, only PASS does; a free one must not itself have failed.

    In the portable tier a free one is not asked: what reaches a stage there always differs, and its failure may be that
    of a stage that waits for it.
    """
    if row.mode == "free":
        return row.status in {Status.PASS, Status.LOCKED} or row.tier == "portable"
    return row.status is Status.PASS


def _row(table: Table, stage: str, case: str, status: Status, note: str, tier: str = "exact") -> Verdict:
    return Verdict(table.model, stage, "", "forced", case, "", status, "", None, None, "", note, tier=tier)
