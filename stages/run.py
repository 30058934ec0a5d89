"""Judge a table: open the goldens, unlock stage after stage, ask the ledger before asking the port."""

import hashlib
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from goldens import canary, checkpoint
from goldens.errors import GoldenError
from goldens.store import Golden
from reports.ledger import Entry, Ledger
from reports.verdict import Status, Verdict

from . import sides
from .cases import plan
from .code import PORT, Executed, fingerprint, harness_digest, unchanged, with_constants
from .dump import wanted
from .errors import HarnessError, MissingGoldenError, UsageError
from .judge import Judge
from .places import CACHE, COMMITTED, LOCAL, ROOT, checkpoint_path, golden_path
from .spec import Case, Stage, Table

Progress = Callable[[str], None]
NOT_RUN = {"why", "keep", "leave", "computes"}  # fields of a case that say what is kept of a run, not what is run
PACKAGES = ("mlx", "numpy", "tokenizers", "jinja2", "ml_dtypes")


@dataclass(frozen=True)
class Question:
    """What a command asks: which stages, cases and dtypes; which goldens, checkpoint, tier and modes."""

    stages: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    computes: tuple[str, ...] = ()
    goldens: Path | None = None
    checkpoint: Path | None = None
    tier: str | None = None
    modes: tuple[str, ...] = ("forced", "free")
    again: bool = False


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


@dataclass
class _Open:
    """One golden that may be judged here, and the port's side of it once somebody needs that."""

    run: "Run"
    case: Case
    compute: str
    golden: Golden
    tier: str
    checkpoint: Path

    @property
    def name(self) -> str:
        return f"{self.case.name}/{self.compute}"

    @cached_property
    def judge(self) -> Judge:
        model = self.run.port(self.checkpoint, self.compute)
        config = json.loads((self.checkpoint / "config.json").read_text())
        return Judge(self.run.table, self.golden, self.name, self.tier, model, plan(self.case, config))


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
        self.here = canary.canary()
        self._ports: dict[tuple[Path, str], Any] = {}
        self._base: dict[tuple[Path, str], set[Path]] = {}
        self._digests: dict[Path, checkpoint.Checkpoint] = {}
        self._holds: dict[str, bool] = {}
        self._stale = False
        self._judging = True

    def port(self, where: Path, compute: str) -> Any:
        """The port on this checkpoint, loaded once; what loading executes belongs to every stage's code."""
        if (where, compute) not in self._ports:
            self.progress(f"loading the port on {where.name} in {compute}")
            cuts, watch = sides.cuts("port", self.table.model), Executed()
            with watch.watching():
                self._ports[where, compute] = self._load(cuts, where, compute)
            self._base[where, compute] = with_constants(watch.files(constructors=False))
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
            self.ledger.save()
        return answer

    def recall(self) -> Answer:
        """What the ledger still holds for everything asked; nothing is judged."""
        self._judging = False
        return self.answer()

    def _open_all(self, answer: Answer, asked: list[str]) -> list[_Open]:
        opened = []
        for case, compute in wanted(self.table, self.question.cases, self.question.computes):
            name = f"{case.name}/{compute}"
            try:
                one = self._open(case, compute, answer)
            except (GoldenError, MissingGoldenError) as stale:
                self._stale = True
                for stage in asked:
                    answer.verdicts.append(_row(self.table, stage, name, Status.STALE, str(stale)))
                continue
            opened.append(one)
        return opened

    def _open(self, case: Case, compute: str, answer: Answer) -> _Open:
        name = f"{case.name}/{compute}"
        path = self._find(case, compute)
        golden = Golden.open(path)
        facts = golden.manifest
        where = self.question.checkpoint or checkpoint_path(case.checkpoint)
        self._check_checkpoint(facts, where, compute, path)
        if facts["table"] != self.table.border_digest():
            raise GoldenError(path=path, cause="the table's stages or their tensors changed since it was recorded")
        if changed := differing_fields(facts["case"], case):
            cause = f"the table's case {case.name!r} changed since it was recorded: {', '.join(changed)} differ"
            raise GoldenError(path=path, cause=cause)
        differs = canary.differing(facts["canary"], self.here)
        if self.question.tier == "exact" and differs:
            raise UsageError(
                f"the exact tier was asked for, but this machine's numeric backend is not the one of {path.name}: "
                f"{', '.join(differs)} differ. Record here with: harness dump --out goldens/local"
            )
        answer.manifests[name], answer.differs[name] = facts, differs
        tier = self.question.tier or ("portable" if differs else "exact")
        return _Open(self, case, compute, golden, tier, where)

    def _find(self, case: Case, compute: str) -> Path:
        """The golden to judge: of the folder asked for; else the committed one, else a local one of this backend."""
        if self.question.goldens:
            path = golden_path(self.question.goldens, self.table.model, case.name, compute)
            if not path.exists():
                raise MissingGoldenError(f"there is no golden {path}; record it with: harness dump --case {case.name}")
            return path
        committed, local = (golden_path(folder, self.table.model, case.name, compute) for folder in (COMMITTED, LOCAL))
        if not local.exists():
            if not committed.exists():
                raise MissingGoldenError(
                    f"there is no golden {committed.name}; record it with: harness dump --case {case.name}"
                )
            return committed
        if committed.exists() and not canary.differing(Golden.open(committed).manifest["canary"], self.here):
            return committed
        return local

    def _check_checkpoint(self, facts: dict[str, Any], where: Path, compute: str, path: Path) -> None:
        recorded = facts["checkpoint"]
        found = self._digest(where)
        if found.digest == recorded["digest"]:
            return
        self.port(where, compute)  # a checkpoint that is broken says so itself, and that is the better message
        parts = checkpoint.differing(recorded["parts"], found.parts)
        cause = f"the checkpoint at {where} is not the one it was recorded from: {', '.join(parts[:3])} differ"
        raise GoldenError(path=path, cause=cause)

    def _digest(self, where: Path) -> checkpoint.Checkpoint:
        if where not in self._digests:
            try:
                self._digests[where] = checkpoint.digest(where)
            except GoldenError as error:  # nothing is wrong with a golden: what to judge is not there
                raise HarnessError(f"{where}: {error.cause}. Give a checkpoint directory: --checkpoint DIR") from error
        return self._digests[where]

    def _stage(self, stage: Stage, opened: list[_Open], answer: Answer) -> list[Verdict]:
        mine = [one for one in opened if one.golden.occurrences(stage.name)]
        answer.cases[stage.name] = [one.name for one in mine]
        answer.occurrences[stage.name] = sum(len(one.golden.occurrences(stage.name)) for one in mine)
        waits = tuple(name for name in stage.after if not self._holds.get(name, False))
        narrowed = self.question.cases or self.question.computes
        if not mine and narrowed and stage.name not in self.question.stages:
            self._holds[stage.name] = not waits and not self._stale
            return []
        rows: list[Verdict] = []
        seconds = 0.0
        supports = bool(mine)
        for one in mine:
            entry = self._entry(stage, one, locked=bool(waits))
            if entry is None:
                note = (
                    f"waits for {', '.join(waits)}" if waits else f"not judged as it is now: harness run {stage.name}"
                )
                rows.append(_row(self.table, stage.name, one.name, Status.LOCKED, note, one.tier))
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
        name = f"{self.table.model}/{stage.name}/{one.name}/{one.tier}"
        held = None if self.question.again else self.ledger.get(name)
        if held is not None and held.key == key and unchanged(held.files):
            return held
        if not self._judging:
            return None
        self.progress(f"{stage.name}: {one.name}")
        start = time.perf_counter()
        verdicts = [*one.judge.forced(stage), *one.judge.free(stage)]
        seconds = time.perf_counter() - start
        files = one.judge.executed[stage.name] | self._base[one.checkpoint, one.compute]
        if any(row.status is not Status.PASS for row in verdicts):
            files |= set(PORT.rglob("*.py"))  # whatever mends it, elsewhere in the ordinary run too, asks again
        for waited in self.table.closure([stage.name])[:-1]:
            files |= self._ancestors(waited, one)
        self.ledger.put(name, Entry(key, fingerprint(files), tuple(verdicts), seconds))
        return Entry(key, {}, tuple(verdicts), -max(seconds, 1e-9))

    def _ancestors(self, stage: str, one: _Open) -> set[Path]:
        """Files that a stage before this one depends on: a free verdict came through them."""
        held = self.ledger.get(f"{self.table.model}/{stage}/{one.name}/{one.tier}")
        return {ROOT / name for name in held.files} if held else set()

    def _key(self, stage: Stage, one: _Open) -> str:
        parts = [
            repr(stage),
            one.golden.digest(stage.name),
            one.golden.manifest["checkpoint"]["digest"],
            one.tier,
            json.dumps(self.here, sort_keys=True),
            *(f"{name}=={metadata.version(name)}" for name in PACKAGES),
            platform.python_version(),
            harness_digest(),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def differing_fields(recorded: dict[str, Any], case: Case) -> list[str]:
    """Fields of a case that decide what is run, and are not as they were recorded."""
    now = json.loads(json.dumps(asdict(case)))
    return sorted(name for name in now.keys() - NOT_RUN if now[name] != recorded.get(name))


def _supports(row: Verdict) -> bool:
    """Whether a verdict lets later stages unlock: forced, only PASS does; a free one must not itself have failed."""
    if row.mode == "free":
        return row.status in {Status.PASS, Status.LOCKED}
    return row.status is Status.PASS


def _row(table: Table, stage: str, case: str, status: Status, note: str, tier: str = "exact") -> Verdict:
    return Verdict(table.model, stage, "", "forced", case, "", status, "", None, None, "", note, tier=tier)
