"""The goldens at hand: which file answers for a case, and whether it may be judged against here."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goldens import canary, checkpoint, manifest
from goldens.errors import GoldenError
from goldens.store import Golden

from .errors import HarnessError, MissingGoldenError, UsageError
from .places import COMMITTED, LOCAL, MODELS, checkpoint_path, golden_path
from .spec import Case, Table

NOT_RUN = {
    "why",
    "keep",
    "leave",
    "computes",
    "steps",
}  # fields of a case that say what is kept of a run, not what is run


@dataclass(frozen=True)
class Question:
    """What a command asks: stages, cases, dtypes; goldens, checkpoint, tier, modes; whether the port is `dense`."""

    stages: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    computes: tuple[str, ...] = ()
    goldens: Path | None = None
    checkpoint: Path | None = None
    tier: str | None = None
    modes: tuple[str, ...] = ("forced", "free")
    again: bool = False
    dense: bool = False


@dataclass(frozen=True)
class Held:
    """One golden that may be judged here, and how."""

    case: Case
    compute: str
    golden: Golden
    checkpoint: Path
    tier: str
    differs: list[str]

    @property
    def name(self) -> str:
        """`long/bfloat16`: what verdicts call the case."""
        return f"{self.case.name}/{self.compute}"


@dataclass
class Shelf:
    """Takes down the goldens that a question is about.

    Attributes:
        here: This machine's canary.
        load: Loads the port on a checkpoint, and raises what is wrong with it.
    """

    table: Table
    question: Question
    here: dict[str, str]
    load: Callable[[Path, str], Any]
    _digests: dict[Path, checkpoint.Checkpoint] = field(default_factory=dict)

    def take(self, case: Case, compute: str) -> Held:
        """The golden of a case.

        Raises:
            GoldenError: there is one that must not be used: damaged, of another checkpoint, table or case.
            MissingGoldenError: there is none.
            UsageError: the exact tier was asked for where it cannot be in force.
            HarnessError: the checkpoint itself cannot be loaded.
        """
        path = self._find(case, compute)
        golden = Golden.open(path)
        facts = golden.manifest
        if facts.get("schema") != manifest.SCHEMA:
            cause = f"its manifest is of schema {facts.get('schema')}, this harness reads {manifest.SCHEMA}"
            raise GoldenError(path=path, cause=cause)
        where = self.question.checkpoint or checkpoint_path(case.checkpoint)
        self._check_checkpoint(facts, where, compute, path)
        found, asked = (facts["model"], facts["compute"]), (self.table.model, compute)
        if found != asked:
            raise GoldenError(path=path, cause=f"it holds {' in '.join(found)}, and {' in '.join(asked)} is asked for")
        for stage in golden.stages():
            if wrong := _unlike(self.table, stage, golden):
                raise GoldenError(path=path, cause=f"the table changed since it was recorded: {wrong}")
        if changed := differing_fields(facts["case"], case):
            cause = f"the table's case {case.name!r} changed since it was recorded: {', '.join(changed)} differ"
            raise GoldenError(path=path, cause=cause)
        differs = canary.differing(facts["canary"], self.here)
        if self.question.tier == "exact" and not self.table.exact:
            raise UsageError(
                f"the exact tier was asked for, but {path.name} was computed by {', '.join(differs)}: no float of the "
                "port is equal to it by construction. Judge it in its own tier: leave --tier out"
            )
        if self.question.tier == "exact" and differs:
            raise UsageError(
                f"the exact tier was asked for, but this machine's numeric backend is not the one of {path.name}: "
                f"{', '.join(differs)} differ. Record here with: harness dump --out goldens/local"
            )
        return Held(case, compute, golden, where, self.question.tier or ("portable" if differs else "exact"), differs)

    def _find(self, case: Case, compute: str) -> Path:
        """The golden to judge: of the folder asked for; else the committed one, else a local one of this backend."""
        if self.question.goldens:
            path = golden_path(self.question.goldens, self.table.model, case.name, compute)
            if not path.exists():
                raise MissingGoldenError(f"there is no golden {path}; {self._mend(case)}")
            return path
        committed, local = (golden_path(folder, self.table.model, case.name, compute) for folder in (COMMITTED, LOCAL))
        if not local.exists():
            if not committed.exists():
                raise MissingGoldenError(f"there is no golden {committed.name}; {self._mend(case)}")
            return committed
        if committed.exists() and not canary.differing(Golden.open(committed).manifest["canary"], self.here):
            return committed
        return local

    def _mend(self, case: Case) -> str:
        """How to record what is missing, where it was looked for."""
        model = "" if self.table.model == MODELS[0] else f" --model {self.table.model}"
        out = f" --out {shlex.quote(str(self.question.goldens))}" if self.question.goldens else ""
        return f"record it with: harness dump --case {case.name}{model}{out}"

    def _check_checkpoint(self, facts: dict[str, Any], where: Path, compute: str, path: Path) -> None:
        recorded = facts["checkpoint"]
        found = self._digest(where)
        if found.digest == recorded["digest"]:
            return
        self.load(where, compute)  # a checkpoint that is broken says so itself, and that is the better message
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


def differing_fields(recorded: dict[str, Any], case: Case) -> list[str]:
    """Fields of a case that decide what is run, and are not as they were recorded."""
    now = json.loads(json.dumps(case.facts()))
    return sorted(name for name in (now.keys() | recorded.keys()) - NOT_RUN if now.get(name) != recorded.get(name))


def _unlike(table: Table, name: str, golden: Golden) -> str:
    """What a golden's stage has otherwise than the table: an unknown stage, tensor, or number of axes; else nothing."""
    stage = next((stage for stage in table.stages if stage.name == name), None)
    if stage is None:
        return f"it knows no stage {name}"
    for occurrence in golden.occurrences(name):
        shapes = golden.shapes(name, occurrence)
        if wrong := stage.unlike(shapes["in"], shapes["out"]):
            return f"{name}[{occurrence}] {wrong}"
    return ""
